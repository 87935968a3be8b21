"""Eight CPU devices, parsed flags, and small stores of made-up text."""

import os

from as_users import OF_TESTS

# The suite's time is compilation, not computation. The older emitters compile a training step in a third of the time.
# In the environment, so that commands which tests start have it, too.
os.environ.update(OF_TESTS)

import jax  # noqa: E402

jax.config.update('jax_num_cpu_devices', 8)
jax.config.update('jax_numpy_rank_promotion', 'raise')

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from absl import flags  # noqa: E402

from bertx.text.prepare import PrepareOptions, prepare  # noqa: E402

# grain asks absl for a flag, and absl refuses before flags are parsed.
flags.FLAGS.mark_as_parsed()


def write_corpus(folder, documents: int = 40, sentences: int = 30, seed: int = 0):
    """Documents with a vocabulary of their own and numbered sentences, so that topic and order can be learned."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for d in range(documents):
        words = [f'w{n}' for n in rng.integers(0, 60, 8)]
        lines = [f'The {rng.choice(words)} of {rng.choice(words)} is {rng.choice(words)}.' for _ in range(sentences)]
        (folder / f'{d:03d}.txt').write_text('\n'.join(lines) + '\n')
    return folder


@pytest.fixture(scope='session')
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp('corpus'))


@pytest.fixture(scope='session')
def store(corpus, tmp_path_factory):
    options = PrepareOptions(source=f'text:{corpus}', vocab_size=120, validation=0.2, test=0.2, split_seed=0)
    return prepare(options, tmp_path_factory.mktemp('store') / 'store')


@pytest.fixture
def folders(tmp_path):
    """Runs of a sweep: none and sop with 4 seeds each, sop far better at sop; a failed and an unfinished one."""
    from report_cases import run, usual

    found = [run(tmp_path, 'none', seed, usual('none', seed)) for seed in (2, 0, 1, 3)]
    found += [run(tmp_path, 'sop', seed, usual('sop', seed + 10, 0.3, own=True)) for seed in range(3)]
    found.append(run(tmp_path, 'sop', 3, reason='FloatingPointError: loss is\nnan at step 7'))
    found.append(run(tmp_path, 'sop', 4))
    return found


@pytest.fixture
def figures(monkeypatch):
    """The figures that `layer_plots` would save."""
    from analysis.report import layer_plots

    found = []
    monkeypatch.setattr(layer_plots, 'save', lambda figure, path: found.append(figure) or path.with_suffix('.png'))
    return found
