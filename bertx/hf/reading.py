"""Encoder, heads and tokenizer out of a Hugging Face folder."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bertx import heads, paths
from bertx.encoder import abstract, shapes
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, one_of
from bertx.hf import config as hf_config
from bertx.hf.names import FORMATS
from bertx.hf.tensors import Source, slots
from bertx.objectives.electra import NormedHead
from bertx.tasks.heads import FEATURES, HeadSpec, TaskHead
from bertx.text.tokenizer import Tokenizer

ROOTS = {'pooler': 'pooler', 'electra': 'heads_electra/head', 'mlm_decoded': 'heads_mlm'}
# Ends of the names of heads that read more of a frozen encoder than its last layer (`Job.name_of`).
FROZEN = tuple(f'_{name}' for name in FEATURES if name not in ('', 'last'))
About = dict[str, dict[str, Any]]  # head -> 'labels' of its classes, and its 'problem_type' as transformers calls it


def root_of(head: str) -> str:
    """Where its parameters are."""
    return ROOTS.get(head, f'heads_{head}')


def _shapes(module: nn.Module, *inputs: Any) -> dict[str, tuple[int, ...]]:
    return shapes(jax.eval_shape(module.init, jax.random.key(0), *inputs)['params'])


def head_shapes(name: str, rules: dict[str, str], c: EncoderConfig, classes: int) -> dict[str, tuple[int, ...]]:
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
        flat |= source.read(slots(rules, root_of(name), head_shapes(name, rules, config, classes), config.heads))
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
        own = {'labels': labels} if None not in labels and labels != unnamed(len(labels)) else {}
        found[name] = own | ({'problem_type': kind} if (kind := settings.get('problem_type')) else {})
    return {name: own for name, own in found.items() if own}


def unnamed(classes: int) -> list[str]:
    """As transformers calls classes without names."""
    return [f'LABEL_{i}' for i in range(classes)]


def read_tokenizer(folder: str | os.PathLike, config: EncoderConfig) -> Tokenizer:
    """Raises BadInput where there is neither a tokenizer.json nor a vocab.txt, or pieces without a row in the table."""
    path = paths.local(folder)
    if not any((path / name).is_file() for name in ('tokenizer.json', 'vocab.txt')):
        raise BadInput(
            f"{path} has neither tokenizer.json nor vocab.txt; transformers' AutoTokenizer, saved, writes the former"
        )
    return checked(Tokenizer.load(path), config)


def checked(tokenizer: Tokenizer, config: EncoderConfig) -> Tokenizer:
    if tokenizer.vocab_size > config.vocab_size:
        raise BadInput(
            f'the tokenizer has {tokenizer.vocab_size} pieces, the encoder has rows for {config.vocab_size}; the '
            'tokenizer that it was trained with would do'
        )
    return tokenizer
