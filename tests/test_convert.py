"""Folders of transformers to bertx and back: every bit of what is written comes back, and what is wrong is named."""

import errno
import json
import os
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
import weights
from safetensors.numpy import load_file, save_file
from weights import same, small, wordpieces

from bertx import hf
from bertx.errors import BadInput
from bertx.families import FAMILIES
from bertx.hf.config import MODEL_TYPES
from bertx.hf.names import FORMATS
from bertx.pretrained import Pretrained
from experiments.convert import convert

# family -> sets of heads, each of which some class of transformers holds
TOGETHER = {
    kind: sorted(
        {tuple(name.removesuffix('?') for name in names) for _, names in form.models} - {('mlm_decoded', 'electra')}
    )
    for kind, form in FORMATS.items()
}


def pad_of(family: str) -> int:
    return 1 if family == 'roberta' else 0


@pytest.mark.parametrize('family', FAMILIES)
def test_all_heads_of_all_families_come_back(family, tmp_path):
    config, kind = small(family), MODEL_TYPES[family]
    for number, names in enumerate(TOGETHER[kind]):
        params = weights.params(config, *names, kind=kind, classes=3 if 'classify' in names or 'tag' in names else 2)
        model, notes = hf.write(tmp_path / str(number), config, params, wordpieces(pad_of(family)))
        assert not [note for note in notes if 'left out' in note], (model, notes)
        found, again = hf.read(tmp_path / str(number))
        assert found == small('bert' if family == 'spanbert' else family)
        same(again, params)


@pytest.mark.parametrize('embeddings', ['tied', 'own'])
def test_both_networks_of_electra_come_back(embeddings, tmp_path):
    config, own = small('electra', embedding_width=8), small('electra', layers=2, width=8, heads=1, mlp_width=12)
    params, generator = weights.params(config, 'electra', kind='electra'), weights.params(own, 'mlm', kind='electra')
    if embeddings == 'tied':
        del generator['encoder']['embeddings']
    else:
        generator['encoder']['embeddings']['token']['embedding'] += 1.0
    params['heads_electra']['generator'] = {'encoder': generator['encoder'], 'token': generator['heads_mlm']}
    model, notes = hf.write(tmp_path / 'both', config, params, wordpieces())
    assert (model, notes) == ('ElectraForPreTraining', ['generator/ is a ElectraForMaskedLM'])
    found, again = hf.read(tmp_path / 'both')
    assert found == config
    same(again, params)
    bert = small('bert', embedding_width=8)  # an encoder of this form, whatever its name
    assert hf.write(tmp_path / 'bert', bert, params, wordpieces()) == (model, notes)


def test_the_mask_decoder_comes_back(tmp_path):
    config = small('deberta', mask_decoder=True)
    params = weights.params(config, 'mlm', kind='deberta')
    model, notes = hf.write(tmp_path / 'x', config, params, wordpieces())
    assert model == 'DebertaForMaskedLM'
    assert len(notes) == 1 and 'mask decoder' in notes[0]
    found, again = hf.read(tmp_path / 'x')
    assert found == config
    same(again, params)


def test_albert_with_embeddings_as_wide_as_the_encoder(tmp_path):
    config = small('albert', embedding_width=0)
    params = weights.params(config)
    hf.write(tmp_path / 'x', config, params, wordpieces())
    assert 'encoder.embedding_hidden_mapping_in.weight' in load_file(tmp_path / 'x' / hf.WEIGHTS)
    same(hf.read(tmp_path / 'x')[1], params)


def test_roberta_counts_from_behind_the_pad_token(tmp_path):
    config, params = small('roberta'), weights.params(small('roberta'), 'mlm', kind='roberta')
    _, notes = hf.write(tmp_path / 'x', config, params, wordpieces(pad=0))
    found, again = hf.read(tmp_path / 'x')
    assert 'row 1' in notes[0]
    assert (found.position_offset, found.max_positions) == (1, config.max_positions)
    tables = [x['encoder']['embeddings'].pop('position')['embedding'] for x in (params, again)]
    np.testing.assert_array_equal(tables[1][1:], tables[0][2:])
    same(again, params)


LEFT_OUT = [
    ('bert', ['mlm', 'sop'], 'BertForMaskedLM', 'heads_sop is left out'),
    ('bert', ['sop'], 'BertForSequenceClassification', 'heads_sop is written as a classifier'),
    ('bert', ['mlm', 'classify'], 'BertForMaskedLM', 'alone it makes a BertForSequenceClassification'),
    ('roberta', ['mlm', 'pooler'], 'RobertaForMaskedLM', 'pooler is left out'),
    ('albert', ['mlm', 'nsp'], 'AlbertForMaskedLM', 'heads_nsp is left out'),
    ('distilbert', ['electra'], 'DistilBertModel', 'heads_electra/head is left out'),
]


@pytest.mark.parametrize(('family', 'names', 'model', 'note'), LEFT_OUT)
def test_what_is_left_out_is_named(family, names, model, note, tmp_path):
    config = small(family)
    found, notes = hf.write(tmp_path / 'x', config, weights.params(config, *names), wordpieces(pad_of(family)))
    assert found == model
    assert any(note in line for line in notes), notes
    hf.read(tmp_path / 'x')


def test_heads_that_only_runs_have(tmp_path):
    config = small('bert')
    params = weights.params(config, 'mlm', 'classify', 'tag')
    encoder, mlm, classify, tag = (params[name] for name in ('encoder', 'heads_mlm', 'heads_classify', 'heads_tag'))
    for number, (model, note, own) in enumerate([
        ('BertForMaskedLM', 'heads_sbo/token is written as', {'sbo': {'token': mlm, 'span': {'bias': np.ones(2)}}}),
        ('BertForMaskedLM', 'heads_sbo is left out', {'sbo': {'token': mlm, 'span': {'bias': np.ones(2)}}}),
        ('BertModel', 'no class of transformers has a head on such states', {'classify_mix': classify}),
        ('BertModel', 'no class of transformers has a head on such states', {'tag_second_to_last': tag}),
        ('BertModel', 'heads_classify is left out', {'classify': classify | {'gain': np.ones(())}}),
    ]):  # fmt: skip
        heads = {f'heads_{name}': x for name, x in own.items()}
        found, notes = hf.write(tmp_path / str(number), config, {'encoder': encoder} | heads, wordpieces())
        assert found == model
        assert any(note in line for line in notes), notes
        found, again = hf.read(tmp_path / str(number))
        assert list(again) == (['encoder', 'heads_mlm'] if 'sbo' in own else ['encoder'])


def test_a_run_tells_what_its_heads_are(tmp_path):
    """Not their names, which are those of tasks, nor their arrays: ModernBERT's taggers have a pooler."""
    config = small('modernbert')
    params = weights.params(config, 'classify')
    params = {'encoder': params['encoder'], 'heads_ner': params['heads_classify']}
    assert hf.write(tmp_path / 'a', config, params, wordpieces(), {'ner': {'kind': 'tag'}})[0] == 'ModernBertModel'
    params = {'encoder': params['encoder'], 'heads_color_mix': params['heads_ner']}
    told = {'color_mix': {'kind': 'classify', 'features': ''}}
    assert 'Classification' in hf.write(tmp_path / 'b', config, params, wordpieces(), told)[0]
    told['color_mix']['features'] = 'mix'
    assert hf.write(tmp_path / 'c', config, params, wordpieces(), told)[0] == 'ModernBertModel'


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A BERT with both its pretraining heads, as transformers has it."""
    path = tmp_path_factory.mktemp('bert') / 'theirs'
    config = small('bert')
    hf.write(path, config, weights.params(config, 'mlm', 'nsp'), wordpieces())
    return path


def changed(folder, path, tensors=lambda x: x, settings=lambda x: x, files=None):
    """A copy with other tensors, other keys in config.json, and the tensors in files of other names."""
    path.mkdir()
    for name in ('tokenizer.json', 'tokenizer_config.json'):
        (path / name).write_text((folder / name).read_text())
    (path / 'config.json').write_text(json.dumps(settings(json.loads((folder / 'config.json').read_text()))))
    new = tensors(load_file(folder / hf.WEIGHTS))
    if files is None:
        save_file(new, path / hf.WEIGHTS)
    else:
        files(path, new)
    return path


def shards(path, tensors):
    names = sorted(tensors)
    parts = {'model-00001-of-00002.safetensors': names[::2], 'model-00002-of-00002.safetensors': names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, path / file)
    index = {'metadata': {}, 'weight_map': {name: file for file, part in parts.items() for name in part}}
    (path / 'model.safetensors.index.json').write_text(json.dumps(index))


def as_tensorflow_named(tensors):
    return {
        name.replace('Norm.weight', 'Norm.gamma').replace('Norm.bias', 'Norm.beta'): x for name, x in tensors.items()
    }


def with_copies(tensors):
    """As older versions saved them: tied tensors twice, and buffers."""
    table, bias = tensors['bert.embeddings.word_embeddings.weight'], tensors.pop('cls.predictions.bias')
    return tensors | {
        'cls.predictions.decoder.weight': table,
        'cls.predictions.decoder.bias': bias,
        'bert.embeddings.position_ids': np.arange(24)[None],
    }


@pytest.mark.parametrize(
    'change',
    [
        dict(tensors=as_tensorflow_named),
        dict(tensors=with_copies),
        dict(files=shards),
        dict(tensors=lambda x: {name.removeprefix('bert.'): y for name, y in x.items()}),
        dict(settings=lambda x: {name: y for name, y in x.items() if name != 'architectures'}),
        dict(settings=lambda x: x | {'architectures': ['BertForMaskedLM']}),
    ],
    ids=['gamma and beta', 'copies', 'shards', 'no prefix', 'no architecture', 'another architecture'],
)
def test_other_spellings_of_the_same(change, folder, tmp_path):
    found = hf.read(changed(folder, tmp_path / 'x', **change))
    expected = hf.read(folder)
    assert found[0] == expected[0]
    same(found[1], expected[1])


@pytest.mark.parametrize('dtype', [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_read_as_float32(dtype, folder, tmp_path):
    if dtype is np.float16:
        change = dict(tensors=lambda x: {name: y.astype(dtype) for name, y in x.items()})
    else:
        change = dict(files=lambda path, x: save_bfloat16(path / hf.WEIGHTS, x))
    _, found = hf.read(changed(folder, tmp_path / 'x', **change))
    _, expected = hf.read(folder)
    same(found, jax.tree.map(lambda x: x.astype(dtype).astype(np.float32), expected))


def save_bfloat16(file, tensors):
    """By hand: safetensors' numpy has no name for it when it writes."""
    header, at, chunks = {}, 0, []
    for name, x in tensors.items():
        chunks.append(x.astype(ml_dtypes.bfloat16).tobytes())
        header[name] = {'dtype': 'BF16', 'shape': x.shape, 'data_offsets': [at, at + len(chunks[-1])]}
        at += len(chunks[-1])
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, 'little') + text + b''.join(chunks))


def without(name):
    return lambda tensors: {key: x for key, x in tensors.items() if key != name}


QUERY = 'bert.encoder.layer.1.attention.self.query.weight'
BAD = [
    (dict(tensors=without(QUERY)), [QUERY, 'no tensor']),
    (dict(tensors=without('cls.predictions.bias')), ['no tensor cls.predictions.bias']),
    (dict(tensors=lambda x: x | {'bert.extra.weight': np.ones(2, np.float32)}), ['bert.extra.weight']),
    (dict(tensors=lambda x: x | {QUERY: np.ones((16, 15), np.float32)}), [QUERY, '(16, 15)', '(16, 16)']),
    (dict(tensors=lambda x: x | {QUERY: np.ones((16, 16), np.int8)}), [QUERY, 'int8']),
    (
        dict(tensors=lambda x: x | {'cls.predictions.decoder.weight': np.ones((50, 16), np.float32)}),
        ['cls.predictions.decoder.weight', 'bert.embeddings.word_embeddings.weight'],
    ),
    (dict(files=lambda path, x: (path / 'pytorch_model.bin').write_bytes(b'')), ['pytorch_model.bin', 'runs code']),
    (dict(files=lambda path, x: None), ['model.safetensors']),
    (dict(files=lambda path, x: (path / hf.WEIGHTS).write_bytes(b'cut')), ['model.safetensors', 'damaged']),
    (
        dict(files=lambda path, x: (shards(path, x), (path / 'model-00002-of-00002.safetensors').unlink())),
        ['model-00002-of-00002.safetensors'],
    ),
    (dict(settings=lambda x: x | {'num_hidden_layers': 4}), ['bert.encoder.layer.3.', 'more']),
    (dict(settings=lambda x: x | {'num_hidden_layers': 2}), ['bert.encoder.layer.2.', 'more']),
    (dict(settings=lambda x: x | {'hidden_act': 'mish'}), ['config.json', 'mish']),
    (dict(settings=lambda x: x | {'architectures': 5}), ['config.json', 'architectures is 5']),
    (dict(settings=lambda x: x | {'architectures': ['BertForMultipleChoice']}), ['BertForMultipleChoice', 'unknown']),
]


@pytest.mark.parametrize(('change', 'words'), BAD)
def test_what_is_wrong_is_named_in_one_line(change, words, folder, tmp_path):
    with pytest.raises(BadInput) as error:
        hf.read(changed(folder, tmp_path / 'x', **change))
    assert '\n' not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_a_folder_that_is_none_is_told_why(folder, tmp_path, monkeypatch):
    (tmp_path / 'config.json').mkdir()
    with pytest.raises(BadInput, match=r'config\.json cannot be read \(Is a directory\)'):
        hf.read(tmp_path)
    with pytest.raises(BadInput, match=r'config\.json has no model_type'):
        Pretrained.load(str(changed(folder, tmp_path / 'x', settings=lambda x: {'vocab_size': 50})))
    for bucket in (hf.read, lambda path: hf.whole_folder(path).__enter__()):
        with pytest.raises(BadInput, match='gs://bucket/x: .* a folder on a disk would do'):
            bucket('gs://bucket/x')
    monkeypatch.setattr('importlib.util.find_spec', lambda name: None)
    with pytest.raises(BadInput, match='gs://bucket/x: pip install gcsfs'):
        Pretrained.load('gs://bucket/x')


def test_names_of_classes_go_along(folder, tmp_path):
    config, params = small('bert'), weights.params(small('bert'), 'classify')
    told = {'classify': {'labels': ['no', 'yes'], 'problem_type': 'multi_label_classification'}}
    hf.write(tmp_path / 'theirs', config, params, wordpieces(), told)
    settings = json.loads((tmp_path / 'theirs' / 'config.json').read_text())
    assert settings['id2label'] == {'0': 'no', '1': 'yes'} and settings['label2id'] == {'no': 0, 'yes': 1}
    list(convert(str(tmp_path / 'theirs'), str(tmp_path / 'ours')))
    ours = Pretrained.load(str(tmp_path / 'ours'))
    assert ours.about == Pretrained.load(str(tmp_path / 'theirs')).about == told
    list(convert(str(tmp_path / 'ours'), str(tmp_path / 'again')))
    assert json.loads((tmp_path / 'again' / 'config.json').read_text()) == settings
    assert Pretrained.load(str(folder)).about == {}
    bad = changed(tmp_path / 'theirs', tmp_path / 'bad', settings=lambda x: x | {'id2label': 5})
    with pytest.raises(BadInput, match=r'config\.json: id2label is 5'):
        Pretrained.load(str(bad))


def test_the_tokenizer_must_be_there_and_fit(folder, tmp_path):
    config, params = hf.read(folder)
    for name in ('tokenizer.json', 'config.json'):
        (tmp_path / name).write_text((folder / name).read_text())
    assert hf.read_tokenizer(tmp_path, config).fingerprint == wordpieces().fingerprint
    with pytest.raises(BadInput, match='rows for 50'):
        hf.write(tmp_path / 'x', config, params, wordpieces(size=57))
    assert not (tmp_path / 'x').exists()
    (tmp_path / 'tokenizer.json').unlink()
    with pytest.raises(BadInput, match=r'neither tokenizer\.json nor vocab\.txt'):
        hf.read_tokenizer(tmp_path, config)
    pieces = [piece for piece, _ in sorted(wordpieces().vocabulary.items(), key=lambda x: x[1])]
    (tmp_path / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
    for lowercase in (True, False):
        (tmp_path / 'tokenizer_config.json').write_text(json.dumps({'do_lower_case': lowercase}))
        ((ids, _),) = hf.read_tokenizer(tmp_path, config).encode(['A b'])
        assert (pieces[ids[0]], pieces[ids[1]]) == ('a' if lowercase else '[UNK]', 'b')


def test_there_and_back_through_folders(folder, tmp_path, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    lines = list(convert(str(folder), '~/ours'))
    assert 'bert, 3 layers of width 16' in lines[0] and 'mlm, nsp' in lines[0]
    ours = Pretrained.load(str(tmp_path / 'ours'))
    config, params = hf.read(folder)
    assert ours.encoder == config
    same(ours.params, params)
    about = tmp_path / 'ours' / 'encoder.json'  # as if a run on another machine had written it
    about.write_text(json.dumps(json.loads(about.read_text()) | {'attention': 'cudnn', 'remat': True, 'unroll': 3}))
    Pretrained.load.cache_clear()
    assert Pretrained.load(str(tmp_path / 'ours')).encoder == config
    list(convert('~/ours', str(tmp_path / 'theirs')))
    for file in sorted(os.listdir(folder)):
        assert (folder / file).read_bytes() == (tmp_path / 'theirs' / file).read_bytes(), file
    list(convert(str(tmp_path / 'ours'), str(tmp_path / 'one'), ['nsp']))
    assert hf.read(tmp_path / 'one')[1].keys() == {'encoder', 'heads_nsp'}
    with pytest.raises(BadInput, match='sop'):
        list(convert(str(folder), str(tmp_path / 'none'), ['sop']))


def test_nothing_is_left_of_a_folder_that_was_not_finished(tmp_path):
    with pytest.raises(KeyboardInterrupt), hf.whole_folder(tmp_path / 'x') as folder:
        (folder / 'half').write_text('')
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
    (tmp_path / 'x').mkdir()
    with hf.whole_folder(tmp_path / 'x') as folder:
        (folder / 'all').write_text('')
    assert os.listdir(tmp_path / 'x') == ['all']
    with pytest.raises(BadInput, match='there already'), hf.whole_folder(tmp_path / 'x'):
        pass
    (tmp_path / '.y.partial').mkdir()  # of a writer that was killed
    (tmp_path / 'y').mkdir()
    (tmp_path / 'link').symlink_to('y')
    with hf.whole_folder(tmp_path / 'link') as folder:
        (folder / 'all').write_text('')
    assert os.listdir(tmp_path / 'y') == ['all']
    with pytest.raises(BadInput, match='cannot be written .*No space'), hf.whole_folder(tmp_path / 'z'):
        raise OSError(errno.ENOSPC, 'No space left on device')
    with (
        pytest.raises(BadInput, match='cannot be written .*Not a directory'),
        hf.whole_folder(tmp_path / 'y' / 'all' / 'z'),
    ):
        pass
    assert sorted(os.listdir(tmp_path)) == ['link', 'x', 'y']


def call(*arguments: str):
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    tuned = os.environ | {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}
    command = [sys.executable, '-m', 'experiments.convert', *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=900, env=tuned)


def test_the_command(folder, tmp_path):
    done = call(f'--from={folder}', f'--to={tmp_path / "ours"}')
    assert done.returncode == 0, done.stderr
    assert 'heads: mlm, nsp' in done.stdout
    bad = changed(folder, tmp_path / 'bad', tensors=without(QUERY))
    done = call(f'--from={bad}', f'--to={tmp_path / "none"}')
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith('error: ') and QUERY in line
    assert not (tmp_path / 'none').exists()
