"""A run's folder: its records, written so that a kill at any moment leaves nothing half-done that counts as done."""

import contextlib
import csv
import dataclasses
import importlib.metadata
import io
import json
import logging
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from etils import epath

from bertx import NUMERICS_VERSION
from bertx.config import Run
from bertx.errors import BadInput
from bertx.evaluate import Measurement
from bertx.hosts import by_one
from bertx.text.tokenizer import Tokenizer

COLUMNS = (
    'run_id', 'arm', 'seed', 'task', 'head', 'split', 'metric', 'value', 'n_examples', 'step', 'tokens', 'flops',
    'wall_s', 'status',
)  # fmt: skip
DIFF = 2**20  # characters of uncommitted changes that are kept
PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'orbax-checkpoint', 'grain', 'numpy', 'tokenizers', 'sentencex')


def write_atomically(path: epath.Path, content: str | bytes) -> None:
    """Either the whole content stands there or the file is as it was."""
    partial = path.parent / f'.{path.name}.{os.getpid()}.partial'  # several processes may write the same
    partial.write_bytes(content.encode() if isinstance(content, str) else content)
    partial.replace(path)


def write_json(path: epath.Path, content: Any, sort_keys: bool = False) -> None:
    write_atomically(path, json.dumps(content, indent=1, sort_keys=sort_keys))


def _append(path: epath.Path, text: str) -> None:
    if '://' in str(path):  # a bucket's files cannot be appended to, only written anew
        write_atomically(path, (path.read_text() if path.exists() else '') + text)
        return
    with path.open('a') as file:
        file.write(text)


def read_json(file: epath.Path) -> Any:
    try:
        return json.loads(file.read_text())
    except ValueError:
        raise BadInput(f'{file} is cut or damaged; delete it, and what it told of is done again') from None


def _lines(file: epath.Path) -> list[dict[str, Any]]:
    """The whole lines; a kill may have cut the last one."""
    if not file.exists():
        return []
    try:
        return [json.loads(line) for line in file.read_text().splitlines() if line.endswith('}')]
    except ValueError:
        raise BadInput(f"{file} is damaged; delete the run's folder, and it is done again") from None


class RunFolder:
    """`<arm>-s<seed>-<hash8>/`: config.json, metrics.jsonl, timing.jsonl, predictions/, checkpoints/, result.json.

    With encoder.json and tokenizer.json it says all that its weights need to be used elsewhere (`bertx/pretrained.py`).
    Of several hosts one writes, and all read.
    """

    def __init__(self, path):
        self.path = epath.Path(path)

    @by_one
    def start(self, run: Run, tokenizer: Tokenizer) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / 'config.json', run.config, sort_keys=True)
        write_json(self.path / 'encoder.json', dataclasses.asdict(run.encoder))
        write_atomically(self.path / 'tokenizer.json', tokenizer.text)
        file, content = self.path / 'provenance.json', provenance()
        content['tokenizer'] = tokenizer.fingerprint
        if isinstance(run, Run):
            content['corpus'] = run.fingerprint
        if about := getattr(run, 'about', None):  # of fine-tuning
            write_json(self.path / 'heads.json', about)
        if file.exists():  # what began the run stays; each start since is listed in it
            first = read_json(file)
            content = first | {'resumed': [*first.get('resumed', []), content]}
        write_json(file, content)

    def read(self, name: str) -> dict[str, Any]:
        """One of the run's JSON files, empty while it is not there."""
        file = self.path / name
        return read_json(file) if file.exists() else {}

    @property
    def checkpoints(self) -> epath.Path:
        return self.path / 'checkpoints'

    @property
    def result(self) -> dict[str, Any] | None:
        """The content of result.json, None while the run is not finished."""
        file = self.path / 'result.json'
        if not file.exists():
            return None
        result, further = read_json(file), self.read('downstream.json')  # of runs that were fine-tuned from it
        if further and 'values' in result:
            result['values'] += further['values']
        return result

    @property
    def done(self) -> bool:
        return (self.result or {}).get('status') == 'done'

    @by_one
    def rewind(self, step: int) -> None:
        """Forget the lines after a step: a resumed run writes them again, the same ones."""
        for name in ('metrics.jsonl', 'timing.jsonl'):
            file = self.path / name
            if not file.exists():
                continue
            lines = [json.dumps(line) for line in _lines(file) if line['step'] <= step]
            write_atomically(file, ''.join(line + '\n' for line in lines))

    @contextlib.contextmanager
    def logging(self):
        """What bertx logs meanwhile goes to log.txt too."""
        folder = self

        class Handler(logging.Handler):
            @by_one
            def emit(self, record: logging.LogRecord) -> None:
                _append(folder.path / 'log.txt', f'{time.strftime("%F %T")} {self.format(record)}\n')

        handler, logger = Handler(logging.INFO), logging.getLogger('bertx')
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)

    @by_one
    def append(self, name: str, line: dict[str, Any]) -> None:
        """One JSON line to metrics.jsonl (numbers of the run) or timing.jsonl (clocks)."""
        _append(self.path / name, json.dumps(line) + '\n')

    def metrics(self) -> list[dict[str, Any]]:
        return _lines(self.path / 'metrics.jsonl')

    def last(self, name: str, split: str = '') -> dict[str, Any]:
        """The last whole line of metrics.jsonl (of that split) or timing.jsonl; {} where there is none."""
        file = self.path / name
        if not file.exists():
            return {}
        with file.open('rb') as opened:
            opened.seek(max(0, file.stat().length - 2**14))
            lines = opened.read().decode(errors='ignore').splitlines()
        whole = (json.loads(line) for line in reversed(lines) if line.startswith('{') and line.endswith('}'))
        return next((line for line in whole if not split or line.get('split') == split), {})

    def attempts(self) -> list[dict[str, Any]]:
        """What ended the run before it was done, each time."""
        return _lines(self.path / 'attempts.jsonl')

    def seconds(self) -> float:
        """What the steps took, compilation and host included, in all processes that have worked on the run."""
        return sum(line['wall_s'] for line in _lines(self.path / 'timing.jsonl'))

    @by_one
    def finish(self, about: dict[str, Any], measurements: list[Measurement]) -> None:
        """Per-example values, then the result that makes the run count as done."""
        for m in measurements:
            self.keep(m.task, m.head, m.split, m.metric, m.sum_N, m.weight_N)
        values = [m.record() for m in measurements]
        write_json(self.path / 'result.json', {'status': 'done', **about, 'values': values})

    @by_one
    def fail(self, about: dict[str, Any], reason: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / 'result.json', {'status': 'failed', 'reason': reason, **about})

    def keep(self, task: str, head: str, split: str, metric: str, sum_N: np.ndarray, weight_N: np.ndarray) -> None:
        """For `predictions`; whole or not at all, as others may read it."""
        file = self._predictions(task, head, split, metric)
        file.parent.mkdir(exist_ok=True)
        content = io.BytesIO()
        np.savez_compressed(content, sum=sum_N, weight=weight_N)
        write_atomically(file, content.getvalue())

    def _predictions(self, task: str, head: str, split: str, metric: str) -> epath.Path:
        return self.path / 'predictions' / f'{task}-{head}-{split}-{metric}.npz'

    def predictions(self, task: str, head: str, split: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """(sum [N], weight [N])."""
        with self._predictions(task, head, split, metric).open('rb') as file:
            arrays = np.load(file)
            return arrays['sum'], arrays['weight']


def provenance() -> dict[str, Any]:
    """What else one must know to make the numbers again."""

    def git(*words: str) -> str | None:
        try:
            root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
            found = subprocess.run(('git', '-C', root, *words), capture_output=True, text=True, check=True)
            return found.stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return None  # installed without its history

    return {
        'time': time.strftime('%Y-%m-%dT%H:%M:%S%z'),
        'command': sys.argv,
        'git_commit': git('rev-parse', 'HEAD'),
        'git_diff': (git('diff', 'HEAD') or '')[:DIFF],
        'git_untracked': (git('ls-files', '--others', '--exclude-standard', '*.py') or '').splitlines(),
        'numerics_version': NUMERICS_VERSION,
        'python': platform.python_version(),
        'packages': {name: importlib.metadata.version(name) for name in PACKAGES},
        'devices': [str(device) for device in jax.devices()],
        'xla_flags': os.environ.get('XLA_FLAGS', ''),
    }


def rows(folders: Iterable[RunFolder]) -> list[dict[str, Any]]:
    """Tidy lines, one a value; a failed run has one line that says so."""
    found = []
    for folder in folders:
        result = folder.result
        if result is None:
            continue
        about = {key: result.get(key) for key in ('arm', 'seed', 'step', 'tokens', 'flops', 'wall_s', 'status')}
        for value in result.get('values', [{}]):
            found.append({'run_id': folder.path.name} | about | value)
    return found


def csv_text(columns: Iterable[str], lines: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), lineterminator='\n', extrasaction='ignore')
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
