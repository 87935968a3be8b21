"""The one error that a person can mend; the command line prints its single line and exits with code 2."""

import difflib
from collections.abc import Collection, Iterable


class BadInput(Exception):
    """Bad config, file or data: says which key or file, what is wrong with it, and what would do."""


def unknown(what: str, name: str, known: Iterable[str]) -> BadInput:
    """An unknown name of a kind of thing (`what`), with the nearest known one."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f'did you mean {near[0]!r}?' if near else f'known: {", ".join(known)}'
    return BadInput(f'{what} {name!r} is unknown; {hint}')


def one_of(what: str, name: str, known: Collection[str]) -> None:
    """Raises `unknown` where the name is none of them."""
    if name not in known:
        raise unknown(what, name, known)


def at_least(least: float, key: str, value: float) -> None:
    """Raises BadInput where the value is less, or not a number."""
    if not value >= least:
        raise BadInput(f'{key} is {value:g}; {least:g} or more would do')
