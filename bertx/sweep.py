"""Sweeps as lists of points, and what becomes of them: runs that have passed every check."""

import dataclasses
import functools
import hashlib
import itertools
import json
import logging
import random
from collections.abc import Callable, Iterable
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from bertx import budget, hosts, locks, parallel, train
from bertx.config import EXECUTION, Run, flat, make_run, plain, prepare_options
from bertx.errors import BadInput, unknown
from bertx.evaluate import Suite
from bertx.results import RunFolder, read_json, write_json
from bertx.text import leakage
from bertx.text.plan import RowOptions
from bertx.text.prepare import prepare
from bertx.text.store import TokenStore
from bertx.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

Point = dict[str, Any]  # dotted config key -> value; 'arm' names what is compared
Sweep = list[Point]
MANY = 10**9  # steps: more than any run has

Speed = Callable[[str, Run, TokenStore], float]  # (arm, run, store) -> seconds a step


def prod(*sweeps: Sweep) -> Sweep:
    """Every combination; the last factor varies fastest."""
    return [functools.reduce(_merge, points, {}) for points in itertools.product(*sweeps)]


def zip_(*sweeps: Sweep) -> Sweep:
    """First with first, second with second."""
    return [functools.reduce(_merge, points, {}) for points in zip(*sweeps, strict=True)]


def chain(*sweeps: Sweep) -> Sweep:
    """One sweep after another."""
    return list(itertools.chain(*sweeps))


def seeds(numbers: int | Iterable[int]) -> Sweep:
    """seeds(3) is seeds 0, 1, 2. Arms with the same seed share initialisation and document order."""
    return [{'seed': seed} for seed in (range(numbers) if isinstance(numbers, int) else numbers)]


def when(points: Sweep, condition: Point | Callable[[Point], bool], more: Sweep) -> Sweep:
    """The points that hold the condition's values, or for which it is true, with every combination of `more`; the
    others as they are."""
    holds = condition if callable(condition) else lambda point: condition.items() <= point.items()
    return [found for point in points for found in (prod([point], more) if holds(point) else [point])]


def subsample(points: Sweep, count: int, seed: int = 0) -> Sweep:
    """That many of the points, drawn without replacement, in their order: a random search over a grid."""
    if count > len(points):
        raise BadInput(f'subsample wants {count} of {len(points)} points')
    return [points[i] for i in sorted(random.Random(seed).sample(range(len(points)), count))]


def arm(name: str, **updates: Any) -> Sweep:
    """One named arm; `objectives={...}` and other whole sections, or dotted keys in a dict under `set`."""
    return [{'arm': name} | updates.pop('set', {}) | updates]


def _merge(a: Point, b: Point) -> Point:
    """Both; b may refine a section that a sets, but not set again what a has set."""
    for key, other in itertools.product(b, a):
        if f'{other}.'.startswith(f'{key}.'):
            raise BadInput(f'the sweep sets {other} twice for one run' + f', in {key} too' * (key != other))
    return a | b


def overlay(config: ConfigDict, point: Point) -> ConfigDict:
    """A copy of the config with the point's values; an unknown key or a value of another type raises."""
    config = ConfigDict(plain(config), type_safe=True)
    for key, value in point.items():
        if key == 'arm':
            continue
        *path, last = key.split('.')
        section = config
        if path[:1] == ['objectives'] and path[1:] and path[1] not in config.objectives:
            raise BadInput(
                f'the sweep sets {key} for {point.get("arm", "a run")!r}, which has no {path[1]}; '
                'when(points, {"arm": ...}, more) gives it to those that have'
            )
        for name in path:
            if path[0] == 'objectives' and section is not None and name not in section:
                section[name] = ConfigDict()  # arguments that the objective has a default for
            section = section.get(name) if isinstance(section, ConfigDict) else None
        if not isinstance(section, ConfigDict) or (last not in section and path[:1] != ['objectives']):
            raise unknown('the sweep sets config key', key, flat(plain(config)))
        if isinstance(value, dict) and path[:1] != ['objectives'] and key != 'objectives':
            config = overlay(config, {f'{key}.{name}': item for name, item in value.items()})
        elif isinstance(section.get(last), ConfigDict):
            if not isinstance(value, dict):
                raise BadInput(f'the sweep sets config.{key} to {value!r}; it is a section, so a dict would do')
            section[last] = ConfigDict(value)
        else:
            try:
                section[last] = value
            except TypeError as error:
                raise BadInput(f'the sweep sets config.{key} to {value!r}: {error}') from None
    return config


@dataclasses.dataclass(frozen=True)
class Planned:
    """A run of the sweep that has passed every check."""

    arm: str
    run: Run
    store: TokenStore
    suite: Suite
    folder: RunFolder

    @property
    def id(self) -> str:
        return self.folder.path.name


class Stores:
    """Token stores, prepared where they are first wanted."""

    def __init__(self, workdir: epath.Path):
        self.workdir, self.open = workdir, functools.cache(self._open)

    def __call__(self, config) -> TokenStore:
        return self.open(config.data.store, prepare_options(config))

    def _open(self, path: str, options) -> TokenStore:
        if path:
            store = TokenStore(path)
            if options.tokenizer:
                store.check_made_with(Tokenizer.load(options.tokenizer, options.lowercase))
        else:
            content = json.dumps(dataclasses.asdict(options), sort_keys=True)
            # It is mapped into memory, so of a bucket's workdir each host has its own.
            folder = epath.Path('data') if '://' in str(self.workdir) else self.workdir / 'data'
            with hosts.one_first(), locks.turn_in(folder):
                store = prepare(options, str(folder / hashlib.sha256(content.encode()).hexdigest()[:8]))
        store.verify()  # a second for each GB
        return store


def plan(config: ConfigDict, points: Sweep, workdir: epath.Path, speed: Speed | None = None) -> list[Planned]:
    """Every run of the sweep, checked; identical points are one run. speed: for budgets of seconds."""
    stores = Stores(workdir)
    mesh = parallel.mesh_of(config.train)
    suites = functools.cache(lambda store, key: Suite(json.loads(key), store, train.vocabulary(store), mesh))
    planned: dict[str, Planned] = {}
    for point in points:
        name = point.get('arm', 'run')
        if not isinstance(name, str) or '/' in name or not 0 < len(name) <= 100:
            raise BadInput(f'arm {name!r}: a name of 1 to 100 characters without / would do')
        resolved = overlay(config, point)
        store = stores(resolved)
        if resolved.budget.of:
            resolved.train.steps = MANY  # until it is known how many
        run = make_run(resolved, store)
        if resolved.budget.of:
            seconds = speed(name, run, store) if speed and resolved.budget.of == 'seconds' else 0.0
            resolved.train.steps = budget.steps_for(run, resolved.budget, seconds)
            run = make_run(resolved, store)
        both = [name for name, objective in run.objectives.items() if objective.attention == 'bidirectional']
        if run.encoder.causal and both:
            raise BadInput(f'config.init_from is a causal encoder, and {both[0]} asks for both sides; clm would do')
        for phase, *_ in run.phases:
            parallel.check_divisible(mesh, phase.train['batch'], phase.train['micro_batches'])
        suite = suites(store, json.dumps({key: run.config[key] for key in ('rows', 'evaluation')}, sort_keys=True))
        for key in ('devices', 'fsdp', 'parallel'):
            if run.train[key] != config.train[key]:
                raise BadInput(f'arm {name!r} sets train.{key}; a sweep has one for all its runs')
        folder = RunFolder(workdir / 'runs' / f'{name}-s{run.seed}-{run.hash}')
        planned[folder.path.name] = Planned(name, run, store, suite, folder)
    return list(planned.values())


def check_workdir(workdir: epath.Path, name: str, config: ConfigDict) -> None:
    """Refuses the workdir of another sweep, naming the first key that differs."""
    file, mine = workdir / 'sweep.json', {'sweep': name, 'config': plain(config)}
    if not file.exists():
        return
    theirs = _recorded(file)
    for key in ('runs', 'about'):
        theirs.pop(key, None)
    mine, theirs = flat(mine), flat(theirs)
    for key in sorted((mine.keys() | theirs.keys()) - {f'config.{key}' for key in EXECUTION}):
        a, b = mine.get(key), theirs.get(key)
        if a != b:
            raise BadInput(
                f'--workdir={workdir} holds another sweep: its {key} is {b!r}, this one has {a!r}; give a new one'
            )


@hosts.by_one
def record(workdir: epath.Path, name: str, config: ConfigDict, planned: list[Planned], about: str = '') -> None:
    """sweep.json: what the workdir is for, and the runs that the sweep consists of, in their order.

    about: what is to be read beside its tables. Called by who is alone in the workdir, which another sweep may have
    taken since it was first looked at.
    """
    check_workdir(workdir, name, config)
    content = {'sweep': name, 'config': plain(config), 'runs': [p.id for p in planned], 'about': about}
    write_json(workdir / 'sweep.json', content)


def runs_of(workdir: epath.Path) -> list[RunFolder]:
    """The folders of the sweep's runs, in its order."""
    file = workdir / 'sweep.json'
    if not file.exists():
        raise BadInput(f'--workdir={workdir} holds no sweep.json; give the folder of a sweep')
    return [RunFolder(workdir / 'runs' / name) for name in _recorded(file)['runs']]


def _recorded(file: epath.Path) -> dict[str, Any]:
    found = read_json(file)
    if not isinstance(found, dict) or not isinstance(found.get('runs'), list):
        raise BadInput(f'{file} lists no runs; delete it, and the sweep writes it again')
    return found


def describe(planned: list[Planned]) -> list[str]:
    """Lines on the data of a sweep: rows, what truncation drops, leakage of the pair labels."""
    kinds: dict[tuple[TokenStore, RowOptions], set[int]] = {}
    for p in planned:
        for phase, *_ in p.run.phases:
            kinds.setdefault((p.store, phase.rows), set()).add(phase.train['batch'])
    return [line for (store, rows), batches in kinds.items() for line in leakage.describe(store, rows, batches)]
