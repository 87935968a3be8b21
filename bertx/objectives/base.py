"""The contract of an objective, and how one is made from its name and arguments in the config."""

import dataclasses
import hashlib
import importlib
import inspect
import sys
from collections.abc import Mapping
from typing import Any, ClassVar

import flax.linen as nn

from bertx import heads, losses
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, one_of, unknown
from bertx.types import Array, DropoutRates, Encoded, Example, Loss, Tables, Term, View, Vocabulary


@dataclasses.dataclass(frozen=True)
class Needs:
    """What the text pipeline must supply, checked before anything is compiled."""

    formats: tuple[str, ...] = ()  # input formats that will do; empty: any
    label: str = ''  # the pair label that rows must carry
    # Host-side quirks of the released code: its pair builder, where there is a label, and its static, repeated masks.
    # None: either will do.
    original: bool | None = None
    one_input: bool = False  # no packing: counts that are a row's in the released code
    static: bool = False  # rows and masks repeat every config.rows.dupe_factor epochs; `original` implies it
    words: bool = False  # a tokenizer that marks words
    units: bool = False  # config.rows.units


class Objective:
    """One way to learn from a row. Subclasses are final `flax.struct` dataclasses, one to a file.

    Numeric fields are leaves, so they are traced: other values never recompile. Fields that change shapes or the graph
    are static.
    """

    writes_tokens: ClassVar[bool] = False  # at most one objective of a run may
    attention: ClassVar[str] = 'bidirectional'  # or 'causal', or 'either'
    token_losses: ClassVar[tuple[str, ...]] = ()  # those whose exponential is a perplexity
    parts: ClassVar[dict[str, dict[str, Any]]] = {}  # field -> name -> class, for fields that are built from a dict

    @property
    def needs(self) -> Needs:
        return Needs()

    def check(self, key: str) -> None:
        """Raises BadInput for values out of range. Called on Python numbers, never on tracers."""

    def check_store(self, key: str, store) -> None:
        """Raises BadInput where the token store is not the one for what is read from disk."""

    def sized(self, length: int) -> 'Objective':
        """The same objective with its static sizes filled in for rows of this length. Raises BadInput, without the
        objective's name, where they will not do."""
        return self

    @classmethod
    def preset(cls, arguments: Mapping[str, Any], field: str) -> Any:
        """The part that a dict without a name changes in this field; None: the first of `parts`."""
        return None

    def as_task(self) -> 'Objective':
        """This objective as all arms are judged on it."""
        return self

    def adapt(self, config: EncoderConfig) -> EncoderConfig:
        """The encoder's configuration as this objective wants it."""
        return config

    def build(self, config: EncoderConfig) -> nn.Module:
        """Heads and further networks. What lies in the collection 'frozen' gets no gradient and no update."""
        raise NotImplementedError

    def frozen(self) -> Any:
        """Trained values for the module's collection 'frozen', read from disk; None: it has no such collection."""
        return None

    def content(self) -> str:
        """Hash of what `frozen` reads: part of the run's."""
        return ''

    def flops(self, config: EncoderConfig, length: int) -> float:
        """Forward FLOPs of a row beyond those of the encoder's blocks."""
        return getattr(self, 'k', 0) * config.flops_per_prediction

    def groups(self) -> dict[str, Array]:
        """Parts of the module that have an optimizer group, with a gradient norm, of their own: path -> factor of the
        learning rate."""
        return {}

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary) -> tuple[View, Any]:
        """ONE example: what the encoder sees, and the targets. The trainer vmaps it."""
        raise NotImplementedError

    def rewrite(self, head, encoder, view: View, targets: Any, rates: DropoutRates | None) -> tuple[View, Any]:
        """A whole batch, before the encoder: for a second network that writes the view. It may use the encoder's
        embeddings."""
        return view, targets

    def base(self, head) -> Tables | None:
        """Tables that the encoder adds to its own."""
        return None

    def weights(self, targets: Any) -> dict[str, Array]:
        """[B] for each loss; needs no parameters, so the global weight is known before any gradient."""
        return {'loss': targets['weight'].sum(-1)}

    def features(self, encoded: Encoded, targets: Any) -> Array:
        """[B, K, D]: all that the head reads of the hidden states, so that a new one can be fitted."""
        return heads.gather(encoded.for_tokens, targets['at'])

    def scores(self, head, x_BKD, table_VE, targets: Any) -> tuple[dict[str, Loss], dict[str, Term]]:
        """Losses and metrics from the features alone: here of a classifier, whose coefficient is the field `weight`.
        Objectives that need more have `terms` of their own."""
        logits, label, weight = head(x_BKD, table_VE), targets['label'], targets['weight']
        loss = Loss(getattr(self, 'weight', 1.0), losses.cross_entropy(logits, label, weight))
        return {'loss': loss}, {'accuracy': losses.hits(logits, label, weight)}

    def terms(self, head, encoded: Encoded, targets: Any) -> tuple[dict[str, Loss], dict[str, Term]]:
        """Losses and metrics of a batch, per example."""
        return self.scores(head, self.features(encoded, targets), encoded.table_VE, targets)

    def warnings(self, means: dict[str, float]) -> list[str]:
        """What is wrong with the means since the last log line. Asked after the warm-up; each is logged once."""
        return []


LARGEST = 3e38  # of float32; NaN and infinity are not below it
ABSTRACT = ('__init__', 'base', 'detection', 'generator', 'masking', 'pair')  # what objectives share


def find(name: str) -> type[Objective]:
    """`bertx.objectives.<name>`; with colons, as ConfigDict keys have no dots, a module anywhere: `mine:rare`.

    The module defines exactly one Objective.
    """
    if not isinstance(name, str) or name.removeprefix('bertx:objectives:') in ABSTRACT or name.startswith(':'):
        raise unknown('objective', str(name), available())
    path = name.replace(':', '.') if ':' in name else f'bertx.objectives.{name}'
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name is None or not path.startswith(error.name):
            raise  # the objective exists; something that it imports does not
        raise unknown('objective', name, available()) from None
    found = [x for x in vars(module).values() if isinstance(x, type) and issubclass(x, Objective)]
    found = [x for x in found if x.__module__ == module.__name__]
    if len(found) != 1:
        raise BadInput(f'module {path} must define one Objective, it defines {len(found)}')
    return found[0]


def source(name: str) -> str:
    """Hash of the text of an objective's module."""
    return hashlib.sha256(inspect.getsource(sys.modules[find(name).__module__]).encode()).hexdigest()


def available() -> list[str]:
    """Names of the objectives that come with bertx."""
    from importlib.resources import files

    names = (path.name.removesuffix('.py') for path in files('bertx.objectives').iterdir() if path.name.endswith('.py'))
    return sorted(set(names) - set(ABSTRACT))


def construct(cls: type, arguments: Mapping[str, Any], key: str) -> Any:
    """The dataclass from a config's dict; an unknown argument raises and names the key."""
    if not isinstance(arguments, Mapping):
        raise BadInput(f'{key} is {arguments!r}; its arguments in a dict would do')
    fields = {field.name: field.default for field in dataclasses.fields(cls) if field.init}
    values = {}
    for name, value in arguments.items():
        if name not in fields:
            raise unknown(f'{key}: argument', name, fields) if fields else BadInput(f'{key} takes no arguments')
        choices = getattr(cls, 'parts', {}).get(name)
        if choices is not None:
            if not isinstance(value, Mapping):
                raise BadInput(f'{key}.{name} is {value!r}; its arguments in a dict would do')
            value, part = dict(value), cls.preset(arguments, name) if issubclass(cls, Objective) else None
            if 'name' in value or part is None:
                kind = value.pop('name', next(iter(choices)))
                one_of(f'{key}.{name}.name', kind if isinstance(kind, str) else repr(kind), choices)
                value = construct(choices[kind], value, f'{key}.{name}')
            else:
                value = construct(type(part), vars(part) | value, f'{key}.{name}')
        else:
            check_kind(f'{key}.{name}', fields[name], value)
            value = int(value) if type(fields[name]) is int else value  # 8.0 is no size
        values[name] = value
    return cls(**values)


def check_kind(key: str, default: Any, value: Any) -> None:
    """Raises BadInput where a value is no number, name or switch though the field's default is one."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
    if isinstance(default, bool | str):
        good = isinstance(value, type(default))
    elif isinstance(default, int):
        good = number and value == int(value)
    elif isinstance(default, float):
        good = number
    else:  # None: the variant's own
        good = value is None or number or isinstance(value, bool | str)
    if not good:
        raise BadInput(f'{key} is {value!r}; a value like {default!r} would do')
    if key.endswith('weight') and number and value < 0:
        raise BadInput(f'{key} is {value:g}; 0 or more would do')


def make(objectives: dict[str, dict[str, Any]], length: int) -> dict[str, Objective]:
    """The objectives of a run, checked one by one and together, with static sizes for rows of `length`."""
    made = {}
    for name, arguments in objectives.items():
        key = f'config.objectives.{name}'
        objective = construct(find(name), arguments, key)
        objective.check(key)
        try:
            made[name] = objective.sized(length)
        except BadInput as error:
            raise BadInput(f'{key}: {error}') from None
    if not made:
        raise BadInput('config.objectives is empty; name at least one, such as mlm')
    writers = [name for name, objective in made.items() if objective.writes_tokens]
    if len(writers) > 1:
        raise BadInput(f'config.objectives: {" and ".join(writers)} both write the tokens; at most one of a run may')
    directions = {objective.attention for objective in made.values()} - {'either'}
    if len(directions) > 1:
        raise BadInput('config.objectives mixes bidirectional and causal attention; a run has one encoder pass')
    return made
