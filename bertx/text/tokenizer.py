"""Vocabularies of pieces or words: training, loading, and what the objectives must know of them."""

import collections
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from etils import epath
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

from bertx import paths
from bertx.errors import BadInput
from bertx.text.known import Known
from bertx.text.words import Finder

SPECIALS = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')  # ids 0 to 4 in what is trained here
ROLES = {
    'pad': ('[PAD]', '<pad>'),
    'unk': ('[UNK]', '<unk>'),
    'cls': ('[CLS]', '<s>', '<cls>'),
    'sep': ('[SEP]', '</s>', '<sep>'),
    'mask': ('[MASK]', '<mask>'),
}
Counts = collections.Counter[str]
VOCABULARIES = ('wordpiece', 'words')  # that can be trained
_UNUSED = re.compile(r'\[unused\d+\]')  # spare rows of BERT's vocab.txt
_CHUNKS = 2**19  # distinct space-separated strings to hold while counting words: some 50 MB
_WORDS = 2**18  # distinct words to train on, the most frequent: 250 MB in the library. 100 MB of Wikipedia have as many


class Tokenizer:
    """A `tokenizers.Tokenizer`, its special ids, and a fingerprint of everything that decides the ids of a text."""

    def __init__(self, text: str, origin: str = 'tokenizer.json'):
        """`text` is the content of a tokenizer.json, `origin` its name in errors; BadInput if a special token lacks."""
        try:
            content = json.loads(text)
            # Files made for inference cut and pad; a corpus is neither cut nor padded.
            content['truncation'] = content['padding'] = None
            # The text is kept, not written anew: another version of the library may write the same tokenizer otherwise.
            self.text = json.dumps(content, ensure_ascii=False, indent=1)
            self._tokenizer = tokenizers.Tokenizer.from_str(self.text)
        except Exception as error:  # the library raises a plain Exception
            raise BadInput(f'{origin}: not a tokenizer.json ({error})') from None
        self.fingerprint = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        self.vocabulary: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = max(self.vocabulary.values(), default=-1) + 1
        self.pad_id = self._role('pad', origin)
        self.cls_id = self._role('cls', origin)
        self.sep_id = self._role('sep', origin)
        self.mask_id = self._role('mask', origin)
        self.unk_id = self._role('unk', origin) if self._has('unk') else None  # byte-level vocabularies need none
        self._read_marks(content)

    def _has(self, role: str) -> bool:
        return any(name in self.vocabulary for name in ROLES[role])

    def _role(self, role: str, origin: str) -> int:
        if not self._has(role):
            raise BadInput(f'{origin}: the vocabulary has no {role} token; add {" or ".join(ROLES[role])}')
        return next(self.vocabulary[name] for name in ROLES[role] if name in self.vocabulary)

    def _read_marks(self, content: dict[str, Any]) -> None:
        """How the tokenizer tells words from pieces: by cutting text into words first, or by marks in its pieces."""
        model = content['model']
        self._byte_level = '"ByteLevel"' in json.dumps([content.get('normalizer'), content.get('pre_tokenizer')])
        self._byte_fallback = bool(model.get('byte_fallback'))
        self._prefix = model.get('continuing_subword_prefix') or ''
        self._suffix = model.get('end_of_word_suffix') or ''
        mark = 'Ġ' if self._byte_level else '▁'
        self._mark = mark if not self._prefix and any(p.startswith(mark) for p in self.vocabulary) else ''
        text = 'ab ab'
        if self._tokenizer.normalizer:
            text = self._tokenizer.normalizer.normalize_str(text)
        parts = self._tokenizer.pre_tokenizer.pre_tokenize_str(text) if self._tokenizer.pre_tokenizer else [(text, ())]
        words = sum(not part.isspace() for part, _ in parts)
        self._uncut = words == 1
        cut = content.get('pre_tokenizer') or {}
        cut = cut.get('pretokenizers', [cut])[0]
        self._by_space = (
            cut.get('type') in ('BertPreTokenizer', 'WhitespaceSplit')
            and (content.get('normalizer') or {}).get('type', 'BertNormalizer') == 'BertNormalizer'
            and all(token['special'] for token in content.get('added_tokens', ()))  # others are found across spaces
        )
        self._known = Known(self._encode)
        # Whether word starts are what the name says. Of others each piece is a word, or each sentence.
        self.marks_words: bool = words == 2 or self._uncut and bool(self._mark)

    @classmethod
    def train(cls, sentences: Iterable[str | Counts], vocab_size: int, lowercase: bool = True) -> 'Tokenizer':
        """A WordPiece tokenizer as BERT's, with at most `vocab_size` entries: fewer where the text has no more words.
        In place of sentences: how often each string between spaces comes in them.

        The result depends on the words and their counts alone (up to `_WORDS` of them): not on order or threads. The
        library's own training numbers the '##x' pieces in the order of a randomly seeded hash map, and breaks ties by
        these numbers. So the pieces of one character are given to it in code point order, in the guise of specials.
        """
        words = _count_words(sentences, vocab_size, _normalizer(lowercase), pre_tokenizers.BertPreTokenizer())
        characters: collections.Counter = collections.Counter()
        for word, count in words.items():
            characters.update(dict.fromkeys(word, count))
        # A character needs up to two pieces ('x' and '##x'), so the most frequent that are sure to fit make the
        # alphabet. As in BERT, a word with any other character becomes [UNK], so it teaches nothing here.
        frequent = sorted(characters, key=lambda c: (-characters[c], c))[: (vocab_size - len(SPECIALS)) // 2]
        alphabet = frozenset(frequent)
        known = {word: count for word, count in sorted(words.items()) if alphabet.issuperset(word)}
        continuing = sorted({f'##{character}' for word in known for character in word[1:]})

        learner = tokenizers.Tokenizer(models.WordPiece(unk_token='[UNK]'))
        learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocab_size, show_progress=False, special_tokens=[*SPECIALS, *continuing]
        )
        learner.train_from_iterator(_repeat(known), trainer)
        return cls(_wordpiece(learner.get_vocab(), _normalizer(lowercase)).to_str())

    @classmethod
    def train_words(cls, sentences: Iterable[str | Counts], vocab_size: int, lowercase: bool = True) -> 'Tokenizer':
        """One token for each of the most frequent words, which are what stands between spaces."""
        normalizer = _normalizer(lowercase, chinese=False)
        # '[MASK]' in a text is no word, lest it be looked up like one and become the special token.
        marks = '|'.join(special[1:-1] for special in SPECIALS)
        split = pre_tokenizers.Sequence([
            pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(rf'\[(?=(?:{marks})\])'), 'isolated')
        ])  # fmt: skip
        words = _count_words(sentences, vocab_size, normalizer, split)
        frequent = sorted(words, key=lambda word: (-words[word], word))[: vocab_size - len(SPECIALS)]
        vocabulary = {word: i for i, word in enumerate([*SPECIALS, *frequent])}
        tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token='[UNK]'))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, split
        return cls(_with_specials(tokenizer).to_str())

    @classmethod
    def load(cls, path: str | Path, lowercase: bool = True) -> 'Tokenizer':
        """From a tokenizer.json, a vocab.txt (BERT's, a piece a line), or the folder.

        lowercase: with a vocab.txt, unless a tokenizer_config.json of the folder says what the weights were trained on.
        """
        file, normalizer = paths.anywhere(path), _normalizer(lowercase)
        if file.is_dir():
            normalizer = _told(file / 'tokenizer_config.json', lowercase)
            file = next((file / name for name in ('tokenizer.json', 'vocab.txt') if (file / name).is_file()), file)
        if not file.is_file():
            raise BadInput(f'tokenizer {str(file)!r}: no such file, or a folder without tokenizer.json and vocab.txt')
        try:
            text = file.read_text('utf-8')
        except UnicodeDecodeError as error:
            raise BadInput(f'{file}: byte {error.start} is not UTF-8; give a tokenizer.json or vocab.txt') from None
        if file.suffix != '.txt':
            return cls(text, str(file))
        pieces = [line.removesuffix('\r') for line in text.removesuffix('\n').split('\n')]
        vocabulary = {piece: i for i, piece in enumerate(pieces)}
        if len(vocabulary) != len(pieces):
            twice = next(piece for i, piece in enumerate(pieces) if vocabulary[piece] != i)
            raise BadInput(f'{file}: piece {twice!r} stands on two lines; a vocab.txt has each piece once')
        if '[UNK]' not in vocabulary:
            raise BadInput(f'{file}: the vocabulary has no unk token; add [UNK]')
        return cls(_wordpiece(vocabulary, normalizer).to_str(), str(file))

    def __reduce__(self):
        return Tokenizer, (self.text,)

    def save(self, folder: str | Path) -> None:
        """Writes tokenizer.json into a folder, made if need be."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / 'tokenizer.json').write_text(self.text, 'utf-8')

    def ordinary(self) -> np.ndarray:
        """[V] bool: which ids are text; no special or added token, no [unused1], not [UNK]; nor a hole in the ids."""
        ordinary_V = np.zeros(self.vocab_size, bool)
        ordinary_V[[i for piece, i in self.vocabulary.items() if not _UNUSED.fullmatch(piece)]] = True
        specials = [i for piece, i in self.vocabulary.items() if any(piece in names for names in ROLES.values())]
        ordinary_V[[*specials, *self._tokenizer.get_added_tokens_decoder()]] = False
        return ordinary_V

    def begins(self) -> np.ndarray:
        """[V] bool: which pieces can begin a word, as far as their marks tell."""
        begins_V = np.zeros(self.vocab_size, bool)
        for piece, i in self.vocabulary.items():
            begins_V[i] = piece.startswith(self._mark) and not (self._prefix and piece.startswith(self._prefix))
        return begins_V

    def texts(self) -> list[str]:
        """[V] the text that each piece stands for, without marks of words; '' for a hole in the ids.

        A piece with a part of a character has U+FFFD there.
        """
        texts = [''] * self.vocab_size
        for piece, i in self.vocabulary.items():
            text = piece.removeprefix(self._prefix).removesuffix(self._suffix)
            if self._byte_level:
                text = decoders.ByteLevel().decode([text])
            elif self._byte_fallback:
                text = decoders.ByteFallback().decode([text])
            texts[i] = (text.replace(self._mark, ' ') if self._mark else text).strip()
        return texts

    def last_characters(self, sentences: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each sentence its ids [n] int32 and where in it the last letter of each piece stands [n] int64."""
        found = zip(sentences, self._encodings(sentences), strict=True)
        return [(np.array(e.ids, np.int32), np.array(_last(text, e), np.int64)) for text, e in found]

    def spans(self, texts: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each text its ids [n] int32, and [n, 2] where in it each piece begins and ends, in characters."""
        found = self._encodings(texts)
        return [(np.array(e.ids, np.int32), np.array(e.offsets, np.int64).reshape(-1, 2)) for e in found]

    def encode(
        self, sentences: Sequence[str], allow_special: bool = False, words: Finder | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each sentence its ids [n] int32 and word starts [n] uint8 (1 where a word begins). Nothing is added.

        '[MASK]' and the like are read as any other text, unless `allow_special` makes them the special token.
        words: finds them in place of the tokenizer; a piece belongs to the word of its last letter.
        """
        ids, starts, lengths = self._encode(sentences, allow_special, words)
        ends = np.cumsum(lengths)
        return [(ids[end - n : end], starts[end - n : end]) for end, n in zip(ends, lengths, strict=True)]

    def encode_many(
        self, sentences: Sequence[str], words: Finder | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same for all of them, one after the other, and how many tokens each has [sentences] int64.

        Where the tokenizer looks at no more than what stands between two spaces, each such string is encoded once.
        """
        if words or not self._by_space:
            return self._encode(sentences, words=words)
        return self._known(sentences)

    def _encode(
        self, sentences: Sequence[str], allow_special: bool = False, words: Finder | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        encodings = self._encodings(sentences, allow_special)
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        ids = np.fromiter(chain.from_iterable(e.ids for e in encodings), np.int32, int(lengths.sum()))
        if words:
            found = zip(sentences, map(words, sentences), encodings, strict=True)
            word = np.array([word_of[at] for text, word_of, e in found for at in _last(text, e)])
        else:
            # None, the word of a special token, becomes nan, which differs from itself: each is a word of its own.
            word = np.array(list(chain.from_iterable(e.word_ids for e in encodings)), np.float64)
        starts = np.ones(len(ids), np.uint8)
        starts[1:] = word[1:] != word[:-1]
        if self._uncut and self._mark and not words:
            starts |= self.begins()[ids]
        starts[(np.cumsum(lengths) - lengths)[lengths > 0]] = 1
        return ids, starts, lengths

    def _encodings(self, texts: Sequence[str], allow_special: bool = False) -> list[tokenizers.Encoding]:
        self._tokenizer.encode_special_tokens = not allow_special
        return self._tokenizer.encode_batch(list(texts), add_special_tokens=False)  # `_fast` forgets the words

    def decode(self, ids: Iterable[int]) -> str:
        """Readable text, special tokens included."""
        return self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=False)


def _last(text: str, encoding: tokenizers.Encoding) -> list[int]:
    """Where the last character that is no space stands of each piece; of blank pieces, and marks put in, the first."""
    return [min(start + max(len(text[start:end].rstrip()) - 1, 0), len(text) - 1) for start, end in encoding.offsets]


def _count_words(
    sentences: Iterable[str | Counts],
    vocab_size: int,
    normalizer: normalizers.Normalizer,
    pre_tokenizer: pre_tokenizers.PreTokenizer,
) -> collections.Counter:
    """Counts after normalizing and splitting; both look at no more than a space-separated string.

    Raises BadInput where there are none, or where the vocabulary that they are counted for is too small.
    """
    if vocab_size < 2 * len(SPECIALS):
        raise BadInput(f'vocab_size={vocab_size} is too small; {2 * len(SPECIALS)} is the least')
    normalize, split = normalizer.normalize_str, pre_tokenizer.pre_tokenize_str
    words: collections.Counter = collections.Counter()
    chunks: collections.Counter = collections.Counter()

    def fold() -> None:
        for chunk, count in chunks.items():
            for word, _ in split(normalize(chunk)):
                words[word] += count
        chunks.clear()
        if len(words) > 2 * _WORDS:
            keep = words.most_common(_WORDS)
            words.clear()
            words.update(dict(keep))

    for sentence in sentences:
        chunks.update(sentence.split(' ') if isinstance(sentence, str) else sentence)
        if len(chunks) > _CHUNKS:
            fold()
    fold()
    if not words:
        raise BadInput('no words to train a tokenizer on; give a corpus with text in it')
    return collections.Counter(dict(words.most_common(_WORDS)))


def _repeat(words: dict[str, int]) -> Iterator[str]:
    """Each word as often as it was counted: the library's trainer takes text, not counts."""
    for word, count in words.items():
        for done in range(0, count, 1000):
            yield ' '.join([word] * min(1000, count - done))


# Classes of transformers for which a vocab.txt and these three settings are all.
WORDPIECE = ('BertTokenizer', 'DistilBertTokenizer', 'ElectraTokenizer', 'PreTrainedTokenizer')


def _told(file: epath.Path, lowercase: bool) -> normalizers.Normalizer:
    """That of a folder with a vocab.txt, which does not tell."""
    if not file.is_file():
        return _normalizer(lowercase)
    try:
        settings = dict(json.loads(file.read_text('utf-8')))
    except (ValueError, TypeError):
        raise BadInput(f'{file} is no JSON object; copy the folder again') from None
    kind = str(settings.get('tokenizer_class') or 'BertTokenizer').removesuffix('Fast')
    if kind not in WORDPIECE and not (file.parent / 'tokenizer.json').is_file():
        raise BadInput(f'{file}: a {kind} is more than its vocab.txt; let transformers save a tokenizer.json')
    lowercase, accents = bool(settings.get('do_lower_case', True)), settings.get('strip_accents')
    return _normalizer(lowercase, accents, bool(settings.get('tokenize_chinese_chars', True)))


def _normalizer(lowercase: bool, accents: bool | None = None, chinese: bool = True) -> normalizers.Normalizer:
    """chinese: whether each of its characters is a word."""
    strip = lowercase if accents is None else accents
    return normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip, lowercase=lowercase
    )


def _wordpiece(vocabulary: dict[str, int], normalizer: normalizers.Normalizer) -> tokenizers.Tokenizer:
    """BERT's tokenizer over a vocabulary."""
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token='[UNK]'))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix='##')
    return _with_specials(tokenizer)


def _with_specials(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same one, which knows the special tokens of its vocabulary."""
    vocabulary = tokenizer.get_vocab()
    tokenizer.add_special_tokens([special for special in SPECIALS if special in vocabulary])
    if '[CLS]' in vocabulary and '[SEP]' in vocabulary:  # for others who read the file; `encode` adds nothing
        tokenizer.post_processor = processors.BertProcessing(
            ('[SEP]', vocabulary['[SEP]']), ('[CLS]', vocabulary['[CLS]'])
        )
    return tokenizer
