r"""Characters or whole words, in Chinese: BERT-wwm (Cui et al. 2019).

    python -m experiments.sweep --config=configs/sweeps/chinese_wwm.py:tiny --workdir=runs/chinese_wwm \
        --config.data.source='text:FILES'

Words by jieba (`pip install jieba`). The paper's figures are means of ten fine-tunings; its wwm model went on from
BERT's weights, here both arms begin at random. One learning rate for both, as the authors advise. There is no
downstream column.
"""

from bertx.report.published import Published, of_table
from bertx.sweep import Sweep, arm
from configs import papers


def get_config(scale: str = 'tiny'):
    config = papers.at(scale, steps=400)
    config.data.update(source='text:chinese', language='zh', words='jieba')
    return config


def sweep() -> Sweep:
    return papers.runs(
        arm('characters', objectives={'mlm': {}}),
        arm('whole words', objectives={'mlm': {'select': {'name': 'whole_words'}}}),
    )


def published() -> list[Published]:
    rows = {'characters': (84.0, 77.5), 'whole words': (84.7, 78.0)}
    return of_table(('CMRC 2018', 'XNLI'), 'characters', rows, papers.ERA)
