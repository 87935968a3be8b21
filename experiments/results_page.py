"""RESULTS.md: every sweep of a folder with its command, table, contrasts and main figure, as they came out."""

import datetime
import inspect
import os
import platform
import shlex
from collections.abc import Sequence

from etils import epath

from bertx import results
from bertx.errors import BadInput
from bertx.results import RunFolder

FIGURE = 'figures/differences.png'
PICTURES = 'analysis/pictures'  # where the README's lie: workdirs come and go


def write(folder: epath.Path, file: epath.Path) -> None:
    """folder: holds sweeps' workdirs whose reports are written. Raises BadInput where it holds none."""
    sweeps = sorted(
        path for path in folder.iterdir() if (path / 'sweep.json').exists() and (path / 'table.md').exists()
    )
    if not sweeps:
        raise BadInput(f'--workdir={folder} holds no sweep with a table; give the folder that the workdirs lie in')
    parts = ['# Results', f'Written by `python -m experiments.report --all --workdir={folder}`.']
    for path in sweeps:
        about = results.read_json(path / 'sweep.json')
        folders = [RunFolder(path / 'runs' / name) for name in about['runs']]
        parts += [f'## {about["sweep"]}', *_about(about.get('about', '')), *_said(folders)]
        parts.append((path / 'table.md').read_text())
        if (path / 'contrasts.md').exists():
            parts += ["### The paper's contrasts", (path / 'contrasts.md').read_text()]
        if (path / FIGURE).exists():
            picture = file.parent / PICTURES / f'{about["sweep"]}_differences.png'
            picture.parent.mkdir(parents=True, exist_ok=True)
            (path / FIGURE).copy(picture, overwrite=True)
            parts.append(f'![{about["sweep"]}: differences]({PICTURES}/{picture.name})')
    results.write_atomically(file, '\n\n'.join(part.strip() for part in parts) + '\n')


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
    minutes = sum(result['wall_s'] for result in done) / 60
    devices = f'{len(records[0]["devices"])} x {records[0]["devices"][0]}' if records[0]['devices'] else ''
    return [
        f'`{command}`',
        f'{len(done)} of {len(folders)} runs done, {minutes:.0f} minutes in all, {devices} on {platform.machine()} '
        f'with {os.cpu_count()} cores; {datetime.date.today()}.',
    ]
