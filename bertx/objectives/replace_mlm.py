"""Replace MLM (Clark et al. 2020, section 3.4): as MLM, but samples of a generator stand where [MASK] would.

An ablation of ELECTRA without released code: is it worth something that the encoder never sees [MASK]?
"""

from typing import ClassVar

from flax import struct

from bertx import heads, losses
from bertx.objectives.generator import GeneratorObjective
from bertx.types import Loss


@struct.dataclass
class ReplaceMLM(GeneratorObjective):
    token_losses: ClassVar[tuple[str, ...]] = ('generator', 'loss')

    def head(self, config):
        return heads.TokenHead(config)

    def weights(self, targets):
        return {name: targets['weight'].sum(-1) for name in ('generator', 'loss')}

    def scores(self, head, x_BKD, table_VE, targets):
        own, metrics = self.generator_scores(targets)
        logits_BKV, label_BK, weight_BK = head.head(x_BKD, table_VE), targets['label'], targets['weight']
        loss = Loss(self.weight, losses.cross_entropy(logits_BKV, label_BK, weight_BK))
        return own | {'loss': loss}, metrics | {'accuracy': losses.hits(logits_BKV, label_BK, weight_BK)}

    def flops(self, config, length):
        return super().flops(config, length) + self.k * config.flops_per_prediction
