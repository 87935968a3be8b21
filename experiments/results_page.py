"""RESULTS.md: every sweep of a folder with its command, table, contrasts and main figure, as they came out."""

import datetime
import inspect
import os
import platform
import shlex
from collections.abc import Sequence
from typing import Any

from etils import epath

from bertx import results
from bertx.errors import BadInput
from bertx.results import RunFolder

FIGURE = 'figures/differences.png'
PICTURES = 'analysis/pictures'  # where the README's lie: workdirs come and go


def write(folder: epath.Path, file: epath.Path) -> None:
    """folder: holds sweeps' workdirs whose reports are written. Sections of the file on other sweeps stay as they are.

    Raises BadInput where the folder holds no sweep.
    """
    sweeps = [path for path in folder.iterdir() if (path / 'sweep.json').exists() and (path / 'table.md').exists()]
    if not sweeps:
        raise BadInput(f'--workdir={folder} holds no sweep with a table; give the folder that the workdirs lie in')
    sections = _sections(file.read_text()) if file.exists() else {}
    for path in sweeps:
        about = results.read_json(path / 'sweep.json')
        sections[about['sweep']] = _section(path, about, file.parent)
    head = f'# Results\n\nWritten by `python -m experiments.report --all --workdir={folder}`, sweep by sweep.'
    results.write_atomically(file, '\n\n'.join([head, *(sections[name] for name in sorted(sections))]) + '\n')


def _sections(text: str) -> dict[str, str]:
    """By their titles."""
    _, *parts = ('\n' + text).split('\n## ')
    return {part.partition('\n')[0]: f'## {part.strip()}' for part in parts}


def _section(path: epath.Path, about: dict[str, Any], beside: epath.Path) -> str:
    folders = [RunFolder(path / 'runs' / name) for name in about['runs']]
    parts = [f'## {about["sweep"]}', *_about(about.get('about', '')), *_said(folders), (path / 'table.md').read_text()]
    if (path / 'contrasts.md').exists():
        parts += ["### The paper's contrasts", (path / 'contrasts.md').read_text()]
    if (path / FIGURE).exists():
        picture = beside / PICTURES / f'{about["sweep"]}_differences.png'
        picture.parent.mkdir(parents=True, exist_ok=True)
        (path / FIGURE).copy(picture, overwrite=True)
        parts.append(f'![{about["sweep"]}: differences]({PICTURES}/{picture.name})')
    return '\n\n'.join(part.strip() for part in parts)


def _about(text: str) -> list[str]:
    """The config file's head without its command, which the provenance has."""
    paragraphs = inspect.cleandoc(text).split('\n\n')
    return [part.replace('\n', ' ') for part in paragraphs if part and not part.startswith(' ')]


def _said(folders: Sequence[RunFolder]) -> list[str]:
    """The command, and on what and when it ran."""
    records = [record for folder in folders if (record := folder.read('provenance.json'))]
    done = [result for folder in folders if (result := folder.result) and result['status'] == 'done']
    if not records:
        return []
    command = shlex.join(['python', '-m', 'experiments.sweep', *records[0]['command'][1:]])
    further = [RunFolder(path).result or {} for x in folders for path in (x.path / 'downstream').glob('*')]
    minutes = sum(result.get('wall_s', 0.0) for result in [*done, *further]) / 60
    devices = f'{len(records[0]["devices"])} x {records[0]["devices"][0]}' if records[0]['devices'] else ''
    return [
        f'`{command}`',
        f'{len(done)} of {len(folders)} runs done, {minutes:.0f} minutes in them, fine-tuning included, {devices} on '
        f'{platform.machine()} with {os.cpu_count()} cores; {datetime.date.today()}.',
    ]
