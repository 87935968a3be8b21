"""What the ELECTRA family shares: a small masked language model, the generator, writes what the encoder reads.

Both learn at once; no gradient goes through the sampled tokens (Clark et al. 2020).

embeddings  tied    word, position and type tables and their LayerNorm are the encoder's, with a projection where the
                    widths differ (google-research/electra)
            untied  the generator has its own, as wide as itself (untied_generator_embeddings there; NES in DeBERTaV3)
            gdes    the generator has its own, as wide as the encoder's, whose word and position tables are these,
                    without gradient, plus ones that start at 0 (He et al. 2023, microsoft/DeBERTa rtd_task.py)
"""

import dataclasses
import math
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from bertx import heads, losses
from bertx.embeddings import Embeddings
from bertx.encoder import Encoder
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, one_of
from bertx.objectives.base import check_kind
from bertx.objectives.masking import Masking
from bertx.replace import Split
from bertx.select import Tokens
from bertx.types import Array, DropoutRates, Example, Loss, Tables, Term, View, Vocabulary

EMBEDDINGS = ('tied', 'untied', 'gdes')

# google-research/electra configure_pretraining.py; 85 % [MASK] and the rest kept: its pretrain_helpers.py.
ELECTRA: dict[str, Any] = {
    'select': Tokens(),
    'replace_by': Split(mask=0.85, random=0.0),
    'width': 0.25,
    'depth': 1.0,
    'embeddings': 'tied',
    'own_optimizer': False,
}


class Generator(nn.Module):
    """An encoder of its own with an MLM head. tied: it reads with the large encoder's input layer."""

    config: EncoderConfig
    tied: bool

    def setup(self):
        self.encoder, self.token = Encoder(self.config), heads.TokenHead(self.config)

    def __call__(self, view: View, at_BK, rates: DropoutRates | None, embeddings: Embeddings):
        """[B, K, V]: logits at the given positions."""
        encoded = self.encoder(view, rates, embeddings if self.tied else None)
        return self.token(heads.gather(encoded.for_tokens, at_BK), encoded.table_VE)

    def tables(self) -> Tables:
        return self.encoder.embeddings.tables()


class Networks(nn.Module):
    """What an objective of the family builds."""

    generator: Generator
    head: nn.Module  # on the encoder


def write(tokens_L, at_K, new_K, counts_K) -> Array:
    """[L]: the tokens with the new ones that count written over them.

    A position that is written more than once, as Tokens(variant='electra') does, gets the mean of the ids rounded down:
    any token (google-research/electra pretrain_helpers.py scatter_update).
    """
    zeros_L = jnp.zeros_like(tokens_L)
    sum_L = zeros_L.at[at_K].add(jnp.where(counts_K, new_K, 0))
    times_L = zeros_L.at[at_K].add(counts_K.astype(zeros_L.dtype))
    return jnp.where(times_L > 0, sum_L // jnp.maximum(times_L, 1), tokens_L)


@struct.dataclass
class GeneratorObjective(Masking):
    """Abstract: a subclass adds `head`, and perhaps `scored`, `head_scores` and variants.

    `replace_by` writes what the generator reads. Targets: the slots `at`, `label`, `weight` [B, K]; `tokens` of the
    text, which are `masked`, `real` and `scored` [B, L]; after `rewrite` the generator's `logits` [B, K, V], the
    encoder's `input`, and which tokens of it are `fake` [B, L]: a token that the generator got right is not.
    """

    token_losses: ClassVar[tuple[str, ...]] = ('generator',)
    variants: ClassVar[dict[str, dict[str, Any]]] = {'clean': ELECTRA}

    weight: Any = 1.0
    generator_weight: Any = 1.0
    temperature: Any = 1.0  # of the sampling
    generator_learning_rate: Any = 1.0  # factor of config.optimizer.learning_rate; needs own_optimizer
    width: Any = struct.field(pytree_node=False, default=None)  # shares of the encoder's
    depth: Any = struct.field(pytree_node=False, default=None)
    embeddings: Any = struct.field(pytree_node=False, default=None)
    own_optimizer: Any = struct.field(pytree_node=False, default=None)  # its gradient is clipped by itself
    disallow_correct: bool = struct.field(pytree_node=False, default=False)  # never sample the token of the text

    def head(self, config: EncoderConfig) -> nn.Module:
        raise NotImplementedError

    def scored(self, example: Example, vocab: Vocabulary, masked_L) -> Array:
        """[L] bool: where the encoder's loss is."""
        return masked_L

    def check(self, key: str) -> None:
        super().check(key)
        o = self.filled()
        for name, default in self.variants[self.variant].items():
            if isinstance(default, bool | float | str):
                check_kind(f'{key}.{name}', default, getattr(o, name))
        for name in ('width', 'depth'):
            if not 0.0 < (share := getattr(o, name)) <= 1.0:
                raise BadInput(
                    f"{key}.{name} is {share:g}; the generator's share of the encoder's {name}, above 0 and at most 1, "
                    'for a generator that is larger leaves nothing to learn'
                )
        one_of(f'{key}.embeddings', o.embeddings, EMBEDDINGS)
        if o.own_optimizer and o.embeddings == 'tied':
            raise BadInput(
                f"{key}.own_optimizer is True, but with {key}.embeddings 'tied' both networks train the same tables; "
                "'untied' or 'gdes' would do"
            )
        for name in ('temperature', 'generator_learning_rate'):
            if not float(getattr(o, name)) > 0:
                raise BadInput(f'{key}.{name} is {float(getattr(o, name)):g}; it must be above 0')
        if float(o.generator_learning_rate) != 1 and not o.own_optimizer:
            raise BadInput(f'{key}.generator_learning_rate needs {key}.own_optimizer=True')

    def as_task(self):
        raise BadInput(
            f'{type(self).__name__} is made by the generator of the arm that trains it, and is measured there'
        )

    def adapt(self, config: EncoderConfig) -> EncoderConfig:
        return dataclasses.replace(config, delta_embeddings=self.embeddings == 'gdes')

    def network(self, config: EncoderConfig) -> EncoderConfig:
        """The generator's sizes, by the rules of google-research/electra run_pretraining.py."""
        width = max(1, round(config.width * self.width))
        layers = max(1, round(config.layers * self.depth))
        own = dataclasses.replace(
            config,
            layers=layers,
            groups=math.gcd(config.groups, layers),
            width=width,
            heads=next(n for n in range(max(1, width // 64), 0, -1) if width % n == 0),
            mlp_width=round(config.mlp_width * width / config.width),
            embedding_width=0 if self.embeddings == 'untied' else config.table_width,
            delta_embeddings=False,
        )
        return dataclasses.replace(own, mask_decoder=own.mask_decoder and own.table_width == width)

    def build(self, config):
        return Networks(Generator(self.network(config), self.embeddings == 'tied'), self.head(config))

    def flops(self, config: EncoderConfig, length: int) -> float:
        own = self.network(config)
        return length * own.flops_per_token(length) + self.k * own.flops_per_prediction

    def groups(self):
        return {'generator': self.generator_learning_rate} if self.own_optimizer else {}

    def base(self, head):
        return head.generator.tables() if self.embeddings == 'gdes' else None

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary):
        selected, label_K, new_K, sample_key = self.draw(key, example, vocab)
        at_K, counts_K = selected.at_K, selected.weight_K > 0
        masked_L = jnp.zeros_like(example.tokens).at[at_K].max(counts_K.astype(example.tokens.dtype)) > 0
        targets = {
            'at': at_K,
            'label': label_K,
            'weight': selected.weight_K,
            'tokens': example.tokens,
            'masked': masked_L.astype(jnp.float32),
            'real': (example.segment_ids > 0).astype(jnp.float32),
            'scored': self.scored(example, vocab, masked_L).astype(jnp.float32),
            'key': jax.random.key_data(sample_key),  # of this row, so that batches do not matter
        }
        # Only what changes is written: of two draws of a position, one that keeps it does not undo the other's [MASK].
        tokens_L = write(view.tokens, at_K, new_K, counts_K & (new_K != label_K))
        return dataclasses.replace(view, tokens=tokens_L), targets

    def rewrite(self, head, encoder, view: View, targets, rates: DropoutRates | None):
        logits_BKV = head.generator(view, targets['at'], rates, encoder.embeddings)
        fake_BK = self.sample(jax.lax.stop_gradient(logits_BKV), targets)
        tokens_BL = jax.vmap(write)(targets['tokens'], targets['at'], fake_BK, targets['weight'] > 0)
        fake_BL = (tokens_BL != targets['tokens']).astype(jnp.float32)
        found = {'logits': logits_BKV, 'input': tokens_BL, 'fake': fake_BL}
        return dataclasses.replace(view, tokens=tokens_BL), targets | found

    def sample(self, logits_BKV, targets) -> Array:
        """[B, K]: tokens from the generator's distribution, as the largest of logits with Gumbel noise."""
        if self.disallow_correct:
            is_label_BKV = jnp.arange(logits_BKV.shape[-1])[None, None] == targets['label'][..., None]
            logits_BKV = jnp.where(is_label_BKV, -jnp.inf, logits_BKV)
        noise = lambda key: jax.random.gumbel(jax.random.wrap_key_data(key), logits_BKV.shape[1:])
        return (logits_BKV / self.temperature + jax.vmap(noise)(targets['key'])).argmax(-1).astype(jnp.int32)

    def weights(self, targets):
        return {'generator': targets['weight'].sum(-1), 'loss': targets['scored'].sum(-1)}

    def scores(self, head, x_BKD, table_VE, targets) -> tuple[dict[str, Loss], dict[str, Term]]:
        logits_BKV, label_BK, weight_BK = targets['logits'], targets['label'], targets['weight']
        generator = Loss(self.generator_weight, losses.cross_entropy(logits_BKV, label_BK, weight_BK))
        metrics = {
            'generator_accuracy': losses.hits(logits_BKV, label_BK, weight_BK),
            'fakes_of_masked': losses.term(targets['fake'], targets['masked']),
            'fakes_of_real': losses.term(targets['fake'], targets['real']),
        }
        own, more = self.head_scores(head.head, x_BKD, table_VE, targets)
        return {'generator': generator} | own, metrics | more

    def head_scores(self, head, x_BKD, table_VE, targets) -> tuple[dict[str, Loss], dict[str, Term]]:
        """Of `head`, without the generator's."""
        return super().scores(head, x_BKD, table_VE, targets)

    def warnings(self, means: dict[str, float]) -> list[str]:
        if means['fakes_of_real'] < 0.01:
            return ['fewer than 1 % of the tokens are fakes: the generator may be too good, or the mask rate too low']
        return []
