"""The training step beside a peer's, the host pipeline alone, and the step with data against a fixed batch; one run.

    python -m experiments.benchmark --config=configs/benchmark.py --workdir=runs/benchmark

The peer is transformers' BertForMaskedLM under torch (requirements-dev.txt), same size, batch and optimizer; its head
predicts at every position. The parts take turns, since a shared machine's speed drifts; medians are printed.
"""

import statistics
import time
from collections.abc import Callable

import jax
import numpy as np
from etils import epath

from bertx import parallel, sweep, train
from bertx.encoder import count
from bertx.text.pipeline import BatchSource, batches
from bertx.text.rows import Rows
from experiments import cli

ROUNDS, STEPS = 5, 3


def ours(p: sweep.Planned, rows: Rows, fixed: bool) -> Callable[[], None]:
    """One call is STEPS training steps, on one batch or on the pipeline's."""
    mesh, run = parallel.data_mesh(1), p.run
    vocab, root = train.vocabulary(p.store), jax.random.key(0)
    state = train.start(run, rows, vocab, mesh)
    cli.console.print(f'bertx: {count(state.params):,} parameters', highlight=False)
    _, step = train.functions(run)
    stream = batches(BatchSource(rows, run.train['batch'], 10**6))
    same = parallel.split_batch(mesh, next(stream))
    hold = [state]

    def go() -> None:
        for _ in range(STEPS):
            batch = same if fixed else parallel.split_batch(mesh, next(stream))
            hold[0], _ = step(hold[0], run.objectives, run.hyper, root, vocab, batch)
        jax.block_until_ready(hold[0])

    return go


def peer(p: sweep.Planned, rows: Rows) -> Callable[[], None]:
    """STEPS steps of the same size in torch: 15 % of the positions have a label, all go through the output layer."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    e = p.run.encoder
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=e.vocab_size, hidden_size=e.width, num_hidden_layers=e.layers, num_attention_heads=e.heads,
            intermediate_size=e.mlp_width, max_position_embeddings=e.max_positions, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    ).train()  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = rows.batch(np.arange(p.run.train['batch']))
    tokens, mask, types = (
        torch.tensor(np.asarray(x)).long() for x in (batch.tokens, batch.segment_ids, batch.type_ids)
    )
    labels = torch.where(torch.rand(tokens.shape) < 0.15, tokens, -100)

    def go() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(tokens, attention_mask=mask, token_type_ids=types, labels=labels).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return go


def main() -> int:
    [p] = sweep.plan(cli.CONFIG.value, [{'arm': 'benchmark'}], epath.Path(cli.workdir()))
    rows = Rows(p.store, 'train', p.run.rows, 0)
    tokens = p.run.train['batch'] * p.run.rows.length
    host = batches(BatchSource(rows, p.run.train['batch'], 10**6))

    def pipeline() -> None:
        for _ in range(20 * STEPS):
            next(host)

    parts = {'bertx': ours(p, rows, True), 'bertx with data': ours(p, rows, False), 'pipeline': pipeline}
    parts['torch'] = peer(p, rows)
    speeds: dict[str, list[float]] = {name: [] for name in parts}
    for round_ in range(ROUNDS + 1):
        for name, go in parts.items():
            begun = time.perf_counter()
            go()
            done = tokens * STEPS * (20 if name == 'pipeline' else 1)
            if round_:  # the first round compiles
                speeds[name].append(done / (time.perf_counter() - begun))
    for name, found in speeds.items():
        cli.console.print(f'{name}: {statistics.median(found):,.0f} tokens/s', highlight=False)
    ratio = lambda a, b: statistics.median(x / y for x, y in zip(speeds[a], speeds[b], strict=True))
    cli.console.print(f'bertx / torch: {ratio("bertx", "torch"):.2f}; with data / fixed: ', end='', highlight=False)
    cli.console.print(f'{ratio("bertx with data", "bertx"):.3f}', highlight=False)
    return cli.DONE


if __name__ == '__main__':
    cli.run(main)
