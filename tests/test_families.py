"""Every objective on every family of encoders, by configuration alone."""

import jax
import numpy as np
import pytest

from bertx.errors import BadInput
from bertx.families import FAMILIES
from bertx.sweep import arm, chain
from tests.test_objectives import CASES, HYPER, Case, gradients_reach_what_is_trained
from tests.test_sweep import run, small

# What a family's encoder has that BERT's has not; the others differ in numbers only.
SETTINGS = {
    'albert': {'layers': 2, 'embedding_width': 16},
    'deberta_v3': {'layers': 2, 'mask_decoder': True},
    'modernbert': {'layers': 4, 'local_window': 8},
}
# One family for each objective here, all pairs with -m slow.
PAIRS = [
    pytest.param(case, family, marks=[pytest.mark.slow] * (i % len(SETTINGS) != j))
    for i, case in enumerate(CASES)
    for j, family in enumerate(SETTINGS)
]


@pytest.mark.parametrize(('case', 'family'), PAIRS)
def test_any_objective_trains_on_any_family(store, case, family):
    """Traced, not run: the step takes the state that `init` gives and gives such a one."""
    c = Case(store, case, 3, family, **SETTINGS[family])
    arguments = (c.objectives, HYPER, c.root, c.vocab, c.batch)
    state = jax.eval_shape(c.init, *arguments)
    after, _ = jax.eval_shape(c.step, state, *arguments)
    assert jax.tree.map(lambda x: x.shape, after.params) == jax.tree.map(lambda x: x.shape, state.params)


@pytest.mark.parametrize('family', SETTINGS)
def test_gradients_reach_all_of_a_family(store, family):
    c = Case(store, 'mlm', 3, family, **SETTINGS[family])
    grads, _ = c.gradient(c.state.params, c.batch)
    gradients_reach_what_is_trained(grads)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(jax.device_get(grads)))


def test_a_sweep_crosses_families(store, tmp_path):
    config = small(store)
    config.train.update(steps=2, log_every=1, validate_every=2, checkpoint_every=2)
    config.encoder.update(layers=2)
    config.evaluation.update(tasks=('mlm', 'nsp'))
    config.evaluation.refit.update(tasks=('nsp',))
    points = chain(*(arm(f, set={'encoder.family': f}, objectives={'mlm': {}}) for f in ('deberta', 'modernbert')))
    planned, failed = run(config, points, tmp_path)
    assert not failed
    assert [p.run.encoder.family for p in planned] == ['deberta', 'modernbert']
    assert all(np.isfinite(p.folder.metrics()[-1]['mlm/loss']) for p in planned)


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'family': 'berd'}, "'berd'.*bert"),
        ({'family': 'albert', 'size': 'xxlarg'}, "'xxlarg'.*xxlarge"),
        ({'layers': 3, 'groups': 2}, 'layers 3 is no multiple of groups 2'),
        ({'family': 'modernbert', 'width': 6, 'heads': 2}, 'is odd'),
        ({'mask_decoder': True, 'embedding_width': 8}, 'embedding_width must be 0'),
    ],
)
def test_what_no_encoder_can_be_is_refused(store, tmp_path, settings, message):
    config = small(store)
    config.encoder.update(settings)
    with pytest.raises(BadInput, match=message):
        run(config, arm('none', objectives={'mlm': {}}), tmp_path)


def test_every_family_has_every_size():
    from bertx.families import SIZES, encoder_of

    for family in FAMILIES:
        for size in SIZES:
            config = encoder_of(family, size, 100)
            assert config.width % config.heads == 0
