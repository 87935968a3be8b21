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

from bertx.checkpoint import Trained
from bertx.encoder import Encoder
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput
from bertx.text.tokenizer import Tokenizer
from bertx.types import View

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, eq=False)
class Pretrained:
    """An encoder and the heads that were trained on it."""

    folder: str
    encoder: EncoderConfig
    params: dict[str, Any]  # 'encoder', 'heads_mlm', ...: numpy arrays
    tokenizer: Tokenizer

    @functools.cached_property
    def content(self) -> str:
        """Hash of all parameters."""
        found = hashlib.sha256(json.dumps(dataclasses.asdict(self.encoder), sort_keys=True).encode())
        for path, x in jax.tree_util.tree_leaves_with_path(self.params):
            found.update(f'{jax.tree_util.keystr(path)} {x.dtype} {x.shape}'.encode())
            found.update(np.ascontiguousarray(x).tobytes())
        return found.hexdigest()

    @property
    def heads(self) -> list[str]:
        return sorted(name.removeprefix('heads_') for name in self.params if name != 'encoder')

    @staticmethod
    def of_run(folder: str, step: int | None = None) -> 'Pretrained':
        """step: of a checkpoint; None: the newest."""
        return _own(epath.Path(folder), step)

    @staticmethod
    @functools.lru_cache(maxsize=4)
    def load(folder: str) -> 'Pretrained':
        """Raises BadInput for a folder that holds no trained weights."""
        path = epath.Path(folder)
        if (path / 'encoder.json').exists():
            return Pretrained.of_run(folder)
        if (path / 'config.json').exists() and 'model_type' in _json(path / 'config.json'):
            from bertx import hf

            encoder, params = hf.read(folder)
            return Pretrained(folder, encoder, params, hf.read_tokenizer(folder, encoder))
        raise BadInput(
            f'{folder} holds no weights; a run (with encoder.json and checkpoints/) or a Hugging Face folder (with '
            'config.json and model.safetensors) would do'
        )


def _json(path: epath.Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
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
        config = EncoderConfig(**_json(path / 'encoder.json'))
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
    return Pretrained(str(path), config, params, Tokenizer(file.read_text(), str(file)))


def _check_shapes(path: epath.Path, config: EncoderConfig, params: Any) -> None:
    """Raises BadInput where the arrays are not those of the encoder that encoder.json tells of."""
    row = View(*(jax.ShapeDtypeStruct((1, 2), np.int32) for _ in range(4)))
    wanted = jax.eval_shape(Encoder(config).init, jax.random.key(0), row)['params']
    flat = lambda tree: {jax.tree_util.keystr(key): x.shape for key, x in jax.tree_util.tree_leaves_with_path(tree)}
    mine, theirs = flat(wanted), flat(params)
    if odd := sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name)):
        raise BadInput(
            f'{path}: {odd[0]} is {mine.get(odd[0])} by encoder.json and {theirs.get(odd[0])} in the checkpoint; copy '
            'the folder again'
        )


def check_tokenizer(source: Pretrained, tokenizer: Tokenizer) -> None:
    """Raises BadInput where an id means another piece; pieces beyond the source's vocabulary are new."""
    theirs = {i: piece for piece, i in source.tokenizer.vocabulary.items()}
    for piece, i in tokenizer.vocabulary.items():
        if theirs.get(i, piece) != piece:
            raise BadInput(
                f'id {i} is {piece!r} in config.data and {theirs[i]!r} in {source.folder}; '
                f'config.data.tokenizer={source.folder}, or that one with new pieces behind, would do'
            )


def start_from(source: Pretrained, params: Any) -> Any:
    """Fresh parameters with the source's in their place; rows of new pieces and heads that it lacks stay fresh."""
    fresh, vocabulary = jax.device_get(params), source.encoder.vocab_size
    taken, new = list[str](), list[str]()

    def start(into: dict[str, Any], name: str, found: Any, title: str) -> None:
        if _fits(into[name], found, vocabulary):
            into[name] = jax.tree.map(_over, into[name], found)
            taken.append(title)
        elif isinstance(found, dict) and found.keys() < into[name].keys():  # a discriminator without its generator
            for part in into[name]:
                start(into[name], part, found.get(part), f'{title}/{part}')
        else:
            new.append(title)

    for name in fresh:
        start(fresh, name, source.params.get(name), name)
    rows = len(fresh['encoder']['embeddings']['token']['embedding']) - source.encoder.vocab_size
    log.info(
        'from %s: %s; new: %s; %d new rows of the vocabulary', source.folder, ', '.join(taken) or 'nothing',
        ', '.join(new) or 'nothing', rows,
    )  # fmt: skip
    return fresh


def _fits(fresh: Any, found: Any, vocabulary: int) -> bool:
    """The same tree of arrays, up to more rows of the vocabulary than there were."""
    structure: Any = jax.tree.structure
    if found is None or structure(fresh) != structure(found):
        return False
    pairs = zip(jax.tree.leaves(fresh), jax.tree.leaves(found), strict=True)
    grown = lambda a, b: a.shape[1:] == b.shape[1:] and len(b) == vocabulary <= len(a)
    return all(a.shape == b.shape or a.ndim and grown(a, b) for a, b in pairs)


def _over(fresh, found):
    """The found rows, and fresh ones behind them where the vocabulary has grown."""
    found = np.asarray(found, fresh.dtype)
    return found if found.shape == fresh.shape else np.concatenate([found, fresh[len(found) :]])
