"""Two processes do not work in one folder."""

import subprocess
import sys

import pytest
from etils import epath

from bertx.errors import BadInput
from bertx.locks import alone_in

CODE = 'import sys, time; from etils import epath; from bertx.locks import alone_in\n'


def test_a_second_process_is_refused_until_the_first_ends(tmp_path):
    code = CODE + 'with alone_in(epath.Path(sys.argv[1])): print("held", flush=True); time.sleep(60)'
    with subprocess.Popen([sys.executable, '-c', code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == 'held\n'
        with pytest.raises(BadInput, match='another process'), alone_in(epath.Path(tmp_path)):
            pass
        other.kill()
    with alone_in(epath.Path(tmp_path)):
        pass
