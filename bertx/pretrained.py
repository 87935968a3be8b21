"""Weights to start from: those of a run, of a converted folder, or of a Hugging Face one."""

import dataclasses
import functools
import hashlib
import json
import logging
from typing import Any

import jax
import numpy as np
from etils import epath

from bertx import paths
from bertx.checkpoint import Trained
from bertx.encoder import abstract, shapes
from bertx.encoder_config import EXECUTION, EncoderConfig
from bertx.errors import BadInput
from bertx.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, eq=False)
class Pretrained:
    """An encoder and the heads that were trained on it."""

    folder: str
    encoder: EncoderConfig
    params: dict[str, Any]  # 'encoder', 'heads_mlm', ...: numpy arrays
    tokenizer: Tokenizer
    about: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # of heads: see `hf.About`

    @functools.cached_property
    def content(self) -> str:
        """Hash of all parameters."""
        told = dataclasses.asdict(self.encoder) | ({'about': self.about} if self.about else {})
        found = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
        for path, x in jax.tree_util.tree_leaves_with_path(self.params):
            found.update(f'{jax.tree_util.keystr(path)} {x.dtype} {x.shape}'.encode())
            found.update(np.ascontiguousarray(x).tobytes())
        return found.hexdigest()

    @property
    def heads(self) -> list[str]:
        return sorted(name.removeprefix('heads_') for name in self.params if name != 'encoder')

    def reads_last(self, head: str) -> bool:
        """Whether a head reads the encoder's last states, as nearly all do."""
        return not self.about.get(head.removeprefix('heads_'), {}).get('features')

    @staticmethod
    def of_run(folder: str, step: int | None = None) -> 'Pretrained':
        """step: of a checkpoint; None: the newest."""
        return _own(paths.anywhere(folder), step)

    @staticmethod
    @functools.lru_cache(maxsize=4)
    def load(folder: str) -> 'Pretrained':
        """Raises BadInput for a folder that holds no trained weights."""
        path = paths.anywhere(folder)
        if (path / 'encoder.json').exists():
            return _own(path)
        wanted = 'a run (with encoder.json and checkpoints/) or a Hugging Face folder (with config.json and'
        if not (path / 'config.json').exists():
            raise BadInput(f'{folder} holds no weights; {wanted} model.safetensors) would do')
        if 'model_type' not in _json(path / 'config.json'):
            raise BadInput(f'{path}/config.json has no model_type; {wanted} model_type in it) would do')
        from bertx import hf

        encoder, params = hf.read(path)
        return Pretrained(folder, encoder, params, hf.read_tokenizer(path, encoder), hf.read_about(path, params))


def _json(path: epath.Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise BadInput(f'{path} cannot be read ({error.strerror}); a file that you may read would do') from None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadInput(f'{path} is no JSON object; copy the folder again')
    return found


def _own(path: epath.Path, step: int | None = None) -> Pretrained:
    trained = Trained(path / 'checkpoints', step)
    if trained.step is None:
        raise BadInput(f'{path} has no checkpoint yet; let that run finish')
    try:
        params = trained.params()
    except Exception as error:  # noqa: BLE001 - whatever the storage raises
        said = str(error).split('\n')[0][:100]
        raise BadInput(
            f'{path}/checkpoints/{trained.step} is damaged ({said}); the run goes on from the one before'
        ) from None
    try:
        told = {key: x for key, x in _json(path / 'encoder.json').items() if key not in EXECUTION}  # of another machine
        config = EncoderConfig(**told)
    except TypeError as error:
        raise BadInput(f'{path / "encoder.json"} is no encoder of bertx ({error}); copy the folder again') from None
    if not (path / 'result.json').exists() and (path / 'config.json').exists():
        log.warning('%s is not finished: these are its weights after %d steps', path, trained.step)
    if config.delta_embeddings:  # GDES: the tables are the generator's plus what was learned on top
        (generator,) = (x['generator']['encoder'] for x in params.values() if 'generator' in x)
        for name in ('token', 'position'):
            if name in (table := params['encoder']['embeddings']):
                table[name]['embedding'] = table[name]['embedding'] + generator['embeddings'][name]['embedding']
        config = dataclasses.replace(config, delta_embeddings=False)
    _check_shapes(path, config, params['encoder'])
    file = path / 'tokenizer.json'
    if not file.exists():
        raise BadInput(f'{path} has no tokenizer.json; copy the folder again')
    about = _json(path / 'heads.json') if (path / 'heads.json').exists() else {}
    return Pretrained(str(path), config, params, Tokenizer(file.read_text(), str(file)), about)


def _check_shapes(path: epath.Path, config: EncoderConfig, params: Any) -> None:
    """Raises BadInput where the arrays are not those of the encoder that encoder.json tells of."""
    mine, theirs = shapes(abstract(config)), shapes(params)
    if odd := sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)):
        raise BadInput(
            f'{path}: {odd[0]} is {mine.get(odd[0])} by encoder.json and {theirs.get(odd[0])} in the checkpoint; copy '
            'the folder again'
        )


def check_tokenizer(source: Pretrained, tokenizer: Tokenizer, key: str = 'config.data') -> None:
    """Raises BadInput where an id means another piece; pieces beyond the source's vocabulary are new."""
    check_pieces(source.tokenizer, tokenizer, source.folder, key)


def check_pieces(source: Tokenizer, tokenizer: Tokenizer, where: str, key: str) -> None:
    """As `check_tokenizer`."""
    theirs = {i: piece for piece, i in source.vocabulary.items()}
    for piece, i in sorted(tokenizer.vocabulary.items(), key=lambda entry: entry[1]):
        if theirs.get(i, piece) != piece:
            raise BadInput(
                f'id {i} is {piece!r} in {key} and {theirs[i]!r} in {where}; '
                f'{key}.tokenizer={where}, or that one with new pieces behind, would do'
            )


def token_head(params: dict[str, Any]) -> Any:
    """The one that predicts masked tokens from their own vectors, which may be SpanBERT's; None where there is none."""
    return params.get('heads_mlm') or params.get('heads_sbo', {}).get('token')


def start_from(source: Pretrained, params: Any, offered: dict[str, Any] | None = None) -> Any:
    """Fresh parameters with the source's in their place; rows of new pieces and heads that it lacks stay fresh.

    offered: in place of the source's heads.
    """
    fresh, vocabulary = jax.device_get(params), source.encoder.vocab_size
    offered = source.params if offered is None else offered
    if (token := token_head(offered)) is not None:
        offered = {'heads_mlm': token, 'heads_sbo': {'token': token}} | offered
    taken, new, used = list[str](), list[str](), set[int]()
    ids = lambda tree: {id(x) for x in jax.tree.leaves(tree)}

    def start(into: dict[str, Any], name: str, found: Any, title: str) -> None:
        if fits(into[name], found, vocabulary):
            into[name] = jax.tree.map(_over, into[name], found)
            taken.append(title)
            used.update(ids(found))
        elif isinstance(found, dict) and found.keys() < into[name].keys():  # a discriminator without its generator
            for part in into[name]:
                start(into[name], part, found.get(part), f'{title}/{part}')
        else:
            new.append(title)

    for name in fresh:
        start(fresh, name, offered.get(name), name)
    rows = len(fresh['encoder']['embeddings']['token']['embedding']) - source.encoder.vocab_size
    named = lambda names: ', '.join(names) or 'nothing'
    log.info(
        'from %s: %s; new: %s; %d new rows of the vocabulary; not used: %s', source.folder, named(taken), named(new),
        rows, named([name for name, tree in source.params.items() if not used & ids(tree)]),
    )  # fmt: skip
    return fresh


def fits(fresh: Any, found: Any, vocabulary: int) -> bool:
    """The same tree of arrays, up to more rows of the vocabulary than there were."""
    if found is None:
        return False
    mine, theirs = shapes({'': fresh}), shapes({'': found})
    grown = lambda a, b: a[1:] == b[1:] and b[:1] == (vocabulary,) <= a[:1]
    return mine.keys() == theirs.keys() and all(a == theirs[x] or grown(a, theirs[x]) for x, a in mine.items())


def _over(fresh, found):
    """The found rows, and fresh ones behind them where the vocabulary has grown."""
    found = np.asarray(found, fresh.dtype)
    return found if found.shape == fresh.shape else np.concatenate([found, fresh[len(found) :]])
