"""Weights to and from Hugging Face folders: config.json, model.safetensors and the tokenizer.

`bertx/hf/names.py` is the one table of names that reading and writing follow. Neither torch nor transformers is needed.
"""

import contextlib
import dataclasses
import functools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import tokenizers
from flax.traverse_util import flatten_dict, unflatten_dict
from safetensors.numpy import save_file

from bertx import heads
from bertx.encoder import Encoder
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, one_of
from bertx.hf import config as hf_config
from bertx.hf.names import FORMATS
from bertx.hf.tensors import WEIGHTS, Source, Tensors, ruled, slots
from bertx.objectives.electra import NormedHead
from bertx.text.tokenizer import ROLES, Tokenizer
from bertx.types import View

_ROOTS = {'pooler': 'pooler', 'electra': 'heads_electra/head', 'mlm_decoded': 'heads_mlm'}


def _root(head: str) -> str:
    """Where its parameters are."""
    return _ROOTS.get(head, f'heads_{head}')


def _shapes(module: nn.Module, *inputs: Any) -> dict[str, tuple[int, ...]]:
    params = jax.eval_shape(module.init, jax.random.key(0), *inputs)['params']
    return {path: x.shape for path, x in flatten_dict(params, sep='/').items()}


@functools.lru_cache(maxsize=8)
def _encoder_shapes(c: EncoderConfig) -> dict[str, tuple[int, ...]]:
    row = jnp.zeros((1, 1), jnp.int32)
    return _shapes(Encoder(c), View(row, row, row, row))


def _head_shapes(name: str, rules: dict[str, str], c: EncoderConfig, classes: int) -> dict[str, tuple[int, ...]]:
    x, table = jnp.zeros((1, 1, c.width)), jnp.zeros((c.vocab_size, c.table_width))
    if name in ('mlm', 'mlm_decoded'):
        return _shapes(heads.TokenHead(c), x, table)
    if name == 'electra':
        return _shapes(NormedHead(c) if 'norm' in rules else heads.ClassHead(c, 1), x)
    if name == 'pooler':
        return _shapes(heads.Pooler(c), x)
    return _shapes(heads.TagHead(c, classes) if name in ('tag', 'qa') else heads.PairHead(c, classes), x)


def read(folder: str | os.PathLike) -> tuple[EncoderConfig, dict[str, Any]]:
    """The encoder, and its parameters and those of the heads: 'encoder', 'heads_mlm', 'heads_nsp', ..., as float32.

    'pooler' is one that no head uses; 'heads_electra' has the generator too where there is a folder generator/.
    Raises BadInput where a key of config.json, or a tensor that is missing, extra or misshaped, is in the way.
    """
    path = Path(folder).expanduser()
    settings = hf_config.Settings.load(path / 'config.json')
    config, kind = hf_config.read(settings), settings.get('model_type')
    form = FORMATS[kind]
    source = Source(path, form)
    if config.positions == 'relative' and source.has('@embeddings.position_embeddings'):
        config = dataclasses.replace(config, mask_decoder=True)
    if kind == 'albert' and config.table_width == config.width:
        source.drop_identity(form.encoder['project'])
    flat = source.read(slots(form.encoder, 'encoder', _encoder_shapes(config), config.heads))
    named = max(
        ([name for name in names if name[-1] != '?'] for model, names in form.models if model == settings.architecture),
        key=lambda names: sum(source.has(rule) for name in names for rule in form.heads[name].values()),
        default=[],
    )
    for name in sorted(form.heads, key=lambda name: name not in named):
        rules = form.heads[name]
        if name not in named and not source.holds(rules):
            continue
        if name == 'classify':
            settings.must('classifier_pooling', 'cls')
        if name in form.always_gelu and config.activation != 'gelu':
            raise BadInput(
                f'{path}: its encoder has {config.activation} and its masked language model gelu; bertx has one '
                'activation for both'
            )
        classes = 2 if name == 'qa' or 'classifier' not in rules else source.rows(rules['classifier'], 2)
        flat |= source.read(slots(rules, _root(name), _head_shapes(name, rules, config, classes), config.heads))
    source.check_all_read(kind)
    params = unflatten_dict(flat, sep='/')
    if (path / 'generator').is_dir():
        params.setdefault('heads_electra', {})['generator'] = _read_generator(path / 'generator', params)
    return config, params


def _read_generator(path: Path, params: dict[str, Any]) -> dict[str, Any]:
    _, own = read(path)
    if 'heads_mlm' not in own:
        raise BadInput(f'{path} has no masked language model; a generator is one')
    ours, theirs = (flatten_dict(x['encoder']['embeddings'], sep='/') for x in (params, own))
    if ours.keys() == theirs.keys() and all(np.array_equal(x, theirs[name]) for name, x in ours.items()):
        del own['encoder']['embeddings']  # tied
    return {'encoder': own['encoder'], 'token': own['heads_mlm']}


def read_tokenizer(folder: str | os.PathLike, config: EncoderConfig) -> Tokenizer:
    """Raises BadInput where there is neither a tokenizer.json nor a vocab.txt, or pieces without a row in the table."""
    path = Path(folder).expanduser()
    if not any((path / name).is_file() for name in ('tokenizer.json', 'vocab.txt')):
        raise BadInput(
            f"{path} has neither tokenizer.json nor vocab.txt; transformers' AutoTokenizer, saved, writes the former"
        )
    return _checked(Tokenizer.load(path), config)


def _checked(tokenizer: Tokenizer, config: EncoderConfig) -> Tokenizer:
    if tokenizer.vocab_size > config.vocab_size:
        raise BadInput(
            f'the tokenizer has {tokenizer.vocab_size} pieces, the encoder has rows for {config.vocab_size}; the '
            'tokenizer that it was trained with would do'
        )
    return tokenizer


def write(
    folder: str | os.PathLike, config: EncoderConfig, params: dict[str, Any], tokenizer: Tokenizer
) -> tuple[str, list[str]]:
    """A folder for `from_pretrained`, whole or not at all; params as `read` gives them.

    Returns the class of transformers that holds the most of the heads together, and a line for each thing that is left
    out or changed. Raises BadInput for an encoder that transformers has not.
    """
    with whole_folder(folder) as partial:
        return _write(partial, config, params, tokenizer)


@contextlib.contextmanager
def whole_folder(folder: str | os.PathLike) -> Iterator[Path]:
    """A folder to write in, which gets its name when all is written. Raises BadInput where that is taken."""
    path = Path(folder).expanduser().absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f'{path} is there already; give a new or an empty folder')
    partial = path.parent / f'.{path.name}.partial-{os.getpid()}'
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise BadInput(f'{path} cannot be written ({error}); give another folder') from None
    try:
        yield partial
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(folder: Path, config: EncoderConfig, params: Any, tokenizer: Tokenizer) -> tuple[str, list[str]]:
    c = config
    flat: Tensors = {path: np.asarray(x, np.float32) for path, x in flatten_dict(params, sep='/').items()}
    _checked(tokenizer, c)
    kind, model, chosen, notes = _choose(c, flat)
    form = FORMATS[kind]
    if kind == 'roberta' and c.position_offset != tokenizer.pad_id + 1:
        c = _shift_positions(c, flat, tokenizer.pad_id + 1)
        notes.append(
            f'positions begin in row {c.position_offset} of their table: {model} has them behind the id of [PAD]'
        )
    tensors: Tensors = {}
    for root, rules in [('encoder', form.encoder), *((_root(name), form.heads[name]) for name in chosen)]:
        shapes = {path.removeprefix(f'{root}/'): x.shape for path, x in flat.items() if path.startswith(f'{root}/')}
        for path in [path for path in shapes if not ruled(rules, path)]:
            del shapes[path]
            notes.append(f'{root}/{path} is left out: {model} has no such table')
        for slot in slots(rules, root, shapes, c.heads):
            x = flat[slot.path]
            tensor = tensors.setdefault(slot.name, np.zeros(slot.tensor, np.float32))
            slot.put(tensor, x if slot.layer is None else x[slot.layer])
    if kind == 'albert' and c.table_width == c.width:  # transformers has a layer between these too
        tensors[form.encoder['project'] + '.weight'] = np.eye(c.width, dtype=np.float32)
        tensors[form.encoder['project'] + '.bias'] = np.zeros(c.width, np.float32)
    prefix = f'{form.prefix}.' if any(not name.startswith('@') for name in tensors) else ''
    named = {name.replace('@', prefix): np.ascontiguousarray(x) for name, x in tensors.items()}
    save_file(named, folder / WEIGHTS, metadata={'format': 'pt'})  # transformers refuses a file that does not say so
    pooled = any(path.startswith('pooler') for name in chosen for path in form.heads[name]) or 'pooler' in chosen
    settings = {'architectures': [model], **hf_config.write(c, kind, tokenizer.pad_id, pooled)}
    settings |= dict.fromkeys(('bos_token_id', 'cls_token_id'), tokenizer.cls_id)
    settings |= dict.fromkeys(('eos_token_id', 'sep_token_id'), tokenizer.sep_id)
    for name in {'classify', 'tag'} & set(chosen):
        labels = [f'LABEL_{i}' for i in range(len(flat[f'heads_{name}/classifier/bias']))]
        settings |= {'id2label': dict(enumerate(labels)), 'label2id': {label: i for i, label in enumerate(labels)}}
    if 'mlm_decoded' in chosen:
        settings['legacy'] = False
    (folder / 'config.json').write_text(json.dumps(settings, indent=2) + '\n')
    _write_tokenizer(folder, c, tokenizer)
    return model, notes + _write_generator(folder / 'generator', config, params, tokenizer)


def _choose(c: EncoderConfig, flat: Tensors) -> tuple[str, str, list[str], list[str]]:
    """The model type, the class of transformers that holds the most of the heads, these, and what is to be said."""
    given = {path.partition('/')[0].removeprefix('heads_') for path in flat} - {'encoder'}
    one_of('family', c.family, hf_config.MODEL_TYPES)
    kind = hf_config.MODEL_TYPES[c.family]
    if kind == 'bert' and 'electra' in given:
        kind = 'electra'  # the same encoder
    form = FORMATS[kind]
    fits: set[str] = set()
    notes: list[str] = []
    for name in given:
        spelled = 'mlm_decoded' if name == 'mlm' and c.mask_decoder else name
        paths = [path.removeprefix(f'{_root(spelled)}/') for path in flat if path.startswith(f'{_root(spelled)}/')]
        rules = form.heads.get(spelled, {})
        if paths and all(ruled(rules, path) for path in paths):
            fits.add(spelled)
    if c.activation != 'gelu':
        fits -= set(form.always_gelu)
    required = lambda names: {name for name in names if name[-1] != '?'}
    models = [(model, names) for model, names in form.models if required(names) <= fits]
    model, names = max(models, key=lambda x: len(required(x[1])))
    pairs = sorted(name for name in given - fits if f'heads_{name}/pooler/dense/kernel' in flat)
    if not required(names) and pairs:
        root = f'heads_{pairs[0]}/'
        for path in [path for path in flat if path.startswith(root)]:
            flat[f'heads_classify/{path.removeprefix(root)}'] = flat.pop(path)
        kind, model, chosen, notes = _choose(c, flat)
        return kind, model, chosen, [f'heads_{pairs[0]} is written as a classifier', *notes]
    chosen = [name for name in form.heads if name in fits and (name in names or f'{name}?' in names)]
    for name in sorted(given - set(chosen)):
        if name == 'mlm' and 'mlm_decoded' in chosen:
            notes.append(f'heads_mlm reads the mask decoder, which transformers has not: {model} gives other logits')
            continue
        alone = [other for other, names in form.models if required(names) == {name} and name in fits]
        hint = f'; alone it makes a {alone[0]}' if alone else ''
        notes.append(f'{name if name == "pooler" else _root(name)} is left out: {model} has no place for it{hint}')
    if kind.startswith('deberta') and 'electra' in chosen:
        notes.append('heads_electra/head is there as mask_predictions, which no class of transformers reads')
    return kind, model, chosen, notes


def _shift_positions(c: EncoderConfig, flat: Tensors, offset: int) -> EncoderConfig:
    """The table of positions with another number of unused rows before them."""
    path = 'encoder/embeddings/position/embedding'
    unused, used = np.split(flat[path], [c.position_offset])
    rows = np.zeros((offset, unused.shape[1]), np.float32)
    rows[max(0, offset - len(unused)) :] = unused[max(0, len(unused) - offset) :]
    flat[path] = np.concatenate([rows, used])
    return dataclasses.replace(c, position_offset=offset)


def _write_generator(folder: Path, c: EncoderConfig, params: Any, tokenizer: Tokenizer) -> list[str]:
    """ELECTRA's second network, a masked language model. Its sizes are those of its arrays."""
    own = params.get('heads_electra', {}).get('generator')
    if own is None:
        return []
    if c.groups:
        return ['heads_electra/generator is left out: how often its layers are repeated is not in the weights']
    layers, width, count, _ = own['encoder']['layers']['attention']['query']['kernel'].shape
    table_width = own['token']['transform']['kernel'].shape[1]
    config = dataclasses.replace(
        c, layers=layers, width=width, heads=count, mlp_width=own['encoder']['layers']['mlp_out']['kernel'].shape[1],
        embedding_width=table_width if table_width != width else 0,
        mask_decoder=c.mask_decoder and table_width == width,
        family='electra' if hf_config.MODEL_TYPES[c.family] == 'bert' else c.family,
    )  # fmt: skip
    encoder = {'embeddings': params['encoder']['embeddings']} | own['encoder']
    folder.mkdir()
    try:
        model, notes = _write(folder, config, {'encoder': encoder, 'heads_mlm': own['token']}, tokenizer)
    except BadInput as error:  # a tied generator has narrow embeddings, which few families know
        shutil.rmtree(folder)
        return [f'heads_electra/generator is left out: {error}']
    return [f'generator/ is a {model}', *(f'generator/: {note}' for note in notes)]


def _write_tokenizer(folder: Path, c: EncoderConfig, tokenizer: Tokenizer) -> None:
    tokenizer.save(folder)
    content = json.loads(tokenizer.text)
    pieces = {i: piece for piece, i in tokenizer.vocabulary.items()}
    cls, sep = ((pieces[i], i) for i in (tokenizer.cls_id, tokenizer.sep_id))
    if content.get('post_processor') is None:  # bertx adds [CLS] and [SEP] itself, others need to be told
        found = tokenizers.Tokenizer.from_str(tokenizer.text)
        found.post_processor = tokenizers.processors.BertProcessing(sep, cls)
        (folder / 'tokenizer.json').write_text(found.to_str(pretty=True), 'utf-8')
    ids = {name: getattr(tokenizer, f'{name}_id') for name in ROLES}
    settings = {
        'tokenizer_class': 'PreTrainedTokenizerFast',
        'model_max_length': c.max_positions,
        'model_input_names': ['input_ids', *(['token_type_ids'] if c.type_vocab > 1 else []), 'attention_mask'],
        **{f'{name}_token': pieces[i] for name, i in ids.items() if i is not None},
    }
    (folder / 'tokenizer_config.json').write_text(json.dumps(settings, indent=2) + '\n')
