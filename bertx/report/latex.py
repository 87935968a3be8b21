"""A table for LaTeX's booktabs."""

import itertools
import re

from bertx.report.table import ABSENT, FAILED, MARK, Shown, Table

ACCENTED = 'ÄÖÜäöüßÀÂÇÈÉÊËÎÏÑÓÔÙÛàâçèéêëîïñóôùûáíúÁÍÚåÅøØæÆ'  # known without \usepackage[T1]{fontenc}
LATEX = str.maketrans(
    {c: rf'\{c}' for c in '&%$#_{}'}
    | {'\\': r'\textbackslash{}', '~': r'\textasciitilde{}', '^': r'\textasciicircum{}', '"': "''"}
    | {'<': r'$<$', '>': r'$>$', '|': r'$|$', 'Δ': r'$\Delta$', '≥': r'$\ge$'}
    | {MARK: r'$\dagger$', FAILED: r'$\times$', ABSENT: '--', '−': '$-$'}
)


def latex(table: Table) -> str:
    r"""A table environment; needs \usepackage{booktabs,graphicx}, and is scaled down where it is too wide."""
    groups = [(task, len(list(group))) for task, group in itertools.groupby(task for task, _ in table.printed)]
    heads = ['' if table.title(column) == column[0] else column[1] for column in table.printed]
    tasks = [rf'\multicolumn{{{n}}}{{c}}{{{_latex(task)}}}' for task, n in groups]
    starts = itertools.accumulate((n for _, n in groups), initial=3)
    rules = [rf'\cmidrule(lr){{{at}-{at + n - 1}}}' for at, (_, n) in zip(starts, groups, strict=False)]
    body: list[str] = []
    for line in table.lines:
        gap = {'score': r'\addlinespace' if body else '', 'difference': '', 'reference': r'\midrule'}[line.kind]
        cells = [_latex(line.label), _latex(line.seeds), *map(_latex_cell, line.cells)]
        body += [gap, ' & '.join(cells) + r' \\']
    parts = [
        r'% needs \usepackage{booktabs,graphicx}; made of these runs:',
        *(f'% {folder.path.name}' for arm in table.arms for folder in (*arm.runs.values(), *arm.failed)),
        r'\begin{table}',
        r'\centering\setlength{\tabcolsep}{4pt}',
        rf'\caption{{Accuracy of each arm on each task, {_latex(table.split)} split.}}',
        r'\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%',
        rf'\begin{{tabular}}{{ll{"r" * len(table.printed)}}}',
        r'\toprule',
        ' & '.join(['', '', *tasks]) + r' \\',
        *rules,
        ' & '.join(['arm', 'seeds', *heads]) + r' \\',
        r'\midrule',
        *body,
        r'\bottomrule',
        r'\end{tabular}}',
        r'\par\medskip\raggedright\footnotesize',
        *(_latex(note) + r'\par' for note in table.notes),
        r'\end{table}',
    ]
    return '\n'.join(part for part in parts if part) + '\n'


def _latex(text: str) -> str:
    """Escaped; a character that pdflatex may have no glyph for is given by its number."""
    plain = lambda c: ' ' <= c <= '~' or c in ACCENTED
    return ''.join(c if plain(c) else f'[U+{ord(c):04X}]' for c in text.translate(LATEX))


def _latex_cell(s: Shown) -> str:
    text = re.sub(r'(\[.*])', r'{\\scriptsize\1}', _latex(s.text.replace('-', '−')))
    return (re.sub(r'^(\S+)', r'\\textbf{\1}', text) if s.bold else text) + r'\rlap{$^\dagger$}' * bool(s.mark)
