"""From a ConfigDict to the typed parts of a run; everything is checked here, before any compilation."""

import dataclasses
import hashlib
import json
import math
from typing import Any

import jax
import numpy as np

from bertx import NUMERICS_VERSION, optim
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, at_least, one_of
from bertx.families import encoder_of, sizes
from bertx.model import Objectives
from bertx.objectives import base
from bertx.optim import OptimizerOptions
from bertx.pretrained import Pretrained, check_tokenizer
from bertx.text import units, words
from bertx.text.prepare import PrepareOptions
from bertx.text.rows import RowOptions, options_for

# Keys that change how fast a run goes or how much it says, not the numbers it ends with: left out of its hash.
EXECUTION = (
    'encoder.unroll', 'encoder.remat', 'train.devices', 'train.fsdp', 'train.parallel', 'train.log_every',
    'train.checkpoint_every', 'train.keep_checkpoints',
)  # fmt: skip

# Of the encoder, what a config with init_from leaves to the weights.
SHAPES = (
    'layers', 'width', 'heads', 'mlp_width', 'embedding_width', 'groups', 'max_positions', 'positions', 'mask_decoder'
)  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One run, ready to be compiled."""

    config: dict[str, Any]  # resolved, plain
    encoder: EncoderConfig
    objectives: Objectives  # numeric fields are float32 arrays
    optimizer: OptimizerOptions
    hyper: dict[str, np.float32]
    rows: RowOptions
    fingerprint: str  # of the token store
    source: Pretrained | None = None  # what the parameters start from
    second: 'Run | None' = None  # the same one with the rows and batches of its second phase

    @property
    def phases(self) -> list[tuple['Run', int, int]]:
        """(run, first step, last step + 1): one or two, with the same parameters, optimizer and schedule."""
        steps = self.train['steps']
        if self.second is None:
            return [(self, 0, steps)]
        change = steps - self.train['second']['steps']
        return [(self, 0, change), (self.second, change, steps)]

    def after(self, step: int) -> dict[str, float]:
        """What has gone into the run by then: tokens (slots of rows), and FLOPs."""
        steps = [(run, min(max(step - first, 0), end - first)) for run, first, end in self.phases]
        return {
            'tokens': sum(n * run.tokens_per_step for run, n in steps),
            'flops': sum(n * run.flops_per_step for run, n in steps),
        }

    @property
    def seed(self) -> int:
        return self.config['seed']

    @property
    def train(self) -> dict[str, Any]:
        return self.config['train']

    @property
    def hash(self) -> str:
        """Eight hex digits over all that the numbers depend on."""
        numbers = {key: value for key, value in self.config.items() if key not in ('data', 'tune', 'budget')}
        for path in EXECUTION:
            section, key = path.split('.')
            numbers[section] = {name: value for name, value in numbers[section].items() if name != key}
        t = self.train
        if t['parallel'] == 'pmap' and (t['dropout'] or t['attention_dropout']):  # each device draws its own
            numbers['pmap'] = t['devices'] or jax.device_count()
        numbers['rows'] = numbers['rows'] | {'units': units.content(self.rows.units)}
        read = [found for objective in self.objectives.values() if (found := objective.content())]
        # Of learning and of judging; those of bertx have NUMERICS_VERSION.
        read += [base.source(name) for name in (*self.objectives, *self.config['evaluation']['tasks']) if ':' in name]
        if self.source:
            numbers['init_from'] = self.source.content
        content = json.dumps([NUMERICS_VERSION, self.fingerprint, numbers, *read], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    @property
    def tokens_per_step(self) -> int:
        return self.train['batch'] * self.rows.length

    @property
    def flops_per_step(self) -> float:
        """Forward and backward, three times the forward: the blocks, and what the objectives add."""
        batch, length, e = self.train['batch'], self.rows.length, self.encoder
        more = sum(o.flops(e, length) for o in self.objectives.values())
        return 3.0 * batch * (length * e.flops_per_token(length) + more)


def plain(config) -> dict[str, Any]:
    """The config as JSON can hold it."""
    return json.loads(config.to_json_best_effort() if hasattr(config, 'to_json_best_effort') else json.dumps(config))


def flat(tree: dict[str, Any], prefix: str = '') -> dict[str, Any]:
    """A tree of dicts as one dict with dotted keys; an empty section stays."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f'{prefix}{key}.') if isinstance(value, dict) and value else {prefix + key: value}
    return found


def prepare_options(config) -> PrepareOptions:
    options = {key: value for key, value in config.data.items() if key != 'store'}
    if config.init_from and not config.data.store:  # the ids must mean what they meant to the weights
        options['tokenizer'] = options['tokenizer'] or config.init_from
    return PrepareOptions(**options)


def encoder_config(config, vocab_size: int, source: EncoderConfig | None = None) -> EncoderConfig:
    """The family's figures at the size, with those that the config sets in their place. source: has them instead."""
    e = dict(config['encoder'])
    for name, value in e.items():
        if isinstance(value, int | float):
            at_least(0, f'config.encoder.{name}', value)
    if source:
        found = dataclasses.replace(source, vocab_size=max(vocab_size, source.vocab_size))
        for name in SHAPES:
            if e[name] and e[name] != getattr(found, name):
                raise BadInput(
                    f'config.encoder.{name} is {e[name]}, and {getattr(found, name)} in config.init_from; leave it out'
                )
        settings = {name: e[name] for name in ('precision', 'attention', 'remat')}
    else:
        family, size = e.pop('family'), e.pop('size')
        found = encoder_of(family, size, vocab_size, **{name: value for name, value in e.items() if value})
        settings = {}
        if e['width'] and not e['mlp_width']:  # as many times as wide as the size has it
            settings['mlp_width'] = found.mlp_width * found.width // sizes(family)[size][1]
    settings['std'] = e['std'] or 0.02 * (768 / found.width) ** 0.5
    settings['unroll'] = e['unroll'] or default_unroll(found.layers)
    settings |= {name: e[name] for name in ('place_gain', 'value_gain')}
    found = dataclasses.replace(found, **settings)
    check_encoder(found)
    if config['rows']['length'] > found.max_positions:
        raise BadInput(
            f'a row length of {config["rows"]["length"]} exceeds config.encoder.max_positions {found.max_positions}'
        )
    return found


def default_unroll(layers: int) -> int:
    """All layers up to 12, which is fastest on CPU; a loop on TPUs, whose compiler takes minutes for more."""
    return 1 if jax.default_backend() == 'tpu' else min(layers, 12)


def check_encoder(c: EncoderConfig) -> None:
    """Raises BadInput for settings that do not go together."""
    if c.width % c.heads:
        raise BadInput(f'config.encoder: width {c.width} is no multiple of heads {c.heads}')
    if c.groups and c.layers % c.groups:
        raise BadInput(f'config.encoder: layers {c.layers} is no multiple of groups {c.groups}')
    if c.positions == 'rotary' and c.width // c.heads % 2:
        raise BadInput(f'config.encoder: width {c.width} over heads {c.heads} is odd; rotation turns pairs of features')
    if c.mask_decoder and c.table_width != c.width:
        raise BadInput('config.encoder.mask_decoder adds positions to states: embedding_width must be 0')
    if c.precision not in ('float32', 'bfloat16'):
        raise BadInput(f"config.encoder.precision is {c.precision!r}; 'float32' or 'bfloat16' would do")
    one_of('config.encoder.attention', c.attention, ('plain', 'xla', 'cudnn'))
    one_of('config.encoder.positions', c.positions, ('absolute', 'relative', 'rotary'))


def hyper_parameters(config) -> dict[str, np.float32]:
    """The traced numbers: optimizer, schedule, dropout."""
    o, t = config['optimizer'], config['train']
    for key, seed in (('config.seed', config['seed']), ('config.evaluation.seed', config['evaluation']['seed'])):
        if not 0 <= seed < 2**32:  # jax.random.key takes 32 bits and drops the others
            raise BadInput(f'{key} is {seed}; from 0 to {2**32 - 1} would do')
    for name in ('warmup', 'weight_decay', 'clip'):
        at_least(0, f'config.optimizer.{name}', o[name])
    every = 'log_every', 'validate_every', 'checkpoint_every', 'keep_checkpoints'
    for name in ('batch', 'steps', 'micro_batches', *every):
        at_least(1, f'config.train.{name}', t[name])
    numbers = {name: o[name] for name in ('learning_rate', 'b1', 'b2', 'eps', 'weight_decay')}
    numbers |= {'steps': t['steps'], 'log_every': t['log_every'], 'clip': o['clip'] or np.inf}
    numbers['warmup'] = o['warmup'] if o['warmup'] >= 1 else round(o['warmup'] * t['steps'])
    optim.check(numbers)
    for name in ('dropout', 'attention_dropout'):
        if not 0 <= t[name] < 1:
            raise BadInput(f'config.train.{name} is {t[name]:g}; from 0 to below 1 would do')
        if t[name] > 0:
            numbers[name] = t[name]
    if 'attention_dropout' in numbers:
        numbers.setdefault('dropout', 0.0)
    return {name: np.float32(value) for name, value in numbers.items()}


def _check_finite(tree: dict[str, Any], key: str = 'config') -> None:
    for name, value in tree.items():
        if isinstance(value, dict):
            _check_finite(value, f'{key}.{name}')
        elif isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f'{key}.{name} is {value}; a finite number would do')


def make_run(config, store) -> Run:
    """Raises BadInput, naming the key, for anything that cannot work with this config and this token store."""
    config = plain(config)
    _check_finite(config)
    hyper = hyper_parameters(config)
    source = Pretrained.load(config['init_from']) if config['init_from'] else None
    run = _phase(config, hyper, source, store)
    t, later = config['train'], dict(config['train']['second'])
    if not 0 <= later['steps'] < t['steps']:
        raise BadInput(f'config.train.second.steps is {later["steps"]}, of {t["steps"]} in all; fewer would do')
    if not later['steps']:
        return run
    for name in ('length', 'batch', 'micro_batches'):
        at_least(1, f'config.train.second.{name}', later[name])
    rows, train = config['rows'] | {'length': later.pop('length')}, t | later
    return dataclasses.replace(run, second=_phase(config | {'rows': rows, 'train': train}, hyper, source, store))


def _phase(config: dict[str, Any], hyper: dict[str, np.float32], source: Pretrained | None, store) -> Run:
    objectives = base.make(config['objectives'], config['rows']['length'])
    for name, objective in objectives.items():
        objective.check_store(f'config.objectives.{name}', store)
        if objective.needs.words:
            words.require(store, f'config.objectives.{name}')
    settings = {k: config['optimizer'][k] for k in ('name', 'schedule', 'bias_correction')}
    options = OptimizerOptions(**settings, freeze_encoder=config['train']['freeze_encoder'])
    options.check()
    rows = options_for({name: o.needs for name, o in objectives.items()}, **config['rows'])
    if source:
        check_tokenizer(source, store.tokenizer)
    encoder = encoder_config(config, store.tokenizer.vocab_size, source.encoder if source else None)
    for objective in objectives.values():
        encoder = objective.adapt(encoder)
    if source and encoder.delta_embeddings:
        raise BadInput(
            "config.init_from does not go with embeddings='gdes', whose tables start at 0; 'untied' would do"
        )
    return Run(
        config=config,
        encoder=encoder,
        objectives=jax.tree.map(np.float32, objectives),
        optimizer=options,
        hyper=hyper,
        rows=rows,
        fingerprint=f'{store.fingerprint}-{store.language}',  # the language decides on words and kinds of token
        source=source,
    )
