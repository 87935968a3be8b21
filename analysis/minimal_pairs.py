"""Which of two sentences does a masked language model find likelier? BLiMP by paradigm and phenomenon.

    python -m analysis.minimal_pairs --checkpoint=FOLDER --data=blimp.jsonl.gz --pairs=100 --out=probes/blimp

FOLDER needs a head that predicts masked tokens. Pseudo-log-likelihood (Salazar et al. 2020): the sum over pieces of
their log-probability when masked, [CLS] and [SEP] not scored; `original` masks one piece at a time, `l2r` also the
later pieces of its word (Kauf & Ivanova 2023), so that a rare word of many pieces is no longer a likely one.
"""

import collections
import dataclasses
import functools
import gzip
import json
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from rich.console import Console
from rich.progress import track

from analysis.probing import features
from analysis.probing.features import Pieces, view_of
from analysis.report import page
from bertx import heads
from bertx.encoder import encode
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, one_of
from bertx.pretrained import Pretrained
from bertx.report import stats
from bertx.text.tokenizer import Tokenizer
from experiments import cli

KEYS = ('UID', 'linguistics_term', 'sentence_good', 'sentence_bad')
VARIANTS = ('l2r', 'original')


def pieces(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[Pieces]:
    """Words are the tokenizer's, so a full stop is one: as a part of the word before, it would be masked with it."""
    return [features.row(tokenizer, ids, np.cumsum(starts) - 1, limit) for ids, starts in tokenizer.encode(texts)]


def masked_rows(p: Pieces, mask: int, variant: str) -> tuple[np.ndarray, np.ndarray]:
    """(tokens [n, L], places [n]): a row for each of the n pieces, where what it asks for is masked."""
    at = np.flatnonzero(p.word_L >= 0)
    hidden = at[:, None] == np.arange(len(p.tokens_L))
    if variant == 'l2r':
        hidden |= (p.word_L[at][:, None] == p.word_L) & (np.arange(len(p.tokens_L)) > at[:, None])
    return np.where(hidden, mask, p.tokens_L).astype(np.int32), at


@functools.partial(jax.jit, static_argnums=0)
def _log_probability(config: EncoderConfig, params, tokens_BL, segment_BL, at_B, token_B):
    """[B]: of each row's token at its place."""
    encoded = encode(config, params['encoder'], view_of(tokens_BL, segment_BL))
    x_B1D = heads.gather(encoded.for_tokens, at_B[:, None])
    logits: Any = heads.TokenHead(config).apply({'params': params['head']}, x_B1D, encoded.table_VE)
    return jnp.take_along_axis(jax.nn.log_softmax(logits[:, 0]), token_B[:, None], 1)[:, 0]


def scores(model: Pretrained, texts: Sequence[str], variant: str = 'l2r') -> np.ndarray:
    """[texts]: pseudo-log-likelihood in nats; NaN for a text without pieces, or longer than the model reads."""
    one_of('--variant', variant, VARIANTS)
    head = model.params.get('heads_mlm')
    if head is None:
        there = ', '.join(model.heads) or 'none'
        raise BadInput(f'{model.folder} has no head that predicts masked tokens (heads_mlm); its heads: {there}')
    params = {'encoder': model.params['encoder'], 'head': head}
    rows = pieces(model.tokenizer, texts, features.longest(model))
    masked = [masked_rows(p, model.tokenizer.mask_id, variant) for p in rows]
    owner = np.repeat(np.arange(len(rows)), [len(at) for _, at in masked])
    pairs = zip(rows, masked, strict=True)
    tokens = [dataclasses.replace(p, tokens_L=row) for p, (tokens_nL, _) in pairs for row in tokens_nL]
    places = np.concatenate([at for _, at in masked]).astype(np.int32)
    wanted = np.concatenate([p.tokens_L[at] for p, (_, at) in zip(rows, masked, strict=True)])
    total = np.zeros(len(rows))
    parts = list(features.batches([len(p.tokens_L) for p in tokens]))
    for length, index, real in track(parts, 'pseudo-likelihoods', console=Console(stderr=True)):
        tokens_BL, segment_BL = features.padded([tokens[i] for i in index], length, model.tokenizer.pad_id)
        asked = places[index], wanted[index]
        log_B = np.asarray(_log_probability(model.encoder, params, tokens_BL, segment_BL, *asked))
        np.add.at(total, owner[index[:real]], log_B[:real])
    whole = np.array([p.whole and len(m[1]) > 0 for p, m in zip(rows, masked, strict=True)])
    return np.where(whole, total, np.nan)


def read(path: str, pairs: int) -> list[dict[str, Any]]:
    """BLiMP's lines, at most so many of each paradigm."""
    file, counts, found = Path(path).expanduser(), collections.Counter[str](), []
    if not file.is_file():
        raise BadInput(f'--data={path}: no such file; give blimp.jsonl or blimp.jsonl.gz')
    try:
        with gzip.open(file, 'rt') if file.suffix == '.gz' else file.open() as stream:
            lines_read = stream.read().splitlines()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise BadInput(f'--data={path} cannot be read ({error}); give blimp.jsonl or blimp.jsonl.gz') from None
    for number, line in enumerate(lines_read, 1):
        try:
            pair = json.loads(line)
            key: str = [pair[name] for name in KEYS][0]
        except (ValueError, KeyError, TypeError):
            keys = 'UID, linguistics_term, sentence_good and sentence_bad'
            raise BadInput(f'{path}:{number}: no pair; keys {keys}') from None
        if not all(isinstance(pair[name], str) for name in KEYS):
            raise BadInput(f'{path}:{number}: a value of the pair is no text')
        counts[key] += 1
        if counts[key] <= pairs:
            found.append(pair)
    if not found:
        raise BadInput(f'--data={path} gives no pairs with --pairs={pairs}; 1 or more of a file that has some would do')
    return found


def wilson(hits: float, count: float) -> tuple[float, float, float]:
    """A share and its 95 % interval (Wilson 1927), which has a width at 0 and 1, too; NaN of nothing."""
    if not count:
        return (math.nan,) * 3
    share, z = hits / count, 1.96
    middle, half = share + z**2 / (2 * count), z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    low, high = ((middle + sign * half) / (1 + z**2 / count) for sign in (-1, 1))
    return share, low, high


def lines(pairs: list[dict[str, Any]], hit_N: np.ndarray) -> list[list[str]]:
    """Overall, then phenomena with their paradigms below. Intervals: of a paradigm over its pairs, above over
    paradigms, each of which has one template; they say nothing of other seeds."""
    term, uid = (np.array([pair[name] for pair in pairs]) for name in ('linguistics_term', 'UID'))
    there_N = ~np.isnan(hit_N)

    def line(name, mine) -> list[str]:
        hits, count = np.nan_to_num(hit_N)[mine], there_N[mine].astype(float)
        names, number = np.unique(uid[mine], return_inverse=True)
        if len(names) == 1:
            value, low, high = wilson(hits.sum(), count.sum())
        else:
            e = stats.mean(np.bincount(number, hits)[None], np.bincount(number, count))
            value, low, high = e.value, max(0.0, e.low), min(1.0, e.high)
        return [name, f'{value:.3f} [{low:.3f}, {high:.3f}]', f'{int(count.sum()):,}']

    rows = [['phenomenon, paradigm', 'accuracy', 'pairs'], line('all', term == term)]
    for name in np.unique(term):
        rows.append(line(str(name), term == name))
        rows += [line(f'- {paradigm}', uid == paradigm) for paradigm in np.unique(uid[term == name])]
    return rows


def main() -> int:
    f: Any = flags.FLAGS
    model, out, pairs = Pretrained.load(f.checkpoint), page.folder(f.out), read(f.data, f.pairs)
    texts = [pair[name] for pair in pairs for name in ('sentence_good', 'sentence_bad')]
    good, bad = scores(model, texts, f.variant).reshape(-1, 2).T
    hit_N = np.where(np.isnan(good) | np.isnan(bad), np.nan, (good > bad) + 0.5 * (good == bad))
    rows = lines(pairs, hit_N)
    note = f'pseudo-log-likelihood, variant {f.variant}; a tie counts half; people: 0.886 (Warstadt et al. 2020)'
    note += '; 95 % intervals: of a paradigm over its pairs (Wilson), of more over paradigms'
    if left_out := int(np.isnan(hit_N).sum()):
        note += f'; {left_out} pairs left out, as a sentence is longer than the model reads or has no pieces'
    out.mkdir(parents=True, exist_ok=True)
    np.savez(out / 'blimp.npz', good=good, bad=bad)
    text, sections = f'{page.markdown(rows)}\n{note}\n', [page.Section('BLiMP', note, rows=rows)]
    page.finish(out, 'blimp', f'Minimal pairs, {f.checkpoint}', text, sections)
    return cli.DONE


if __name__ == '__main__':
    flags.DEFINE_string('checkpoint', None, 'A run, or a Hugging Face folder, with an MLM head.')
    flags.DEFINE_string('data', None, 'BLiMP: JSON lines, .gz too.')
    flags.DEFINE_string('out', None, 'Where everything is written.')
    flags.DEFINE_string('variant', 'l2r', 'l2r or original.')
    flags.DEFINE_integer('pairs', 100, 'Of each paradigm at most.', lower_bound=1)
    cli.run(main, required=('checkpoint', 'data', 'out'))
