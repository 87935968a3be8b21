"""One self-contained HTML page, which needs no network: tables, notes and pictures of an analysis."""

import base64
import csv
import dataclasses
import io
import os
from pathlib import Path
from typing import Any

import jinja2
from etils import epath

from bertx.errors import BadInput
from bertx.report.stats import Estimate
from bertx.report.table import Table
from bertx.results import write_atomically


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading and what stands below it; `html` is put in as it is."""

    title: str
    text: str = ''
    table: Table | None = None
    rows: list[list[str]] = dataclasses.field(default_factory=list)  # the first one is the head
    pictures: list[Path] = dataclasses.field(default_factory=list)
    html: str = ''


def inline(picture: Path) -> str:
    """A data: URL."""
    return 'data:image/png;base64,' + base64.b64encode(picture.read_bytes()).decode()


def render(template: str, **values: Any) -> str:
    """A template of this folder with these values in it."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters['inline'] = inline
    return environment.get_template(template).render(**values)


def write(path: Path, title: str, sections: list[Section]) -> None:
    write_atomically(epath.Path(path), render('page.html', title=title, sections=sections))


def folder(path: str) -> Path:
    """--out. Raises BadInput where it is, or lies in, a file or a folder that cannot be written."""
    if '://' in path:
        raise BadInput(f'--out={path}: analyses are written to this machine; a folder on it would do')
    there = found = Path(path).expanduser().absolute()
    while not os.path.lexists(there):
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise BadInput(f'--out={path}: {there} is no folder that can be written; give another')
    return found


def finish(out: Path, name: str, title: str, text: str, sections: list[Section], html: str = 'report') -> None:
    """Writes name.md and the page, and prints the text."""
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(epath.Path(out / f'{name}.md'), text)
    write(out / f'{html}.html', title, sections)
    print(text)


def write_csv(path: Path, rows: list[list[str]]) -> None:
    """The rows, the first one the head."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    csv.writer(text, lineterminator='\n').writerows(rows)
    write_atomically(epath.Path(path), text.getvalue())


def markdown(rows: list[list[str]]) -> str:
    """A GitHub table of the rows, the first one its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    lines.insert(1, ['-' * width for width in widths])
    return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def interval(e: Estimate, sign: str = '') -> str:
    """'0.512 [0.480, 0.544]'; sign '+' for differences."""
    return f'{e.value:{sign}.3f} [{e.low:{sign}.3f}, {e.high:{sign}.3f}]'
