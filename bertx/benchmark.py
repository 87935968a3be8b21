"""How fast a step or a forward pass goes, beside the machine's own rate at the same matrix products and beside a peer.

Parts take turns, since a shared machine's speed drifts, and each turn lasts a while; what is compared is compared turn
by turn.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertx import parallel, train
from bertx.config import Run
from bertx.encoder import Encoder, encode
from bertx.encoder_config import EncoderConfig
from bertx.text.pipeline import BatchSource, batches
from bertx.text.rows import Rows
from bertx.types import Example, View

Part = Callable[[], None]  # one unit of work, waited for


def turns(parts: dict[str, Part], rounds: int = 5, seconds: float = 3.0) -> dict[str, list[float]]:
    """Units per second of each part in each round; before the first, one unit that compiles."""
    rates: dict[str, list[float]] = {name: [] for name in parts}
    for part in parts.values():
        part()
    for _ in range(rounds):
        for name, part in parts.items():
            begun, done = time.perf_counter(), 0
            while time.perf_counter() - begun < seconds:
                part()
                done += 1
            rates[name].append(done / (time.perf_counter() - begun))
    return rates


def ratio(rates: dict[str, list[float]], a: str, b: str) -> float:
    """Median over the rounds of a's rate over b's."""
    return statistics.median(x / y for x, y in zip(rates[a], rates[b], strict=True))


class Training:
    """The training step of a run, on one batch again and again or on the pipeline's."""

    def __init__(self, run: Run, store, mesh):
        self.run, self.mesh = run, mesh
        self.rows = Rows(store, 'train', run.rows, 0)
        self.vocab, self.root = train.vocabulary(store), jax.random.key(0)
        self.state = train.start(run, self.rows, self.vocab, mesh)
        _, step = train.functions(run)
        self.stream = batches(BatchSource(self.rows, run.train['batch'], 10**6))
        self.batch = parallel.split_batch(mesh, next(self.stream))
        begun = time.perf_counter()
        self.compiled = step.lower(*self.arguments(self.batch)).compile()
        self.compile_s = time.perf_counter() - begun
        self.waited = 0.0

    def arguments(self, batch):
        return self.state, self.run.objectives, self.run.hyper, self.root, self.vocab, batch

    def __call__(self, batch: Any = None) -> None:
        self.state, _ = self.compiled(*self.arguments(self.batch if batch is None else batch))
        jax.block_until_ready(self.state)

    def with_data(self) -> None:
        begun = time.perf_counter()
        batch = parallel.split_batch(self.mesh, next(self.stream))
        self.waited += time.perf_counter() - begun
        self(batch)

    memory = property(lambda self: _memory(self.compiled))


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

    memory = property(lambda self: _memory(self.compiled))


def _memory(compiled) -> int:
    """Bytes of a compiled program: what goes in, and what it needs meanwhile."""
    found = compiled.memory_analysis()
    return found.argument_size_in_bytes + found.temp_size_in_bytes


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


def torch_training(config: EncoderConfig, batch: Example, gathered: bool) -> Part:
    """A step of transformers' BertForMaskedLM with AdamW in float32, dropout 0; 15 % of the positions have a label.

    gathered: its head is applied to those alone; as released it is applied to all.
    """
    import torch
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(
        BertConfig(
            vocab_size=config.vocab_size, hidden_size=config.width, num_hidden_layers=config.layers,
            num_attention_heads=config.heads, intermediate_size=config.mlp_width,
            max_position_embeddings=config.max_positions, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    ).train()  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens, mask, types = (
        torch.tensor(np.asarray(x)).long() for x in (batch.tokens, batch.segment_ids, batch.type_ids)
    )
    chosen = torch.rand(tokens.shape) < 0.15
    labels = torch.where(chosen, tokens, -100)

    def part() -> None:
        optimizer.zero_grad()
        if gathered:
            hidden = model.bert(tokens, attention_mask=mask, token_type_ids=types).last_hidden_state
            loss = torch.nn.functional.cross_entropy(model.cls(hidden[chosen]), tokens[chosen])
        else:
            loss = model(tokens, attention_mask=mask, token_type_ids=types, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return part
