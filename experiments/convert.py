"""Weights from Hugging Face to bertx, and back.

    python -m experiments.convert --from=FOLDER --to=NEW_FOLDER

A folder of transformers (config.json, model.safetensors, and tokenizer.json or vocab.txt) becomes one with
encoder.json, tokenizer.json and checkpoints/, as a run has them; such a one, or a run, becomes one for
`from_pretrained`. Heads are taken along: masked language model, NSP or SOP, ELECTRA's two, classification, tagging,
question answering. Where no class of transformers holds them all, what is left out is named; --heads=mlm,sop says which
are wanted.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

from bertx import hf, paths
from bertx.checkpoint import write_parameters
from bertx.encoder import count
from bertx.errors import one_of
from bertx.pretrained import Pretrained
from experiments import cli


def convert(source: str, target: str, wanted: Sequence[str] = ()) -> Iterator[str]:
    """What was read, and what was written. Raises BadInput where either cannot be."""
    model = Pretrained.load(source)
    for name in wanted:
        one_of('--heads', name, model.heads)
    chosen = [name for name in model.params if name == 'encoder' or not wanted or name.removeprefix('heads_') in wanted]
    params, c = {name: model.params[name] for name in chosen}, model.encoder
    yield (
        f'{source}: {c.family}, {c.layers} layers of width {c.width}, {c.heads} attention heads, {c.vocab_size:,} '
        f'pieces, {count(params["encoder"]):,} parameters; heads: {", ".join(model.heads) or "none"}'
    )
    if (paths.anywhere(source) / 'encoder.json').exists():
        cls, notes = hf.write(target, c, params, model.tokenizer, model.about)
        yield from notes
        yield f'{target}: {cls}'
        return
    with hf.whole_folder(target) as folder:
        model.tokenizer.save(folder)
        (folder / 'encoder.json').write_text(json.dumps(dataclasses.asdict(c), indent=1))
        if model.about:
            (folder / 'heads.json').write_text(json.dumps(model.about, indent=1))
        write_parameters(folder / 'checkpoints', params, {'from': source})
    yield f'{target}: {", ".join(chosen)}'


def main() -> int:
    f: Any = flags.FLAGS
    for line in convert(f['from'].value, f['to'].value, f['heads'].value):
        print(line)
    return cli.DONE


if __name__ == '__main__':
    flags.DEFINE_string('from', None, 'A Hugging Face folder, a run, or a folder that this command has made.')
    flags.DEFINE_string('to', None, 'A folder that is new or empty.')
    flags.DEFINE_list('heads', [], 'Those that are wanted, where not all can be had.')
    cli.run(main, required=('from', 'to'))
