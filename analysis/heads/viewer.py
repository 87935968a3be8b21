"""An attention viewer for an HTML page that needs no network: lines between tokens, one layer and head at a time."""

import base64
import json
from collections.abc import Sequence

import numpy as np

from analysis.heads import weights
from analysis.probing import features
from analysis.probing.features import Corpus
from analysis.report import page
from bertx.errors import BadInput
from bertx.pretrained import Pretrained

LONGEST = 128  # tokens: 12 x 12 heads are then 3.2 MB


def html(model: Pretrained, texts: Sequence[str]) -> str:
    """A piece of HTML with the attention of these texts, each weight as a byte."""
    rows = Corpus([text.split() for text in texts]).pieces(model.tokenizer, features.longest(model))
    if not rows or max(len(p.tokens_L) for p in rows) > LONGEST:
        raise BadInput(f'the attention viewer shows texts of up to {LONGEST} tokens; give a shorter --text')
    pieces = {i: piece for piece, i in model.tokenizer.vocabulary.items()}
    shown = []
    for i, a_NHQK, _ in weights.maps(model, rows):
        data = base64.b64encode(np.round(255 * a_NHQK).astype(np.uint8).tobytes()).decode()
        tokens = [pieces[int(token)] for token in rows[i].tokens_L]
        shown.append({'tokens': tokens, 'layers': len(a_NHQK), 'heads': a_NHQK.shape[1], 'data': data})
    # In a script a text may not end it; JSON allows to write < otherwise.
    return page.render('viewer.html', data=json.dumps(shown).replace('<', '\\u003c'))
