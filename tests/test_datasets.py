import sys

import pytest
import tensorflow_datasets as tfds

from bertx.errors import BadInput
from bertx.text.sources import open_source


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Data sets with the features of wikipedia and of c4, in the form that needs no TensorFlow."""
    folder = tmp_path_factory.mktemp('tfds')

    def build(dataset, config, keys):
        def examples(self):
            return ((i, {key: f'{key} é {i}.\n\nMore.' for key in keys}) for i in range(600))

        features = {key: tfds.features.Text() for key in keys}
        members = {
            'name': dataset,
            'VERSION': tfds.core.Version('1.0.0'),
            'BUILDER_CONFIGS': [tfds.core.BuilderConfig(name=config)],
            '_info': lambda self: tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features)),
            '_split_generators': lambda self, _: {'train': examples(self), 'validation': examples(self)},
            '_generate_examples': examples,
        }
        with tfds.core.registered.skip_registration():
            builder = type(dataset, (tfds.core.GeneratorBasedBuilder,), members)
        builder(data_dir=folder, config=config, file_format='array_record').download_and_prepare()

    build('wikipedia', '20230601.simple', ['title', 'text'])
    build('c4', 'en', ['text', 'url', 'timestamp', 'content-type', 'content-length'])
    return folder


def test_tensorflow_datasets_without_tensorflow(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, 'tensorflow', None)
    for name in ('wikipedia/20230601.simple', 'c4/en:1.0.0'):
        source = open_source(f'tfds:{name}?data_dir={folder}')
        documents = list(source)
        assert sorted(document.text for document in documents) == sorted(f'text é {i}.\n\nMore.' for i in range(600))
        assert documents[7].name == f'{name}#7' and documents == list(source) and source.bytes > 9000
        assert source.digest() == source.digest()
    source = open_source(f'tfds:c4/en?data_dir={folder}&split=validation#url')
    assert next(iter(source)).text.startswith('url é')


@pytest.mark.parametrize(
    'spec, message',
    [
        ('tfds:nosuch?data_dir={}', r"there is no 'nosuch' in .*; prepare it there \(tfds build nosuch"),
        ('tfds:wikipedia/nope?data_dir={}', "there is no 'wikipedia/nope' in"),
        ('tfds:lm1b?data_dir={}', "there is no 'lm1b' in"),  # tfds knows it, but it was not prepared
        ('tfds:no such?data_dir={}', "there is no 'no such' in"),
        ('tfds:?data_dir={}', "there is no '' in"),
        ('tfds:c4/en?data_dir={}#txt', "key 'txt' is unknown; did you mean 'text'"),
        ('tfds:c4/en?data_dir={}&split=valid', "split 'valid' is unknown; did you mean 'validation'"),
        ('tfds:c4/en?datadir={}', "setting 'datadir' is unknown; did you mean 'data_dir'"),
    ],
)
def test_a_bad_data_set_is_named(folder, spec, message):
    with pytest.raises(BadInput, match=message) as error:
        list(open_source(spec.format(folder)))
    assert '\n' not in str(error.value)


def test_a_damaged_data_set_is_named(folder, tmp_path):
    (path,) = (folder / 'c4').rglob('*train*')
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="source 'tfds:c4.*: cannot be read"):
        list(open_source(f'tfds:c4/en?data_dir={folder}'))
    path.write_bytes(whole)
