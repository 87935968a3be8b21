"""Token Type (Yamaguchi et al. 2021): is a masked token a content word, a stop word, digits or punctuation?

Selection and replacement are MLM's. The classes are `Vocabulary.type_V`, see bertx/text/tables.py.
"""

from typing import ClassVar

from flax import struct

from bertx import heads
from bertx.objectives.mlm import MLM
from bertx.types import TOKEN_TYPES, Example, View, Vocabulary


@struct.dataclass
class TokenType(MLM):
    token_losses: ClassVar[tuple[str, ...]] = ()  # of classes
    table: ClassVar[str] = 'type_V'  # of the Vocabulary: the class of each token
    classes: ClassVar[int] = TOKEN_TYPES

    def build(self, config):
        return heads.ClassHead(config, self.classes)

    def flops(self, config, length):
        return self.k * config.flops_per_class(self.classes)

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary):
        view, targets = super().corrupt(key, example, view, vocab)
        return view, targets | {'label': getattr(vocab, self.table)[targets['label']]}
