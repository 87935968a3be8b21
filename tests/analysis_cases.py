"""A small treebank, a small encoder with numbers everywhere, and checkpoints of it, for the tests of analysis/."""

import dataclasses
import json

import jax
import numpy as np

from analysis.probing.conllu import Sentence
from analysis.probing.features import view_of
from bertx import heads
from bertx.checkpoint import write_parameters
from bertx.encoder import Encoder
from bertx.encoder_config import EncoderConfig
from bertx.pretrained import Pretrained
from bertx.text.tokenizer import Tokenizer

WORDS = {'DET': ['the', 'a'], 'NOUN': ['cat', 'dog', 'tree', 'house'], 'VERB': ['sees', 'likes', 'chased']}


def treebank(count: int, seed: int = 0) -> list[Sentence]:
    """'the cat sees a dog .' with its tree, and sometimes without the object."""
    rng, found = np.random.default_rng(seed), []
    for n in range(count):
        pick = lambda tag: str(rng.choice(WORDS[tag]))
        tags, heads, relations = ['DET', 'NOUN', 'VERB'], [1, 2, -1], ['det', 'nsubj', 'root']
        if rng.random() < 0.6:
            tags, heads, relations = [*tags, 'DET', 'NOUN'], [*heads, 4, 2], [*relations, 'det', 'obj']
        words = [pick(tag) for tag in tags] + ['.']
        feats = [{'Number': 'Sing'} if tag == 'NOUN' else {} for tag in [*tags, 'PUNCT']]
        found.append(
            Sentence(words, f'doc{n // 5}', [*tags, 'PUNCT'], [*tags, '.'], feats, [*heads, 2], [*relations, 'punct'])
        )
    return found


def conllu(sentences: list[Sentence]) -> str:
    """As a file."""
    lines = []
    for s in sentences:
        lines.append(f'# newdoc id = {s.document}')
        for i, word in enumerate(s.words):
            feats = '|'.join(f'{k}={v}' for k, v in s.feats[i].items()) or '_'
            row = [i + 1, word, word, s.upos[i], s.xpos[i], feats, s.heads[i] + 1, s.relations[i], '_', '_']
            lines.append('\t'.join(map(str, row)))
        lines.append('')
    return '\n'.join(lines) + '\n'


def write_treebank(folder, **counts: int) -> None:
    """A .conllu file a split, whose documents are its own."""
    folder.mkdir()
    for split, count in counts.items():
        sentences = [dataclasses.replace(s, document=f'{split}{s.document}') for s in treebank(count, len(split))]
        (folder / f'{split}.conllu').write_text(conllu(sentences))


def model(seed: int = 0, **settings) -> Pretrained:
    """With an MLM head; weights large enough that attention and layers differ."""
    words = [w for tag in WORDS.values() for w in tag]
    tokenizer = Tokenizer.train([*(' '.join(words) for _ in range(3)), 'house . , and cat'], 60)
    sizes = {'layers': 2, 'width': 16, 'heads': 2, 'mlp_width': 32, 'max_positions': 24} | settings
    config = EncoderConfig(vocab_size=tokenizer.vocab_size, std=0.3, **sizes)
    view = view_of(np.zeros((1, 2), np.int32), np.ones((1, 2), np.int32))
    params = Encoder(config).init(jax.random.key(seed), view)['params']
    head = heads.TokenHead(config)
    table = params['embeddings']['token']['embedding']
    params = {'encoder': params, 'heads_mlm': head.init(jax.random.key(seed), np.zeros((1, 1, 16)), table)['params']}
    return Pretrained(f'model{seed}', config, jax.device_get(params), tokenizer)


def saved(made: Pretrained, folder, keep: tuple[str, ...] = ('encoder', 'heads_mlm')) -> str:
    """Its folder."""
    folder.mkdir(parents=True)
    (folder / 'encoder.json').write_text(json.dumps(dataclasses.asdict(made.encoder)))
    made.tokenizer.save(folder)
    write_parameters(folder / 'checkpoints', {name: made.params[name] for name in keep}, {})
    return str(folder)
