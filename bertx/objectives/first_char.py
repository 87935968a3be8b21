"""First Char (Yamaguchi et al. 2021; Alajrami & Aletras 2022): with which character does a masked token begin?

Selection and replacement are MLM's. The 29 classes are `Vocabulary.first_char_V`, see bertx/text/tables.py.
"""

from typing import ClassVar

from flax import struct

from bertx import heads
from bertx.objectives.mlm import MLM
from bertx.types import FIRST_CHARS, Example, View, Vocabulary


@struct.dataclass
class FirstChar(MLM):
    token_losses: ClassVar[tuple[str, ...]] = ()  # of classes

    def build(self, config):
        return heads.ClassHead(config, FIRST_CHARS)

    def flops(self, config, length):
        return 2.0 * self.k * config.width * (config.width + FIRST_CHARS)

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary):
        view, targets = super().corrupt(key, example, view, vocab)
        return view, targets | {'label': vocab.first_char_V[targets['label']]}
