"""Encoder, heads and tokenizer into a folder that transformers reads."""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from flax.traverse_util import flatten_dict
from safetensors.numpy import save_file
from tokenizers import processors

from bertx import paths
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, one_of
from bertx.hf import config as hf_config
from bertx.hf.names import FORMATS
from bertx.hf.reading import FROZEN, About, checked, root_of, unnamed
from bertx.hf.tensors import WEIGHTS, Tensors, ruled, slots
from bertx.text.tokenizer import ROLES, Tokenizer


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
    checked(tokenizer, c)
    kind, model, chosen, notes = _choose(c, flat, about)
    form = FORMATS[kind]
    if kind == 'roberta' and c.position_offset != tokenizer.pad_id + 1:
        c = _shift_positions(c, flat, tokenizer.pad_id + 1)
        notes.append(
            f'positions begin in row {c.position_offset} of their table: {model} has them behind the id of [PAD]'
        )
    tensors: Tensors = {}
    for root, rules in [('encoder', form.encoder), *((root_of(name), form.heads[name]) for name in chosen)]:
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
        labels = told.get('labels') or unnamed(len(flat[f'heads_{name}/classifier/bias']))
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

    # As its run tells; else its name does.
    frozen = lambda name: about.get(name, {}).get('features', name.endswith(FROZEN))

    def follows(name: str, rules: dict[str, str]) -> bool:
        paths = [path.removeprefix(f'{root_of(name)}/') for path in flat if path.startswith(f'{root_of(name)}/')]
        return bool(paths) and not frozen(name) and all(ruled(rules, path) for path in paths)

    spelled = {'mlm_decoded' if name == 'mlm' and c.mask_decoder else name for name in given}
    fits = {name for name in spelled if follows(name, form.heads.get(name, {}))}
    if c.activation != 'gelu':
        fits -= set(form.always_gelu)
    required = lambda names: {name for name in names if name[-1] != '?'}
    most = lambda: max((x for x in form.models if required(x[1]) <= fits), key=lambda x: len(required(x[1])))
    if not required(most()[1]) and 'classify' not in given:
        paired = (
            name
            for name in sorted(given)
            if f'heads_{name}/pooler/dense/kernel' in flat and about.get(name, {}).get('kind') not in ('tag', 'qa')
        )
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
        if frozen(name):
            notes.append(f'{root_of(name)} is left out: no class of transformers has a head on such states')
            continue
        alone = [other for other, names in form.models if required(names) == {name} and name in fits]
        hint = f'; alone it makes a {alone[0]}' if alone else ''
        notes.append(f'{name if name == "pooler" else root_of(name)} is left out: {model} has no place for it{hint}')
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
