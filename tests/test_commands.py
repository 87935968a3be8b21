"""Every command of the README and of the configs' heads, as far as one can tell without running it."""

import importlib
import pathlib
import re
import shlex

import pytest

from bertx.config import flat

ROOT = pathlib.Path(__file__).parent.parent
DEFINED = re.compile(r"DEFINE_\w+\(\s*'(\w+)'")
PLACES = {'DATA': 'data', 'FOLDER': 'runs/x', 'FILES': 'x.txt'}


def texts() -> dict[str, str]:
    """Name -> text with commands in it."""
    found = {'README.md': (ROOT / 'README.md').read_text()}
    for path in sorted(ROOT.glob('configs/**/*.py')):
        found[str(path.relative_to(ROOT))] = (importlib.import_module(module_of(path)).__doc__ or '') + '\n'
    return found


def module_of(path: pathlib.Path) -> str:
    return '.'.join(path.relative_to(ROOT).with_suffix('').parts)


def commands() -> list[tuple[str, str, list[str]]]:
    """(where, module, flags)"""
    found = []
    for where, text in texts().items():
        text = re.sub(r'\\\n\s*', ' ', text)
        for module, rest in re.findall(r'python -m ((?:experiments|analysis)\.\w+)([^`\n]*)', text):
            rest = re.split(r' && ', rest)[0]
            rest = rest.removesuffix("'") if rest.count("'") % 2 else rest  # a command that another one quotes
            found.append((where, module, shlex.split(rest)))
    return found


def flags_of(module: str) -> tuple[set[str], tuple[str, ...]]:
    """(those that it knows, those that it wants)"""
    source = (ROOT / (module.replace('.', '/') + '.py')).read_text()
    shared = [
        name for name in ('cli', 'engines', 'devices') if re.search(rf'from experiments import .*\b{name}\b', source)
    ]
    sources = [source, *((ROOT / 'experiments' / f'{name}.py').read_text() for name in shared)]
    if 'probe.define_flags' in source:
        sources.append((ROOT / 'analysis/probe.py').read_text())
    wanted = re.search(r'required=\(([^)]*)\)', source)
    return set(DEFINED.findall(''.join(sources))), tuple(
        re.findall(r"'(\w+)'", wanted[1]) if wanted else ('config', 'workdir')
    )


def config_of(value: str) -> dict:
    path, _, argument = value.partition(':')
    for place, name in PLACES.items():
        argument = argument.replace(place, name)
    make = importlib.import_module(module_of(ROOT / path)).get_config
    return flat((make(argument) if argument else make()).to_dict())


COMMANDS = commands()


@pytest.mark.parametrize('number', range(len(COMMANDS)))
def test_a_command_names_what_there_is(number):
    where, module, words = COMMANDS[number]
    known, wanted = flags_of(module)
    given = dict(re.match(r'--([\w.]+)=?(.*)', word, re.DOTALL).groups() for word in words if word.startswith('--'))
    assert {name.partition('.')[0] for name in given} <= known, (where, words)
    if given and words[-1] != '...':
        assert set(wanted) <= set(given), (where, words)
    config = given.get('config', '')
    if config and (ROOT / config.partition(':')[0]).exists():
        keys = config_of(config)
        for name in given:
            if name.startswith('config.') and name != 'config.optimizer.learning_rat':
                key = name.removeprefix('config.')
                assert any(at == key or at.startswith(f'{key}.') or key.startswith(f'{at}.') for at in keys), (
                    where,
                    key,
                )
    else:
        assert config in ('', 'my_sweep.py'), (where, config)


def test_they_are_found():
    assert len(COMMANDS) > 60
