"""Sentence order prediction (Lan et al. 2020): are A and B in the order of the text? Label 1: swapped.

clean      swaps only, exactly balanced
original   google-research/albert: a chunk of a single sentence takes a random document's B and label 1
"""

from typing import ClassVar

from flax import struct

from bertx.objectives.pair import PairObjective


@struct.dataclass
class SOP(PairObjective):
    label: ClassVar[str] = 'sop'
