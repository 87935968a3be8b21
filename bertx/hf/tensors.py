"""The tensors of a Hugging Face folder, and where our parameters stand in them.

Only safetensors: reading a pickle file runs what is in it.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import safetensors

from bertx.errors import BadInput
from bertx.hf.config import Settings
from bertx.hf.names import Format, Part, Shifted

Tensors = dict[str, np.ndarray]
WEIGHTS, INDEX = 'model.safetensors', 'model.safetensors.index.json'
_LEAVES = {'kernel': 'weight', 'bias': 'bias', 'scale': 'weight', 'embedding': 'weight'}
_BUFFERS = ('position_ids', 'token_type_ids', 'inv_freq')  # no parameters; older versions saved them
_PICKLES = ('.bin', '.pt', '.pth', '.ckpt', '.pkl')


class Slot(NamedTuple):
    """Where one of our arrays, or a layer of it, stands: in a tensor, or in one of its parts."""

    path: str
    layer: int | None
    shape: tuple[int, ...]  # ours, without the layers
    name: str
    part: int
    parts: int
    blocks: int  # the parts of each lie together

    @property
    def flat(self) -> tuple[int, ...]:
        """The shape of the tensor or part. torch has the output first, and one axis for heads and their features."""
        if not self.path.endswith('/kernel'):
            return self.shape if self.path.endswith('/embedding') else (math.prod(self.shape),)
        inputs = 2 if self.path.endswith('attention/output/kernel') else 1
        return math.prod(self.shape[inputs:]), math.prod(self.shape[:inputs])

    @property
    def tensor(self) -> tuple[int, ...]:
        return self.parts * self.flat[0], *self.flat[1:]

    @property
    def _cut(self) -> tuple[int, ...]:
        rows, *rest = self.flat
        return self.blocks, self.parts, rows // self.blocks, *rest

    def take(self, tensor: np.ndarray) -> np.ndarray:
        x = tensor.reshape(self._cut)[:, self.part].reshape(self.flat)
        return (x.T if self.path.endswith('/kernel') else x).reshape(self.shape)

    def put(self, tensor: np.ndarray, x: np.ndarray) -> None:
        x = x.reshape(self.flat[::-1]).T if self.path.endswith('/kernel') else x
        tensor.reshape(self._cut)[:, self.part] = x.reshape(self.flat).reshape(self._cut[:1] + self._cut[2:])


def ruled(rules: dict[str, Any], path: str) -> bool:
    return path in rules or path.rpartition('/')[0] in rules


def slots(rules: dict[str, Any], root: str, shapes: dict[str, tuple[int, ...]], head_count: int) -> Iterator[Slot]:
    """Of all parameters of a module, by their paths in it."""
    for path, shape in shapes.items():
        module, _, leaf = path.rpartition('/')
        rule = rules.get(path) or rules[module]
        ending = '' if path in rules else '.' + _LEAVES[leaf]
        part = (rule.third, 3, head_count if rule.per_head else 1) if isinstance(rule, Part) else (0, 1, 1)
        name = rule if isinstance(rule, str) else rule.name
        if not path.startswith('layers/'):
            yield Slot(f'{root}/{path}', None, shape, name + ending, *part)
            continue
        for i in range(shape[0]):
            at = i + 1 if isinstance(rule, Shifted) else i
            name_i = rule.last if isinstance(rule, Shifted) and at == shape[0] else name.format(i=at)
            yield Slot(f'{root}/{path}', i, shape[1:], name_i + ending, *part)


class Source:
    """The tensors of a folder, named as in `FORMATS` but for the @; errors call them what the folder does."""

    def __init__(self, path: Path, form: Format):
        self.path = path
        found = _load(path)
        prefix = f'{form.prefix}.' if any(name.startswith(f'{form.prefix}.') for name in found) else ''
        self.own = {_new_name(name.removeprefix(prefix)): name for name in found}
        self.tensors = {name: found[own] for name, own in self.own.items()}
        self.prefix, self.taken = prefix, {name for name in self.own if name.endswith(_BUFFERS)}
        for name, target in form.tied.items():
            self._untie(name, target.removeprefix('@'))

    def _untie(self, name: str, target: str) -> None:
        if name in self.tensors and target not in self.tensors:  # of two that are one, either may have been saved
            self.tensors[target], self.own[target] = self.tensors.pop(name), self.own.pop(name)
        elif name in self.tensors:
            if not np.array_equal(self.tensors[name], self.tensors[target]):
                raise BadInput(
                    f'{self.path}: {self.own[name]} differs from {self.own[target]}; bertx ties them, so that output '
                    'layer has no place'
                )
            self.taken.add(name)

    def spell(self, rule: str) -> str:
        name = rule.removeprefix('@')
        return self.own.get(name, self.prefix * rule.startswith('@') + name)

    def has(self, rule: str) -> bool:
        """Whether there is a tensor for a rule that no other head has read."""
        name = rule.removeprefix('@')
        found = [x for x in (name, f'{name}.weight') if x in self.tensors]
        return bool(found) and (rule != name or found[0] not in self.taken)

    def holds(self, rules: dict[str, str]) -> bool:
        """Whether a head is there."""
        own = [rule for rule in rules.values() if not rule.startswith('@')]
        unread = own or [rule for rule in rules.values() if f'{rule[1:]}.weight' not in self.taken]
        return bool(unread) and all(self.has(rule) for rule in rules.values())

    def rows(self, rule: str, default: int) -> int:
        found = self.tensors.get(f'{rule}.weight')
        return default if found is None or not found.ndim else len(found)

    def read(self, wanted: Iterable[Slot]) -> dict[str, np.ndarray]:
        """Our arrays by path."""
        found: dict[str, list[np.ndarray]] = {}
        layered, missing = set(), []
        for slot in wanted:
            name = slot.name.removeprefix('@')
            if name not in self.tensors:
                missing.append(self.spell(slot.name))
                continue
            tensor = self.tensors[name]
            if tensor.shape != slot.tensor:
                raise BadInput(
                    f'{self.path}: {self.own[name]} has shape {tensor.shape}; by config.json it is {slot.tensor}'
                )
            self.taken.add(name)
            found.setdefault(slot.path, []).append(slot.take(tensor))
            if slot.layer is not None:
                layered.add(slot.path)
        if missing:
            raise BadInput(f'{self.path} has no tensor {_some(missing)}')
        return {path: np.stack(x) if path in layered else np.ascontiguousarray(x[0]) for path, x in found.items()}

    def drop_identity(self, rule: str) -> None:
        """A layer between embeddings and encoder which transformers has at equal widths too."""
        name = rule.removeprefix('@')
        weight, bias = (self.tensors.get(f'{name}.{leaf}') for leaf in ('weight', 'bias'))
        if weight is None or bias is None or not np.array_equal(weight, np.eye(len(weight))) or bias.any():
            raise BadInput(
                f'{self.path}: {self.spell(rule)} is not the identity; bertx has no such layer where embeddings are as '
                'wide as the encoder'
            )
        self.taken |= {f'{name}.weight', f'{name}.bias'}

    def check_all_read(self, kind: str) -> None:
        extra = sorted(self.own[name] for name in self.tensors.keys() - self.taken)
        if extra:
            raise BadInput(f'{self.path} has a tensor that no {kind} of bertx has: {_some(extra)}')


def _some(names: list[str]) -> str:
    return names[0] + (f' (and {len(names) - 1} more)' if len(names) > 1 else '')


def _new_name(name: str) -> str:
    """Norms of folders that were made from TensorFlow's checkpoints."""
    stem, _, leaf = name.rpartition('.')
    return f'{stem}.{ {"gamma": "weight", "beta": "bias"}.get(leaf, leaf) }'.lstrip('.')


def _load(path: Path) -> Tensors:
    """All tensors as float32, from one file or from several with an index."""
    names = [WEIGHTS]
    if (path / INDEX).is_file():
        listed = Settings.load(path / INDEX).get('weight_map', {})
        if not isinstance(listed, dict) or not all(isinstance(name, str) for name in listed.values()):
            raise BadInput(f'{path / INDEX}: weight_map is no map from tensors to files; copy it again')
        names = sorted(set(listed.values()))
    found: Tensors = {}
    for file in [path / name for name in names]:
        if not file.is_file():
            pickles = sorted(x.name for x in path.glob('*') if x.suffix in _PICKLES)
            if pickles:
                raise BadInput(
                    f'{path} has {pickles[0]} and no {file.name}: reading a pickle file runs code that is in it, so '
                    'only safetensors are read; save_pretrained of transformers writes them'
                )
            raise BadInput(f'there is no {file}; a Hugging Face folder with safetensors has one')
        try:
            with safetensors.safe_open(file, 'np') as opened:
                for name in opened.keys():  # noqa: SIM118
                    found[name] = opened.get_tensor(name)
        except (safetensors.SafetensorError, OSError) as error:
            raise BadInput(f'{file} is cut or damaged ({error}); copy it again') from None
    for name, x in found.items():
        if jnp.issubdtype(x.dtype, jnp.floating):
            found[name] = x.astype(np.float32)
            if not np.isfinite(found[name]).all():
                raise BadInput(f'{path}: {name} holds nan or inf; weights of a run that went well would do')
        elif not name.endswith(_BUFFERS):
            raise BadInput(f'{path}: {name} is of {x.dtype}; float32, float16 or bfloat16 would do')
    return found
