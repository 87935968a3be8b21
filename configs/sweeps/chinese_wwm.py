"""Characters or whole words, in Chinese: Cui et al. 2021 (BERT-wwm).

    python -m experiments.sweep --config=configs/sweeps/chinese_wwm.py:tiny --workdir=runs/chinese_wwm \\
        --config.data.source='text:FILES'

Words by jieba. The paper's gains are of 0.5 to 1 point on Chinese reading comprehension (CMRC 2018), after far longer
training.
"""

from bertx.sweep import Sweep, arm, chain
from configs import papers


def get_config(scale: str = 'tiny'):
    config = papers.at(scale, steps=400)
    config.data.update(source='text:chinese', language='zh', words='jieba')
    return config


def sweep() -> Sweep:
    return papers.runs(
        chain(
            arm('characters', objectives={'mlm': {}}),
            arm('whole words', objectives={'mlm': {'select': {'name': 'whole_words'}}}),
        )
    )
