"""Masked language modelling (Devlin et al. 2019): what is selected, and what is written there, are parts to choose.

`variant` presets both, and says how the host builds rows. clean: masks drawn anew each epoch, never on a special token,
each position as often as any other; random replacements are text. The others are the released codes, see PRESETS.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from bertx import heads
from bertx.errors import BadInput
from bertx.objectives.base import Needs
from bertx.objectives.masking import Masking
from bertx.replace import Split, per_unit
from bertx.select import NGrams, Spans, Stratified, Tokens
from bertx.types import Example, View, Vocabulary

# The quirks are told where the parts are defined.
PRESETS: dict[str, dict[str, Any]] = {
    'clean': {'select': Tokens(), 'replace_by': Split()},
    # google-research/bert create_pretraining_data.py: special tokens count in the length and may replace
    'original': {'select': Tokens(variant='bert'), 'replace_by': Split(random_from='vocabulary')},
    # google-research/albert create_pretraining_data.py: n-grams that may lie across [SEP], else as BERT
    'albert': {'select': NGrams(variant='original'), 'replace_by': Split(random_from='vocabulary')},
    # facebookresearch/SpanBERT masking.py: first positions masked less, one draw of 80/10/10 for a span
    'spanbert': {'select': Spans(variant='original'), 'replace_by': Split(random_from='unigram', per='unit')},
    # fairseq mask_tokens_dataset.py: special tokens predicted too, [MASK] among the random tokens
    'roberta': {'select': Tokens(variant='roberta'), 'replace_by': Split(random_from='fairseq')},
    # microsoft/DeBERTa mlm_task.py: one in each 6 tokens, hardly any in the last tenth of the row
    'deberta': {'select': Stratified(variant='original'), 'replace_by': Split(random_from='vocabulary')},
    # google-research/electra pretrain_helpers.py: positions drawn with replacement, 15 % kept, none random
    'electra': {'select': Tokens(variant='electra'), 'replace_by': Split(mask=0.85, random=0.0)},
}
# Their masks are made once, by the same host code, and are seen every `dupe_factor` epochs.
STATIC = ('original', 'albert')


@struct.dataclass
class MLM(Masking):
    """`corrupted` and `predicted` are shares of the selected units (Wettig et al. 2023, "Should you mask 15%?"): those
    that are written over, and those that have a loss. At least one is 1: what has neither is not selected, see rate.
    """

    token_losses: ClassVar[tuple[str, ...]] = ('loss',)
    variants: ClassVar = PRESETS

    corrupted: Any = 1.0
    predicted: Any = 1.0
    weight: Any = 1.0
    static: bool = struct.field(pytree_node=False, default=False)  # masks seen every `dupe_factor` epochs, as BERT's

    @property
    def needs(self) -> Needs:
        original = self.variant in STATIC
        return dataclasses.replace(super().needs, original=original, static=self.static or original)

    def check(self, key: str) -> None:
        super().check(key)
        for name in ('corrupted', 'predicted'):
            if not 0.0 < float(getattr(self, name)) <= 1.0:
                raise BadInput(f'{key}.{name} is {float(getattr(self, name)):g}; above 0 and at most 1 would do')
        if max(float(self.corrupted), float(self.predicted)) < 1.0:
            raise BadInput(f'{key}.corrupted and .predicted are both below 1; set one to 1, and select.rate lower')

    def as_task(self) -> 'MLM':
        """[MASK] at every predicted position. Of BERT's 80/10/10 the tenth that is kept can be copied, which predicts
        nothing: unigrams and copies had 0.15 where masked tokens had 0.075, and arms differ in what they can copy."""
        return dataclasses.replace(self, replace_by=Split(mask=1.0, random=0.0))

    def build(self, config):
        return heads.TokenHead(config)

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary):
        selected, label_K, new_K, share_key = self.draw(key, example, vocab)
        at_K, weight_K = selected.at_K, selected.weight_K
        share_K = per_unit(jax.random.uniform(share_key, at_K.shape), selected.unit_K)
        written_K = (weight_K > 0) & (share_K < self.corrupted) & (new_K != label_K)
        # By max, not set: ELECTRA's slots may hold a position twice, and the order of writing must not matter.
        new_L = jnp.full_like(view.tokens, -1).at[at_K].max(jnp.where(written_K, new_K, -1))
        targets = {'at': at_K, 'label': label_K, 'weight': weight_K * (share_K < self.predicted)}
        return dataclasses.replace(view, tokens=jnp.where(new_L >= 0, new_L, view.tokens)), targets
