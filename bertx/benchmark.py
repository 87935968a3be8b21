"""How fast a step or a forward pass goes, beside the machine's own rate at the same matrix products and beside a peer.

Parts take turns, since a shared machine's speed drifts, and each turn lasts a while; what is compared is compared turn
by turn.
"""

import ctypes
import statistics
import time
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from bertx import footprint, hosts, locks, parallel, train
from bertx.config import Run
from bertx.encoder import Encoder, count, encode
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput
from bertx.results import read_json, write_json
from bertx.sweep import Planned
from bertx.text.pipeline import BatchSource, batches
from bertx.text.rows import Rows
from bertx.types import Example, View

Part = Callable[[], None]  # one unit of work, waited for


def turns(parts: dict[str, Part], rounds: int = 5, seconds: float = 3.0) -> dict[str, list[float]]:
    """Units per second of each part in each round; each turn begins with a unit that is not counted: the first one
    compiles, and later ones find their memory and caches taken by the part before."""
    rates: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(rounds):
        for name, part in parts.items():
            part()
            begun, done = time.perf_counter(), 0
            while time.perf_counter() - begun < seconds:
                part()
                done += 1
            rates[name].append(done / (time.perf_counter() - begun))
    return rates


def ratio(rates: dict[str, list[float]], a: str, b: str) -> float:
    """Median over the rounds of a's rate over b's."""
    return statistics.median(x / y for x, y in zip(rates[a], rates[b], strict=True))


def peak(part: Part, held: float) -> float:
    """Bytes that are in use at most while the part runs; `held` of them were before. NaN where nobody tells; on
    accelerators of the whole process so far."""
    if jax.default_backend() != 'cpu':
        part()
        return float((jax.devices()[0].memory_stats() or {}).get('peak_bytes_in_use', float('nan')))
    try:
        ctypes.CDLL('libc.so.6').malloc_trim(0)  # else the part is given what others have freed, which counts already
        with open('/proc/self/clear_refs', 'w') as file:
            file.write('5')  # the peak is looked for from now on: man 5 proc
        before = _kilobytes('VmRSS')
        part()
        return held + 1024.0 * (_kilobytes('VmHWM') - before)
    except OSError:  # no Linux
        return float('nan')


def _kilobytes(name: str) -> int:
    with open('/proc/self/status') as file:
        return next(int(line.split()[1]) for line in file if line.startswith(f'{name}:'))


class Training:
    """The training step of a run, on one batch again and again or on the pipeline's."""

    def __init__(self, run: Run, store, mesh):
        self.run, self.mesh = run, mesh
        self.rows = Rows(store, 'train', run.rows, 0)
        self.vocab, self.root = train.vocabulary(store), jax.random.key(0)
        self.state = train.start(run, self.rows, self.vocab, mesh)
        _, step = train.functions(run, mesh)
        self.stream = batches(BatchSource(self.rows, run.train['batch'], 10**6))
        self.batch = parallel.split_batch(mesh, next(self.stream))
        if not hasattr(step, 'lower'):
            raise BadInput(f'config.train.parallel is {run.train["parallel"]}; what is measured is the step under jit')
        begun = time.perf_counter()
        self.compiled = step.lower(*self.arguments(self.batch)).compile()
        self.compile_s = time.perf_counter() - begun
        self.waited, self.fed = 0.0, 0
        arguments, _ = footprint.memory(self.compiled)
        self.peak = peak(self, arguments)
        self.real = int((np.asarray(self.batch.segment_ids) > 0).sum())  # tokens that are no padding

    def arguments(self, batch):
        return self.state, self.run.objectives, self.run.hyper, self.root, self.vocab, batch

    def __call__(self, batch: Any = None) -> None:
        self.state, _ = self.compiled(*self.arguments(self.batch if batch is None else batch))
        jax.block_until_ready(self.state)

    def with_data(self) -> None:
        begun = time.perf_counter()
        batch = parallel.split_batch(self.mesh, next(self.stream))
        self.waited, self.fed = self.waited + time.perf_counter() - begun, self.fed + 1
        self(batch)

    def ten_batches(self) -> None:
        for _ in range(10):
            next(self.stream)

    memory = property(lambda self: sum(footprint.memory(self.compiled)))


class Speeds:
    """Seconds a step of each arm, measured where they are first asked for and kept in speed.json: budgets of seconds
    stay what they were when a sweep goes on."""

    def __init__(self, workdir: epath.Path, mesh):
        self.file, self.mesh = workdir / 'speed.json', mesh

    def __call__(self, arm: str, run: Run, store) -> float:
        # Who comes second, another worker of the sweep, finds it measured: else each would train for steps of its own.
        t = run.train
        graph = run.encoder, jax.tree.structure(run.objectives), run.optimizer, run.rows, t['batch'], t['micro_batches']
        arm = f'{arm} {zlib.crc32(repr(graph).encode()):08x}'  # an arm may have runs of several sizes
        with locks.turn_in(self.file.parent / 'runs'):
            known = read_json(self.file) if self.file.exists() else {}
            if hosts.told(arm not in known):
                known[arm] = 1 / statistics.median(turns({'step': Training(run, store, self.mesh)}, rounds=3)['step'])
                if hosts.leads():
                    write_json(self.file, known)
        return hosts.told(round(1e6 * known.get(arm, 0.0))) / 1e6


class Inference:
    """The encoder alone, on a batch of random tokens."""

    def __init__(self, config: EncoderConfig, batch: int, length: int):
        rng = np.random.default_rng(0)
        ones = np.ones((batch, length), np.int32)
        tokens = rng.integers(0, config.vocab_size, ones.shape).astype(np.int32)
        self.view = jax.device_put(View(tokens, ones, ones.cumsum(-1) - 1, 0 * ones))
        self.params = jax.jit(Encoder(config).init)(jax.random.key(0), self.view)['params']
        forward = jax.jit(lambda params, view: encode(config, params, view).hidden_BLD)
        begun = time.perf_counter()
        self.compiled = forward.lower(self.params, self.view).compile()
        self.compile_s = time.perf_counter() - begun

    def __call__(self) -> None:
        jax.block_until_ready(self.compiled(self.params, self.view))

    memory = property(lambda self: sum(footprint.memory(self.compiled)))


def products(config: EncoderConfig, rows: int, predicted: int) -> tuple[Part, float]:
    """The matrix products of a forward pass without attention's, each on its own, and their FLOPs."""
    dtype, w, f = config.compute_dtype, config.width, config.mlp_width
    into = (2 if config.gated else 1) * f
    shapes = [(rows, w, 3 * w), (rows, w, w), (rows, w, into), (rows, f, w)] * config.layers
    shapes += [(predicted, config.table_width, config.vocab_size)] if predicted else []
    arrays = {n: jnp.ones(n, dtype) for a, b, c in shapes for n in ((a, b), (b, c))}
    multiply = jax.jit(jnp.matmul)

    def part() -> None:
        jax.block_until_ready([multiply(arrays[a, b], arrays[b, c]) for a, b, c in shapes])

    return part, sum(2.0 * a * b * c for a, b, c in shapes)


Line = dict[str, Any]
Peer = Callable[[EncoderConfig, Example], Part]


def training(p: Planned, mesh, peers: dict[str, Peer], trace: str = '') -> Line:
    """A run's step beside the matrix products of its forward pass, and beside peers on the same batch.

    trace: a folder for a profile of three steps.
    """
    step = Training(p.run, p.store, mesh)
    tokens, flops = p.run.tokens_per_step, p.run.flops_per_step
    predicted = p.run.train['batch'] * getattr(p.run.objectives.get('mlm'), 'k', 0)
    matrices, product_flops = products(p.run.encoder, tokens, predicted)
    parts: dict[str, Part] = {'step': step, 'with data': step.with_data, 'products': matrices}
    parts['host'] = step.ten_batches
    parts |= {name: peer(p.run.encoder, step.batch) for name, peer in peers.items()}
    if trace:
        step()
        with jax.profiler.trace(trace):
            for _ in range(3):
                step()
    rates = turns(parts)
    middle = {name: statistics.median(rate) for name, rate in rates.items()}
    return {
        'size': p.arm,
        'parameters': count(step.state.params),
        'tokens/s': middle['step'] * tokens,
        'GFLOP/s': middle['step'] * flops / 1e9,
        'products GFLOP/s': middle['products'] * product_flops / 1e9,
        'of products': ratio(rates, 'step', 'products') * flops / product_flops,
        'memory MB, estimated': step.memory / 1e6,
        'memory MB, at the peak': step.peak / 1e6,
        'compile s': step.compile_s,
        'data / fixed': ratio(rates, 'with data', 'step'),
        'host tokens/s': middle['host'] * 10 * tokens,
        'host wait, ms a step': 1e3 * step.waited / step.fed,
    } | {f'x {name}': ratio(rates, 'step', name) for name in peers}


def arms(planned: list[Planned], mesh) -> list[Line]:
    """The steps of several runs, the first of which is the measure. Padding does not count as tokens."""
    steps = {p.arm: Training(p.run, p.store, mesh) for p in planned}
    rates = turns(dict(steps), seconds=1.0)
    return [
        {
            'arm': p.arm,
            'parameters': count(steps[p.arm].state.params),
            'MFLOP a token': p.run.flops_per_step / step.real / 1e6,
            'tokens/s': statistics.median(rates[p.arm]) * step.real,
            f'x {planned[0].arm}': ratio(rates, p.arm, planned[0].arm) * step.real / steps[planned[0].arm].real,
        }
        for p, step in zip(planned, steps.values(), strict=True)
    ]


def inference(encoders: dict[str, EncoderConfig], batch: int, length: int) -> list[Line]:
    """The encoders with random weights, the first of which is the measure."""
    parts = {name: Inference(config, batch, length) for name, config in encoders.items()}
    rates, measure = turns(dict(parts)), next(iter(parts))
    return [
        {
            'encoder': name,
            'parameters': count(part.params),
            'tokens/s': statistics.median(rates[name]) * batch * length,
            f'x {measure}': ratio(rates, name, measure),
            'memory MB': part.memory / 1e6,
            'compile s': part.compile_s,
        }
        for name, part in parts.items()
    ]
