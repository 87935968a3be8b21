"""Next sentence prediction (Devlin et al. 2019): does B follow A, or come from another document? Label 1: another.

clean      labels exactly balanced; a negative takes the B of another document's pair of nearly the same length, so that
           every arm reads the same sentences and neither length nor topic frequency tells the label
original   google-research/bert: also negative wherever a chunk has one sentence, random B from up to ten tries
"""

from typing import ClassVar

from flax import struct

from bertx.objectives.pair import PairObjective


@struct.dataclass
class NSP(PairObjective):
    label: ClassVar[str] = 'nsp'
