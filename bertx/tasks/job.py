"""What a downstream run is made of: all of its settings checked, its data, and the parameters that it begins with."""

import dataclasses
import functools
import hashlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertx import NUMERICS_VERSION
from bertx.config import encoder_config, hyper_parameters, plain
from bertx.encoder import Encoder
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, at_least, one_of
from bertx.optim import OptimizerOptions
from bertx.pretrained import Pretrained, check_tokenizer, fits, start_from
from bertx.step import named
from bertx.tasks import heads, layer_rates
from bertx.tasks.base import Task
from bertx.tasks.batches import Batch, mixture, padded, stream
from bertx.tasks.data import Data, load
from bertx.tasks.heads import HeadSpec
from bertx.text.tokenizer import Tokenizer
from bertx.types import View

log = logging.getLogger(__name__)

# What changes how fast a run goes, how much it says or where its data lie, not its numbers.
EXECUTION = ('init_from', 'tokenizer', 'encoder.unroll', 'train.log_every', 'train.save_weights', 'evaluation.batch')
DATA = ('train', 'dev', 'test')


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """A run that has passed every check."""

    config: dict[str, Any]
    encoder: EncoderConfig
    source: Pretrained | None
    tokenizer: Tokenizer
    data: Data
    specs: dict[str, HeadSpec]
    options: OptimizerOptions
    hyper: dict[str, np.float32]
    steps: int
    shares: np.ndarray  # of the steps, for each task

    @property
    def tasks(self) -> dict[str, Task]:
        return self.data.tasks

    @property
    def train(self) -> dict[str, Any]:
        return self.config['train']

    @property
    def head(self) -> str:
        """Of the results."""
        return 'frozen' if self.config['features'] else 'finetuned'

    def numbers(self) -> dict[str, Any]:
        """The config without what only says how fast and where it runs, other tasks, and the places of data."""
        numbers = json.loads(json.dumps(self.config))
        for path in EXECUTION:
            *sections, key = path.split('.')
            functools.reduce(dict.__getitem__, sections, numbers).pop(key)
        numbers['tasks'] = {
            name: {key: value for key, value in settings.items() if key not in DATA}
            for name, settings in numbers['tasks'].items()
            if name in self.tasks
        }
        return numbers

    @functools.cached_property
    def hash(self) -> str:
        """Eight hex digits over all that the numbers depend on."""
        weights = self.source.content if self.source and not self.config['random'] else ''
        encoder = dataclasses.asdict(dataclasses.replace(self.encoder, unroll=1))
        content = [NUMERICS_VERSION, self.numbers(), weights, encoder, self.tokenizer.fingerprint, self.data.digest]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]

    def batches(self) -> Iterator[tuple[str, Batch]]:
        """Task and batch of each step, for ever."""
        data, size = self.data, self.train['batch']
        inputs = {name: data.inputs[name, 'train'] for name in data.tasks}
        for name, rows in stream(inputs, data.buckets, size, self.shares, self.config['seed']):
            yield name, padded(inputs[name], rows, data.tasks[name], data.buckets, size, self.tokenizer.pad_id)

    def name_of(self, task: str) -> str:
        """Of its head among the parameters: for a single task as `bertx/hf/names.py` has it, so that it converts; one
        that reads other states than the encoder's last has a name of its own."""
        kind, features = self.specs[task].kind, self.specs[task].features
        usual = kind if kind in ('qa', 'tag') else 'classify'
        return f'heads_{usual if len(self.specs) == 1 else task}' + f'_{features}' * (features not in ('', 'last'))

    @property
    def about(self) -> dict[str, dict[str, Any]]:
        """Of each head its kind, the states that it reads if not the last, and what its classes are called."""
        found = {}
        for name, task in self.tasks.items():
            kind, features = self.specs[name].kind, self.specs[name].features
            own: dict[str, Any] = {'kind': kind, 'features': '' if features == 'last' else features}
            own |= {'problem_type': 'regression'} if kind == 'regress' else {}
            own |= {'labels': task.labels} if task.labels and kind != 'regress' else {}
            found[self.name_of(name).removeprefix('heads_')] = own
        return found


def prepare(config: Any) -> Job:
    """Raises BadInput, naming the key, for anything that cannot work."""
    config = plain(config)
    source = Pretrained.load(config['init_from']) if config['init_from'] else None
    if not source and not config['tokenizer']:
        raise BadInput('config.init_from is empty; give a folder with weights, or config.tokenizer for random ones')
    tokenizer = source.tokenizer if source and not config['tokenizer'] else Tokenizer.load(config['tokenizer'])
    if source and not config['random']:
        check_tokenizer(source, tokenizer, 'config')
    return dataclasses.replace(checked(config, tokenizer, source.encoder if source else None), source=source)


def checked(config: dict[str, Any], tokenizer: Tokenizer, source: EncoderConfig | None = None) -> Job:
    """A job but for the weights, which may not be there yet; source: the encoder that they are of."""
    t, o, mix = config['train'], config['optimizer'], config['mix']
    shape = {'encoder': config['encoder'], 'rows': {'length': config['length']}}
    encoder = encoder_config(shape, tokenizer.vocab_size, source)
    one_of('config.features', config['features'], heads.FEATURES)
    if config['features'] in ('sum_last_4', 'concat_last_4') and encoder.layers < 3:
        raise BadInput(f'config.features is {config["features"]!r}, and the encoder has {encoder.layers} layers')
    one_of('config.train.keep', t['keep'], ('best', 'last'))
    stacked = encoder.groups or encoder.layers
    if not 0 <= t['reinit_layers'] <= stacked:
        raise BadInput(f'config.train.reinit_layers is {t["reinit_layers"]}; the encoder has {stacked} to give')
    options = OptimizerOptions(**{key: o[key] for key in ('name', 'schedule', 'bias_correction')})
    options.check()
    one_of('config.optimizer.layer_rule', o['layer_rule'], layer_rates.RULES)
    if not 0 < o['layer_decay'] <= 1:
        raise BadInput(f'config.optimizer.layer_decay is {o["layer_decay"]:g}; above 0, to 1, would do')
    least_of = {'batch': 1, 'epochs': 1, 'log_every': 1, 'steps': 0, 'examples': 0, 'evaluate_every': 0, 'patience': 0}
    for key, least in least_of.items():
        at_least(least, f'config.train.{key}', t[key])
    for key, least in {'batch': 1, 'examples': 0}.items():
        at_least(least, f'config.evaluation.{key}', config['evaluation'][key])
    data = load(config, tokenizer)
    steps = t['steps'] or t['epochs'] * data.batches
    specs = {
        name: HeadSpec(config['tasks'][name]['kind'], task.classes, config['features'], task.settings['longest_answer'])
        for name, task in data.tasks.items()
    }
    shares = mixture({name: len(data.inputs[name, 'train'].rows) for name in specs}, mix['shares'], mix['alpha'])
    return Job(config, encoder, None, tokenizer, data, specs, options, _hyper(config, steps), steps, shares)


def _hyper(config: dict[str, Any], steps: int) -> dict[str, np.float32]:
    """The traced numbers."""
    needless = dict.fromkeys(('micro_batches', 'validate_every', 'checkpoint_every', 'keep_checkpoints'), 1)
    train = config['train'] | needless | {'steps': steps}
    found = hyper_parameters(config | {'train': train, 'evaluation': {'seed': 0}})
    del found['log_every']
    return found | {'layer_decay': np.float32(config['optimizer']['layer_decay'])}


@functools.lru_cache
def _fresh_encoder(config: EncoderConfig):
    row = jnp.zeros((1, 1), jnp.int32)
    return jax.jit(lambda key: Encoder(config).init(key, View(row, row, row, row))['params'])


@functools.lru_cache
def _fresh_head(config: EncoderConfig, spec: HeadSpec):
    states = jnp.zeros(((config.layers + 1,) if spec.features else ()) + (1, 1, config.width))
    return jax.jit(lambda key: heads.TaskHead(config, spec).init(key, states)['params'])


def initial(job: Job) -> dict[str, Any]:
    """Parameters before the first step: the source's encoder, and of its heads what fits; all else is fresh.

    A head does not fit whose classes have other names. A pooler is taken from wherever the source has one: NSP's,
    SOP's, a Hugging Face folder's own.
    """
    root, source, reinit = jax.random.key(job.config['seed']), job.source, job.train['reinit_layers']
    own = {job.name_of(name): _fresh_head(job.encoder, spec)(named(root, name)) for name, spec in job.specs.items()}
    fresh = lambda: _fresh_encoder(job.encoder)(named(root, 'init'))
    if not source or job.config['random']:
        return own | {'encoder': fresh()}
    encoder, size = source.params['encoder'], source.encoder.vocab_size
    poolers = [x['pooler'] for name, x in source.params.items() if 'pooler' in x and source.reads_last(name)]
    poolers += [source.params['pooler']] if 'pooler' in source.params else []
    offered = {'encoder': encoder}
    for head, mine in () if reinit else own.items():  # the pooler is fresh too, as Zhang et al. have it
        found, key = source.params.get(head), head.removeprefix('heads_')
        labels = [x.about.get(key, {}).get('labels') for x in (job, source)]
        if found and fits(mine, found, size) and (not all(labels) or labels[0] == labels[1]):
            offered[head] = found
        elif 'pooler' in mine and poolers:
            offered[head] = {'pooler': poolers[0]}
    grown = job.encoder.vocab_size > size
    params = start_from(source, own | {'encoder': fresh() if grown else encoder}, offered)
    if reinit:
        log.info('fresh all the same: the top %d layers', reinit)
        join = lambda old, new: np.concatenate([old[:-reinit], new[-reinit:]])
        layers = jax.tree.map(join, params['encoder']['layers'], fresh()['layers'])
        params['encoder'] = params['encoder'] | {'layers': layers}
    return jax.tree.map(jnp.asarray, params)
