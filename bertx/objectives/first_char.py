"""First Char (Yamaguchi et al. 2021; Alajrami & Aletras 2022): with which character does a masked token begin?

Selection and replacement are MLM's. The 29 classes are `Vocabulary.first_char_V`, see bertx/text/tables.py.
"""

from typing import ClassVar

from flax import struct

from bertx.objectives.token_type import TokenType
from bertx.types import FIRST_CHARS


@struct.dataclass
class FirstChar(TokenType):
    table: ClassVar[str] = 'first_char_V'
    classes: ClassVar[int] = FIRST_CHARS
