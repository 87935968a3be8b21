"""Sentence structure (Wang et al. 2020, StructBERT): does B follow A, precede it, or come from another document?

Label 0: follows, 1: precedes (the two are swapped), 2: of another document, a third of the pairs each. The chunks are
those of NSP and SOP, so the three read the same sentences.
"""

from typing import ClassVar

from flax import struct

from bertx.errors import BadInput
from bertx.objectives.pair import PairObjective


@struct.dataclass
class ThreeWay(PairObjective):
    label: ClassVar[str] = 'three_way'
    classes: ClassVar[int] = 3

    def check(self, key: str) -> None:
        if self.variant != 'clean':
            raise BadInput(
                f"{key}.variant is {self.variant!r}; 'clean' would do: StructBERT's pair code was not released"
            )
