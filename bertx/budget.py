"""How long each run trains: a sweep's arms with equal steps, tokens, FLOPs, or seconds on this machine."""

from typing import Any

from bertx.config import Run
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, one_of
from bertx.objectives.generator import GeneratorObjective

KINDS = ('steps', 'tokens', 'flops', 'electra_flops', 'seconds')


def electra_flops(run: Run) -> float:
    """FLOPs of a step as ELECTRA's authors count them, for tables beside theirs: the way back costs as much as the way
    forward, not twice as much, and looking up an embedding is a product with a one-hot vector.

    (google-research/electra, flops_computation.py; Clark et al. 2020, appendix)
    """
    batch, length, e = run.train['batch'], run.rows.length, run.encoder
    generators = [o.network(e) for o in run.objectives.values() if isinstance(o, GeneratorObjective)]
    lookups = 2.0 * length * sum(map(_looked_up, [e, *generators]))
    more = sum(o.flops(e, length) for o in run.objectives.values())
    return 2.0 * batch * (length * e.flops_per_token(length) + more + lookups)


def _looked_up(e: EncoderConfig) -> int:
    """Multiply-adds of a token's one-hot vectors with the tables."""
    positions = e.max_positions if e.positions == 'absolute' else 0
    return (e.vocab_size + positions + e.type_vocab) * e.table_width


def steps_for(run: Run, budget: dict[str, Any], seconds_a_step: float = 0.0) -> int:
    """The steps that spend config.budget. Raises BadInput where it is no budget, or not enough for a step."""
    kind, amount = budget['of'], budget['amount']
    one_of('config.budget.of', kind, KINDS)
    if run.second is not None:
        raise BadInput('config.budget does not go with config.train.second; give train.steps, and budget.of=""')
    costs = {
        'steps': 1.0,
        'tokens': run.tokens_per_step,
        'flops': run.flops_per_step,
        'electra_flops': electra_flops(run),
        'seconds': seconds_a_step,
    }
    steps = int(amount / costs[kind])
    if steps < 1:
        raise BadInput(f'config.budget.amount is {amount:g}; a step takes {costs[kind]:.3g} {kind}')
    return steps
