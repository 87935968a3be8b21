"""Weights to and from Hugging Face folders: config.json, model.safetensors and the tokenizer.

`bertx/hf/names.py` is the one table of names that reading and writing follow. Neither torch nor transformers is needed.
"""

import contextlib
import dataclasses
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
from tokenizers import processors

from bertx import heads, paths
from bertx.encoder import abstract, shapes
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, one_of
from bertx.hf import config as hf_config
from bertx.hf.names import FORMATS
from bertx.hf.tensors import WEIGHTS, Source, Tensors, ruled, slots
from bertx.objectives.electra import NormedHead
from bertx.tasks.heads import FEATURES, HeadSpec, TaskHead
from bertx.text.tokenizer import ROLES, Tokenizer

_ROOTS = {'pooler': 'pooler', 'electra': 'heads_electra/head', 'mlm_decoded': 'heads_mlm'}
# Ends of the names of heads that read more of a frozen encoder than its last layer (`Job.name_of`).
_FROZEN = tuple(f'_{name}' for name in FEATURES if name not in ('', 'last'))
About = dict[str, dict[str, Any]]  # head -> 'labels' of its classes, and its 'problem_type' as transformers calls it


def _root(head: str) -> str:
    """Where its parameters are."""
    return _ROOTS.get(head, f'heads_{head}')


def _shapes(module: nn.Module, *inputs: Any) -> dict[str, tuple[int, ...]]:
    return shapes(jax.eval_shape(module.init, jax.random.key(0), *inputs)['params'])


def _head_shapes(name: str, rules: dict[str, str], c: EncoderConfig, classes: int) -> dict[str, tuple[int, ...]]:
    x, table = jnp.zeros((1, 1, c.width)), jnp.zeros((c.vocab_size, c.table_width))
    if name in ('mlm', 'mlm_decoded'):
        return _shapes(heads.TokenHead(c), x, table)
    if name == 'electra':
        return _shapes(NormedHead(c) if 'norm' in rules else heads.ClassHead(c, 1), x)
    if name == 'pooler':
        return _shapes(heads.Pooler(c), x)
    return _shapes(TaskHead(c, HeadSpec(name if name in ('tag', 'qa') else 'classify', classes)), x)


def read(folder: str | os.PathLike) -> tuple[EncoderConfig, dict[str, Any]]:
    """The encoder, and its parameters and those of the heads: 'encoder', 'heads_mlm', 'heads_nsp', ..., as float32.

    'pooler' is one that no head uses; 'heads_electra' has the generator too where there is a folder generator/.
    Raises BadInput where a key of config.json, or a tensor that is missing, extra or misshaped, is in the way.
    """
    path = paths.local(folder)
    settings = hf_config.Settings.load(path / 'config.json')
    config, kind = hf_config.read(settings), settings.get('model_type')
    form = FORMATS[kind]
    if 'For' in settings.architecture:  # a multiple choice has the tensors of a classifier
        one_of(f'{settings.where}: architectures', settings.architecture, [name for name, _ in form.models])
    source = Source(path, form)
    if config.positions == 'relative' and source.has('@embeddings.position_embeddings'):
        config = dataclasses.replace(config, mask_decoder=True)
    if kind == 'albert' and config.table_width == config.width:
        source.drop_identity(form.encoder['project'])
    flat = source.read(slots(form.encoder, 'encoder', shapes(abstract(config)), config.heads))
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


def read_about(folder: str | os.PathLike, params: dict[str, Any]) -> About:
    """What config.json tells of the classes of the heads that `read` gave."""
    settings, found = hf_config.Settings.load(paths.local(folder) / 'config.json'), About()
    for name in ('classify', 'tag'):
        if f'heads_{name}' not in params:
            continue
        names = settings.get('id2label', {})
        if not isinstance(names, dict):
            raise BadInput(f'{settings.where}: id2label is {names!r}; a name for each class would do')
        labels = [names.get(str(i)) for i in range(len(params[f'heads_{name}']['classifier']['bias']))]
        own = {'labels': labels} if None not in labels and labels != _unnamed(len(labels)) else {}
        found[name] = own | ({'problem_type': kind} if (kind := settings.get('problem_type')) else {})
    return {name: own for name, own in found.items() if own}


def _unnamed(classes: int) -> list[str]:
    """As transformers calls classes without names."""
    return [f'LABEL_{i}' for i in range(classes)]


def read_tokenizer(folder: str | os.PathLike, config: EncoderConfig) -> Tokenizer:
    """Raises BadInput where there is neither a tokenizer.json nor a vocab.txt, or pieces without a row in the table."""
    path = paths.local(folder)
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
    folder: str | os.PathLike,
    config: EncoderConfig,
    params: dict[str, Any],
    tokenizer: Tokenizer,
    about: About | None = None,
) -> tuple[str, list[str]]:
    """A folder for `from_pretrained`, whole or not at all; params as `read` gives them, about as `read_about` does.

    Returns the class of transformers that holds the most of the heads together, and a line for each thing that is left
    out or changed. Raises BadInput for an encoder that transformers has not.
    """
    with whole_folder(folder) as partial:
        return _write(partial, config, params, tokenizer, dict(about or {}))


@contextlib.contextmanager
def whole_folder(folder: str | os.PathLike) -> Iterator[Path]:
    """A folder to write in, which gets its name when all is written. Raises BadInput where that is taken.

    What a killed writer has left is gone with the next one: two at a time must not have one name.
    """
    path = paths.local(folder)
    try:
        path = path.resolve()  # of a link, what it leads to
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise BadInput(f'{path} is there already; give a new or an empty folder')
        partial = path.parent / f'.{path.name}.partial'
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(parents=True)
            yield partial
            partial.replace(path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise BadInput(f'{path} cannot be written ({error}); a new folder elsewhere would do') from None


def _write(
    folder: Path, config: EncoderConfig, params: Any, tokenizer: Tokenizer, about: About
) -> tuple[str, list[str]]:
    c = config
    flat: Tensors = {path: np.asarray(x, np.float32) for path, x in flatten_dict(params, sep='/').items()}
    _checked(tokenizer, c)
    kind, model, chosen, notes = _choose(c, flat, about)
    form = FORMATS[kind]
    if kind == 'roberta' and c.position_offset != tokenizer.pad_id + 1:
        c = _shift_positions(c, flat, tokenizer.pad_id + 1)
        notes.append(
            f'positions begin in row {c.position_offset} of their table: {model} has them behind the id of [PAD]'
        )
    tensors: Tensors = {}
    for root, rules in [('encoder', form.encoder), *((_root(name), form.heads[name]) for name in chosen)]:
        own = {path.removeprefix(f'{root}/'): x.shape for path, x in flat.items() if path.startswith(f'{root}/')}
        for path in [path for path in own if not ruled(rules, path)]:
            del own[path]
            notes.append(f'{root}/{path} is left out: {model} has no such table')
        for slot in slots(rules, root, own, c.heads):
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
        told = about.get(name, {})
        labels = told.get('labels') or _unnamed(len(flat[f'heads_{name}/classifier/bias']))
        settings |= {'id2label': dict(enumerate(labels)), 'label2id': {label: i for i, label in enumerate(labels)}}
        settings |= {key: value for key, value in told.items() if key == 'problem_type'}
    if 'mlm_decoded' in chosen:
        settings['legacy'] = False
    (folder / 'config.json').write_text(json.dumps(settings, indent=2) + '\n')
    notes += _write_tokenizer(folder, c, tokenizer)
    return model, notes + _write_generator(folder / 'generator', config, params, tokenizer)


def _choose(c: EncoderConfig, flat: Tensors, about: About) -> tuple[str, str, list[str], list[str]]:
    """The model type, the class of transformers that holds the most of the heads, these, and what is to be said.

    A head that only goes by another name is given that name, in `flat` and `about`.
    """
    notes: list[str] = []

    def rename(old: str, new: str, what: str) -> None:
        for path in [path for path in flat if path.startswith(f'{old}/')]:
            flat[new + path.removeprefix(old)] = flat.pop(path)
        notes.append(f'{old} is written as {what}')

    if not any(path.startswith('heads_mlm/') for path in flat) and 'heads_sbo/token/bias' in flat:
        rename('heads_sbo/token', 'heads_mlm', 'the masked language model')
    given = {path.partition('/')[0].removeprefix('heads_') for path in flat} - {'encoder'}
    one_of('family', c.family, hf_config.MODEL_TYPES)
    kind = hf_config.MODEL_TYPES[c.family]
    if kind == 'bert' and 'electra' in given:
        kind = 'electra'  # the same encoder
    form = FORMATS[kind]

    def follows(name: str, rules: dict[str, str]) -> bool:
        paths = [path.removeprefix(f'{_root(name)}/') for path in flat if path.startswith(f'{_root(name)}/')]
        return bool(paths) and not name.endswith(_FROZEN) and all(ruled(rules, path) for path in paths)

    spelled = {'mlm_decoded' if name == 'mlm' and c.mask_decoder else name for name in given}
    fits = {name for name in spelled if follows(name, form.heads.get(name, {}))}
    if c.activation != 'gelu':
        fits -= set(form.always_gelu)
    required = lambda names: {name for name in names if name[-1] != '?'}
    most = lambda: max((x for x in form.models if required(x[1]) <= fits), key=lambda x: len(required(x[1])))
    if not required(most()[1]) and 'classify' not in given:
        paired = (name for name in sorted(given) if f'heads_{name}/pooler/dense/kernel' in flat)
        for name in [name for name in paired if follows(name, form.heads['classify'])][:1]:
            rename(f'heads_{name}', 'heads_classify', 'a classifier')
            about['classify'] = about.pop(name, {})
            given = given - {name} | {'classify'}
            fits.add('classify')
    model, names = most()
    chosen = [name for name in form.heads if name in fits and (name in names or f'{name}?' in names)]
    for name in sorted(given - set(chosen)):
        if name == 'mlm' and 'mlm_decoded' in chosen:
            notes.append(f'heads_mlm reads the mask decoder, which transformers has not: {model} gives other logits')
            continue
        if name.endswith(_FROZEN):
            notes.append(f'{_root(name)} is left out: no class of transformers has a head on such states')
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
        model, notes = _write(folder, config, {'encoder': encoder, 'heads_mlm': own['token']}, tokenizer, {})
    except BadInput as error:  # a tied generator has narrow embeddings, which few families know
        shutil.rmtree(folder)
        return [f'heads_electra/generator is left out: {error}']
    return [f'generator/ is a {model}', *(f'generator/: {note}' for note in notes)]


def _write_tokenizer(folder: Path, c: EncoderConfig, tokenizer: Tokenizer) -> list[str]:
    """bertx puts [CLS] and [SEP] around texts itself; others are told by the file to do the same."""
    tokenizer.save(folder)
    pieces, notes = {i: piece for piece, i in tokenizer.vocabulary.items()}, list[str]()
    found: Any = tokenizers.Tokenizer.from_str(tokenizer.text)
    if not _frames(found, c, tokenizer):
        cls, sep = ((pieces[i], i) for i in (tokenizer.cls_id, tokenizer.sep_id))
        old, new = found.post_processor, processors.BertProcessing(sep, cls)
        if old and found.num_special_tokens_to_add(is_pair=True):
            trim = json.loads(tokenizer.text)['post_processor'].get('trim_offsets')
            old = None if trim is None else processors.ByteLevel(trim_offsets=trim)
            notes.append(
                f'tokenizer.json: a pair is {cls[0]} A {sep[0]} B {sep[0]}, as bertx makes it; it was not before'
            )
        found.post_processor = processors.Sequence([old, new]) if old else new
        (folder / 'tokenizer.json').write_text(found.to_str(pretty=True), 'utf-8')
    ids = {name: getattr(tokenizer, f'{name}_id') for name in ROLES}
    settings = {
        'tokenizer_class': 'PreTrainedTokenizerFast',
        'model_max_length': c.max_positions,
        'model_input_names': ['input_ids', *(['token_type_ids'] if c.type_vocab > 1 else []), 'attention_mask'],
        **{f'{name}_token': pieces[i] for name, i in ids.items() if i is not None},
    }
    (folder / 'tokenizer_config.json').write_text(json.dumps(settings, indent=2) + '\n')
    return notes


def _frames(found: Any, c: EncoderConfig, tokenizer: Tokenizer) -> bool:
    """Whether it puts [CLS] and [SEP] around one and two texts, and types, as bertx does."""
    a, b = (found.encode(text, add_special_tokens=False).ids for text in 'ab')
    first, second, pair = [tokenizer.cls_id, *a, tokenizer.sep_id], [*b, tokenizer.sep_id], found.encode('a', 'b')
    types = [0] * len(first) + [1] * len(second)
    return (found.encode('a').ids, pair.ids) == (first, first + second) and (c.type_vocab < 2 or pair.type_ids == types)
