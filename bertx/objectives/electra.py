"""Replaced token detection (Clark et al. 2020): which tokens of a text are samples of a generator? Label 1: these.

The loss is over all real tokens, [CLS] and [SEP] included, in every variant; with loss='masked' over those only that
were masked (the paper's ELECTRA 15%).

clean      distinct masked positions, and as many as the rate says on average
original   google-research/electra: positions drawn with replacement. One drawn twice counts twice in the generator's
           loss and gets the floor of the mean of two sampled ids, any token. Its text pipeline is not part of this
deberta    microsoft/DeBERTa rtd_task.py (DeBERTaV3): 100 % [MASK], one in each 6 tokens and hardly any in the last
           tenth of a row; a generator of half the depth and the full width with an optimizer of its own;
           embeddings='gdes'; the head reads [CLS] too. There the encoder's step follows the generator's, here both are
           taken at once
"""

from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from bertx import heads, losses
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput
from bertx.objectives.generator import ELECTRA, GeneratorObjective
from bertx.replace import Split
from bertx.select import Stratified, Tokens
from bertx.types import Encoded, Loss, Term

DEBERTA = {
    'select': Stratified(variant='original'),
    'replace_by': Split(mask=1.0, random=0.0),
    'width': 1.0,
    'depth': 0.5,  # experiments/language_model/rtd_base.json
    'embeddings': 'gdes',
    'own_optimizer': True,
    'weight': 10.0,  # --rtd_lambda; the paper says 50
}


class NormedHead(nn.Module):
    """DeBERTaV3's: a LayerNorm before ELECTRA's (replaced_token_detection_model.py)."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, x_BLD):
        c = self.config
        return heads.ClassHead(c, 1, name='detect')(nn.LayerNorm(c.norm_eps, dtype=c.compute_dtype, name='norm')(x_BLD))


def within_row_auc(logit_BL, fake_BL, weight_BL) -> Term:
    """Of the pairs of a fake and an original of one row, how often the fake has the larger logit; a tie counts half.

    Pairs across rows are left out, so that it is a sum per example like every Term; each pair weighs the same. Padding
    is in no pair (in google-research/electra's disc_auc it counts as originals scored right).
    """
    fake_BL, original_BL = fake_BL * weight_BL, (1.0 - fake_BL) * weight_BL
    difference_BLL = logit_BL[:, :, None] - logit_BL[:, None, :]
    won_BL = ((jnp.sign(difference_BLL) + 1.0) / 2.0 * original_BL[:, None, :]).sum(-1)
    return Term((won_BL * fake_BL).sum(-1), fake_BL.sum(-1) * original_BL.sum(-1))


@struct.dataclass
class Electra(GeneratorObjective):
    variants: ClassVar = {
        'clean': ELECTRA | {'weight': 50.0},  # disc_weight in google-research/electra configure_pretraining.py
        'original': ELECTRA | {'weight': 50.0, 'select': Tokens(variant='electra')},
        'deberta': DEBERTA,
    }

    weight: Any = None
    loss: str = struct.field(pytree_node=False, default='all')

    def check(self, key: str) -> None:
        super().check(key)
        if self.loss not in ('all', 'masked'):
            raise BadInput(f"{key}.loss is {self.loss!r}; 'all' or 'masked' would do")

    def head(self, config):
        return NormedHead(config) if self.variant == 'deberta' else heads.ClassHead(config, 1)

    def scored(self, example, vocab, masked_L):
        return masked_L if self.loss == 'masked' else example.segment_ids > 0

    def features(self, encoded: Encoded, targets):
        """[B, L, D]; with DeBERTa's head the vector of the row's or packed text's first token is added to each."""
        x_BLD = encoded.hidden_BLD
        if self.variant != 'deberta':
            return x_BLD
        first_BL = jnp.maximum(jnp.arange(x_BLD.shape[1])[None] - encoded.view.positions, 0)
        return x_BLD + heads.gather(x_BLD, first_BL)

    def head_scores(self, head, x_BKD, table_VE, targets):
        logit_BL, fake_BL, weight_BL = head(x_BKD)[..., 0], targets['fake'], targets['scored']
        called_BL = logit_BL > 0
        return {'loss': Loss(self.weight, losses.binary_cross_entropy(logit_BL, fake_BL, weight_BL))}, {
            'accuracy': losses.term(called_BL == (fake_BL > 0), weight_BL),
            'auc': within_row_auc(logit_BL, fake_BL, weight_BL),
            'precision': losses.term(fake_BL, called_BL * weight_BL),
            'recall': losses.term(called_BL, fake_BL * weight_BL),
            'called_fake': losses.term(called_BL, weight_BL),
        }

    def flops(self, config, length):
        return super().flops(config, length) + length * config.flops_per_class(1)

    def warnings(self, means):
        found = super().warnings(means)
        if not 0.001 <= means['called_fake'] <= 0.999:
            found.append('the discriminator says the same of all tokens: it has not learned yet, or fakes are few')
        return found
