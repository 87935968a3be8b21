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
from bertx.errors import BadInput, one_of
from bertx.objectives.base import Needs, Objective
from bertx.replace import REPLACE, Split, per_unit
from bertx.select import SELECT, NGrams, Spans, Stratified, Tokens, Units
from bertx.types import Example, View, Vocabulary

# variant -> what is selected, what is written there. The quirks are told where the parts are defined.
PRESETS: dict[str, tuple[Any, Any]] = {
    'clean': (Tokens(), Split()),
    # google-research/bert create_pretraining_data.py: special tokens count in the length and may replace
    'original': (Tokens(variant='bert'), Split(random_from='vocabulary')),
    # google-research/albert create_pretraining_data.py: n-grams that may lie across [SEP], else as BERT
    'albert': (NGrams(variant='original'), Split(random_from='vocabulary')),
    # facebookresearch/SpanBERT masking.py: first positions masked less, one draw of 80/10/10 for a span
    'spanbert': (Spans(variant='original'), Split(random_from='unigram', per='unit')),
    # fairseq mask_tokens_dataset.py: special tokens predicted too, [MASK] among the random tokens
    'roberta': (Tokens(variant='roberta'), Split(random_from='fairseq')),
    # microsoft/DeBERTa mlm_task.py: one in each 6 tokens, hardly any in the last tenth of the row
    'deberta': (Stratified(variant='original'), Split(random_from='vocabulary')),
    # google-research/electra pretrain_helpers.py: positions drawn with replacement, 15 % kept, none random
    'electra': (Tokens(variant='electra'), Split(mask=0.85, random=0.0)),
}
# Their masks are made once, by the same host code, and are seen every `dupe_factor` epochs.
STATIC = ('original', 'albert')


@struct.dataclass
class MLM(Objective):
    """`corrupted` and `predicted` are shares of the selected units (Wettig et al. 2023, "Should you mask 15%?"): those
    that are written over, and those that have a loss. At least one is 1: what has neither is not selected, see rate.
    """

    writes_tokens: ClassVar[bool] = True
    token_losses: ClassVar[tuple[str, ...]] = ('loss',)
    parts: ClassVar = {'select': SELECT, 'replace_by': REPLACE}
    presets: ClassVar = PRESETS

    select: Any = None  # None: the variant's own
    replace_by: Any = None
    corrupted: Any = 1.0
    predicted: Any = 1.0
    weight: Any = 1.0
    k: int = struct.field(pytree_node=False, default=0)  # slots for predicted positions; 0: from the rate and length
    variant: str = struct.field(pytree_node=False, default='clean')
    static: bool = struct.field(pytree_node=False, default=False)  # masks seen every `dupe_factor` epochs, as BERT's

    @property
    def needs(self) -> Needs:
        select = self.select or self.presets[self.variant][0]
        return Needs(
            original=self.variant in STATIC,
            one_input=self.variant != 'clean' or select.variant != 'clean',
            static=self.static or self.variant in STATIC,
            words=select.needs_words,
            units=isinstance(select, Units),
        )

    @classmethod
    def preset(cls, arguments, field):
        parts = cls.presets.get(arguments.get('variant', 'clean'))
        return parts and parts[('select', 'replace_by').index(field)]

    def check(self, key: str) -> None:
        one_of(f'{key}.variant', self.variant, self.presets)
        if self.k < 0:
            raise BadInput(f'{key}.k is {self.k}; 0, for as many as the rate needs, or more would do')
        if self.select is not None:
            self.select.check(f'{key}.select')
            if self.variant != 'clean' and self.select.variant == 'clean':
                raise BadInput(
                    f"{key}.select.variant is 'clean' under {key}.variant {self.variant!r}; "
                    f'say {" or ".join(map(repr, self.select.variants[1:]))}, or leave out one of the two'
                )
        if self.replace_by is not None:
            self.replace_by.check(f'{key}.replace_by')
        for name in ('corrupted', 'predicted'):
            if not 0.0 < float(getattr(self, name)) <= 1.0:
                raise BadInput(f'{key}.{name} is {float(getattr(self, name)):g}; above 0 and at most 1 would do')
        if max(float(self.corrupted), float(self.predicted)) < 1.0:
            raise BadInput(f'{key}.corrupted and .predicted are both below 1; set one to 1, and select.rate lower')

    def sized(self, length: int) -> 'MLM':
        select, replace_by = (
            self.select or self.presets[self.variant][0],
            self.replace_by or self.presets[self.variant][1],
        )
        least = select.least(length)
        if 0 < self.k < least:
            raise BadInput(f'k is {self.k}; for rows of {length} the rate needs {least} or more')
        k = min(self.k or select.slots(length), length)
        return dataclasses.replace(self, select=select, replace_by=replace_by, k=k)

    def as_task(self) -> 'MLM':
        """[MASK] at every predicted position. Of BERT's 80/10/10 the tenth that is kept can be copied, which predicts
        nothing: unigrams and copies had 0.15 where masked tokens had 0.075, and arms differ in what they can copy."""
        return dataclasses.replace(self, replace_by=Split(mask=1.0, random=0.0))

    def build(self, config):
        return heads.TokenHead(config)

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary):
        select_key, replace_key, share_key = jax.random.split(key, 3)
        selected = self.select(select_key, example, vocab, self.k)
        at_K, weight_K = selected.at_K, selected.weight_K
        label_K = example.tokens[at_K]
        new_K = self.replace_by(replace_key, label_K, selected.unit_K, vocab)
        share_K = per_unit(jax.random.uniform(share_key, at_K.shape), selected.unit_K)
        written_K = (weight_K > 0) & (share_K < self.corrupted) & (new_K != label_K)
        # By max, not set: ELECTRA's slots may hold a position twice, and the order of writing must not matter.
        new_L = jnp.full_like(view.tokens, -1).at[at_K].max(jnp.where(written_K, new_K, -1))
        targets = {'at': at_K, 'label': label_K, 'weight': weight_K * (share_K < self.predicted)}
        return dataclasses.replace(view, tokens=jnp.where(new_L >= 0, new_L, view.tokens)), targets
