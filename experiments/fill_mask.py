"""The likeliest tokens for each [MASK] of a text.

    python -m experiments.fill_mask --from=FOLDER --text='The state of the [MASK] is strong.'
    python -m experiments.fill_mask --from=FOLDER --text='The [MASK] [MASK] of America.' --iterations=4

FOLDER is a run, or a Hugging Face folder. With --iterations several masks are also chosen together (Mask-Predict), and
printed beside the independent choices with the log-probability of each choice as a whole.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import flags

from bertx import fill_mask
from bertx.errors import BadInput
from bertx.pretrained import Pretrained
from experiments import cli


def lines(folder: str, text: str, top: int, iterations: int | None) -> Iterator[str]:
    if iterations is not None and iterations < 1:
        raise BadInput(f'--iterations={iterations}; 1 or more would do')
    model = Pretrained.load(folder)
    tokenizer = model.tokenizer
    if not 1 <= top <= tokenizer.vocab_size:
        raise BadInput(f'--top={top}; from 1 to {tokenizer.vocab_size}, the size of the vocabulary, would do')
    row = fill_mask.read(tokenizer, text)
    predict = fill_mask.predictor(model.encoder, model.params, row)

    yield tokenizer.decode(row.tokens_L)
    for number, log_V in enumerate(predict(row.tokens_L), 1):
        yield f'[MASK] {number}'
        for token in np.argsort(-log_V, kind='stable')[:top]:
            yield f'  {np.exp(log_V[token]):.4f}  {tokenizer.decode([token])}'
    for total in sorted({1, iterations}) if iterations else ():
        new_K = fill_mask.mask_predict(predict, row, tokenizer.mask_id, total)
        words = ' '.join(tokenizer.decode([token]) for token in new_K)
        name = 'independent' if total == 1 else f'{total} iterations'
        yield f'{name}: {words} (log-probability {fill_mask.joint(predict, row, new_K):.4f})'


def main() -> int:
    f: Any = flags.FLAGS
    for line in lines(f['from'].value, f.text, f.top, f.iterations):
        print(line)
    return cli.DONE


if __name__ == '__main__':
    flags.DEFINE_string('from', None, 'A run, or a Hugging Face folder.')
    flags.DEFINE_string('text', None, 'A text with one [MASK] or more.')
    flags.DEFINE_integer('top', 5, 'How many tokens are shown for each.')
    flags.DEFINE_integer('iterations', None, 'Of Mask-Predict; without it, each mask is filled by itself.')
    cli.run(main, required=('from', 'text'))
