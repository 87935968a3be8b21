"""Published figures, and ours in the same tables and units. 'from memory': not yet checked against the paper.

Other corpora, tag sets and classifiers than ours (UD English EWT or State of the Union addresses, where they had Penn
Treebank, OntoNotes or SentEval): shapes over layers can be compared, single figures hardly.
"""

import csv
from pathlib import Path

MEMORY = 'from memory'
Rows = list[list[str]]


def _rows(text: str) -> Rows:
    return [line.split() for line in text.strip().splitlines()]


TABLES: dict[str, tuple[str, Rows]] = {
    'jawahar2019': (
        f'Jawahar et al. 2019, Table 2, BERT-base-uncased, layers 1 to 12, {MEMORY}',
        [
            ['task', *map(str, range(1, 13))],
            *_rows("""
sentence_length 93.9 95.9 96.2 94.2 92.0 88.4 83.7 82.9 80.1 77.0 73.9 69.5
word_content 24.9 65.0 66.5 69.8 69.2 63.5 56.9 51.1 47.9 43.4 42.8 49.1
tree_depth 35.9 40.6 39.7 39.4 40.6 41.3 40.1 39.2 38.5 38.1 36.3 34.7
bigram_shift 50.3 55.8 64.9 74.4 81.4 82.9 83.0 83.9 87.0 86.7 86.8 86.4
tense 82.2 85.9 86.6 87.6 89.5 89.8 89.9 89.9 90.0 89.7 89.9 89.5
subject_number 77.6 82.5 82.0 81.9 85.8 88.1 87.4 87.5 87.6 87.1 85.7 84.0
object_number 76.7 80.6 80.3 81.4 81.2 82.0 82.2 81.2 81.8 80.5 78.9 78.7
odd_man_out 49.9 53.8 55.8 59.0 60.2 60.7 61.6 62.1 63.4 63.3 64.4 65.2
coordination_inversion 53.9 58.5 59.3 58.1 64.1 71.1 74.8 76.4 78.7 78.4 77.6 74.9"""),
        ],
    ),
    'tenney2019': (
        'Tenney et al. 2019, expected layer (recomputed from the printed scores of their notebook)',
        [
            ['model', 'pos', 'consts', 'ner', 'deps', 'srl', 'coref'],
            ['BERT-base', '1.76', '2.38', '2.42', '2.52', '2.59', '3.62'],
            ['BERT-large', '3.39', '3.79', '4.64', '5.69', '6.54', '9.47'],
        ],
    ),
    'clark2019': (
        'Clark et al. 2019, Table 1, BERT-base-uncased on Penn Treebank, Stanford relations; head and offset chosen '
        'and scored on the same split (as their notebook printed); last, UAS of Table 3, from memory',
        [
            ['relation (theirs)', 'attention', 'offset'],
            *_rows("""
all 0.347 0.267
prep 0.667 0.618
pobj 0.763 0.346
det 0.943 0.517
compound(nn) 0.704 0.702
nsubj 0.585 0.455
amod 0.756 0.683
obj(dobj) 0.868 0.400
advmod 0.488 0.402
aux 0.811 0.715
poss 0.805 0.477
auxpass 0.941 0.825
ccomp 0.488 0.124
mark 0.507 0.145"""),
            ['probe on all heads', '0.61', '0.26'],
            ['probe on all heads, untrained encoder', '0.30', '0.26'],
        ],
    ),
    'hewitt2019': (
        f'Hewitt & Manning 2019, Penn Treebank test, {MEMORY}',
        [
            ['representation', 'UUAS', 'DSpr', 'root', 'NSpr'],
            ['chain of neighbours', '0.489', '0.58', '0.029', '0.27'],
            ['ELMo layer 0', '0.268', '0.44', '0.543', '0.56'],
            ['untrained projection (Proj0)', '0.598', '0.73', '0.644', '0.75'],
            ['ELMo layer 1', '0.770', '0.83', '0.865', '0.87'],
            ['BERT-base layer 7', '0.798', '0.85', '0.880', '0.87'],
            ['BERT-large layer 15', '0.825', '0.86', '0.894', '0.88'],
        ],
    ),
    'voita2020': (
        'Voita & Titov 2020, POS, ELMo layer 1, online code. As printed the code adds nats to bits; in bits it is the '
        'second line (recomputed from their log)',
        [
            ['', 'kbit', 'compression', 'accuracy'],
            ['as printed (nats_compat)', '96.02', '53.06', '0.975'],
            ['true bits', '136.4', '37.4', '0.975'],
        ],
    ),
}


def beside(preset: str, out: Path) -> tuple[str, Rows]:
    """(note, table): the paper's table with what the preset has written to `out` in it."""
    note, rows = TABLES[preset]
    return f'{note}; beside it, ours', FILLED[preset](out, rows)


def _read(file: Path) -> Rows:
    with file.open(newline='') as stream:
        return list(csv.reader(stream))


def _records(file: Path) -> list[dict[str, str]]:
    head, *lines = _read(file)
    return [dict(zip(head, line, strict=True)) for line in lines]


def _layers(out: Path, rows: Rows) -> Rows:
    """Each task's line, and ours of every arm below it, in percent."""
    ours: dict[str, dict[str, list[str]]] = {}
    for line in _records(out / 'layers.csv'):
        if line['head'] != 'layer 0' and not line['arm'].startswith('untrained'):
            ours.setdefault(line['task'], {}).setdefault(line['arm'], []).append(f'{100 * float(line["mean"]):.1f}')
    found = []
    for task, *theirs in rows[1:]:
        found += [[task, *theirs], *([f'{task}, {arm}', *mine] for arm, mine in ours.get(task, {}).items())]
    width = max(map(len, found))
    return [['task', *map(str, range(1, width))], *(row + [''] * (width - len(row)) for row in found)]


def _expected(out: Path, rows: Rows) -> Rows:
    """A line an arm; our relations ('dep') are in their column 'deps'."""
    ours: dict[str, dict[str, str]] = {}
    for task, arm, value, *_ in _read(out / 'edge.csv')[1:]:
        ours.setdefault(arm, {})['deps' if task == 'dep' else task] = value
    return [*rows, *([arm, *(known.get(task, '') for task in rows[0][1:])] for arm, known in ours.items())]


def _relations(out: Path, rows: Rows) -> Rows:
    """Ours on the lines of theirs with the same name; UD has others for prep, pobj, poss and auxpass."""
    ours = {row[0]: (row[3].split()[0], row[5]) for row in _read(out / 'relations.csv')[1:]}
    ours |= {row[0]: (row[1].split()[0], '') for row in _read(out / 'attention_probe.csv')[1:]}
    found = [[*row, *ours.get(row[0].partition('(')[0], ('', ''))] for row in rows[1:]]
    return [[*rows[0], 'ours: attention', 'ours: offset'], *found]


def _structure(out: Path, rows: Rows) -> Rows:
    """Our layer of dev, and our chain."""
    mine = [x for x in _records(out / 'structure.csv') if '(dev)' in x['layer'] or x['layer'] == 'chain']
    return [*rows, *([f'ours: {x["layer"]}', *(x[name].split()[0] for name in rows[0][1:])] for x in mine)]


def _code(out: Path, rows: Rows) -> Rows:
    """Our layers, in true bits; accuracy is not measured."""
    return [*rows, *([f'ours: layer {row[0]}', row[1], row[4], ''] for row in _read(out / 'mdl_pos.csv')[1:])]


FILLED = {
    'jawahar2019': _layers, 'tenney2019': _expected, 'clark2019': _relations, 'hewitt2019': _structure,
    'voita2020': _code,
}  # fmt: skip
