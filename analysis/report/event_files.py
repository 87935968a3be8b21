"""TensorBoard event files of finished and running runs: `tensorboard --logdir=DIR/tensorboard`."""

from collections.abc import Iterable

from etils import epath

from bertx.errors import BadInput
from bertx.results import RunFolder


def write(place: epath.Path, folders: Iterable[RunFolder]) -> None:
    """A folder a run with every number of its metrics.jsonl, by step; what stood there is replaced.

    Raises BadInput where tensorboardX, which nothing else needs, is not installed.
    """
    try:
        from tensorboardX import SummaryWriter
    except ImportError:
        raise BadInput('--tensorboard needs a package that is not installed: pip install tensorboardX') from None
    if place.exists():
        place.rmtree()
    for folder in folders:
        with SummaryWriter(str(place / folder.path.name)) as writer:
            for line in folder.metrics():
                for name in line.keys() - {'step', 'split'}:
                    writer.add_scalar(f'{line["split"]}/{name}', line[name], line['step'])
