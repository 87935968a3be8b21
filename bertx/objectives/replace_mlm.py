"""Replace MLM (Clark et al. 2020, section 3.4): as MLM, but samples of a generator stand where [MASK] would.

An ablation of ELECTRA without released code: is it worth something that the encoder never sees [MASK]?
"""

from typing import ClassVar

from flax import struct

from bertx import heads
from bertx.objectives.generator import GeneratorObjective


@struct.dataclass
class ReplaceMLM(GeneratorObjective):
    token_losses: ClassVar[tuple[str, ...]] = ('generator', 'loss')

    def head(self, config):
        return heads.TokenHead(config)

    def weights(self, targets):
        return {name: targets['weight'].sum(-1) for name in ('generator', 'loss')}

    def flops(self, config, length):
        return super().flops(config, length) + self.k * config.flops_per_prediction
