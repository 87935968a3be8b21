"""The commands as a person calls them: bad input ends in one line and exit code 2, and leaves nothing behind."""

import os
import signal
import subprocess
import sys

import pytest

SWEEP = '--config=configs/sweeps/nsp_vs_sop.py'


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TUNED = os.environ | {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}  # else a command starts itself again


def call(name: str, *arguments: str):
    command = [sys.executable, '-m', f'experiments.{name}', *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, env=TUNED)


def write(path, content: bytes) -> str:
    path.write_bytes(content)
    return f'--config.data.source=text:{path}'


def broken(path) -> str:
    path.write_text('from configs import nothing\n')
    return f'--config={path}'


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (lambda _: [SWEEP, '--config.optimizer.learning_rat=1'], 'Did you mean "learning_rate"'),
        (lambda _: [SWEEP, '--config.train.batch=many'], 'config.train.batch'),
        (lambda _: ['--config=configs/nothing.py'], 'configs/nothing.py'),
        (lambda _: ['--config=configs/base.py'], 'has no sweep()'),
        (lambda _: ['--config=configs/base.py:mini'], 'has no sweep()'),
        (lambda _: [SWEEP, '--config.data.source=text:/nothing/*.txt'], '/nothing/*.txt'),
        (lambda tmp: [SWEEP, write(tmp / 'empty.txt', b'')], 'empty.txt'),
        (lambda tmp: [SWEEP, write(tmp / 'latin.txt', b'caf\xe9 au lait')], 'latin.txt'),
        (lambda tmp: [SWEEP, write(tmp / 'one.txt', b'One thing. ' * 50)], 'document'),
        (lambda tmp: [SWEEP, f'--config.data.store={tmp}'], 'meta.json'),
        (lambda _: [SWEEP, 'extra'], "'extra'"),
        (lambda tmp: [broken(tmp / 'broken.py')], 'cannot be run'),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path, arguments, message):
    done = call('sweep', *arguments(tmp_path), f'--workdir={tmp_path / "work"}')
    errors = [line for line in done.stderr.splitlines() if line.startswith('error: ')]
    assert done.returncode == 2, done.stderr
    assert len(errors) == 1
    assert message in errors[0]
    assert 'Traceback' not in done.stderr
    assert not (tmp_path / 'work' / 'sweep.json').exists()


def test_a_workdir_inside_a_file_is_named():
    done = call('sweep', SWEEP, '--workdir=README.md/runs')
    assert done.returncode == 2
    assert 'README.md is no folder' in done.stderr


def test_a_missing_workdir_is_named():
    done = call('sweep', SWEEP)
    assert done.returncode == 2
    assert '--workdir is missing' in done.stderr


def test_ctrl_c_during_the_imports_says_nothing():
    command = [sys.executable, '-X', 'importtime', '-m', 'experiments.sweep']
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # which a shell's background jobs do not
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=TUNED, preexec_fn=heard) as process:
        while not process.stderr.readline().endswith(' experiments\n'):
            pass
        process.send_signal(signal.SIGINT)
        said = [line for line in process.stderr if not line.startswith('import time:')]
    assert (process.returncode, said) == (130, [])
