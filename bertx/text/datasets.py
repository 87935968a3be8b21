"""Data sets that TensorFlow Datasets prepared, read without TensorFlow: they must lie there as ArrayRecord files."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl

from bertx.errors import BadInput, one_of, unknown
from bertx.text.documents import Document, Source, digest, hash_file

_AT_ONCE = 256  # records that are read together


def prepared(spec: str, argument: str) -> Source:
    """`tfds:NAME?data_dir=FOLDER&split=SPLIT#KEY`: NAME as in wikipedia/20230601.en:1.0.0.

    Without what follows NAME: tfds' own folder ($TFDS_DATA_DIR, ~/tensorflow_datasets), 'train', 'text'.
    """
    import tensorflow_datasets as tfds  # here: it takes a while, and few want it

    what, _, key = argument.partition('#')
    name, _, query = what.partition('?')
    settings = dict(parse_qsl(query))
    folder, split, key = settings.pop('data_dir', None), settings.pop('split', 'train'), key or 'text'
    if settings:
        raise unknown(f'source {spec!r}: setting', next(iter(settings)), ('data_dir', 'split'))
    try:
        builder = tfds.builder(name, data_dir=folder and Path(folder).expanduser())
    except (tfds.core.DatasetNotFoundError, ValueError):  # their texts are pages long
        builder = None
    if not builder or not builder.info.splits:
        raise BadInput(
            f'source {spec!r}: there is no {name!r} in {folder or tfds.core.constants.DATA_DIR}; prepare it there '
            f'(tfds build {name} --file_format=array_record), or give its folder (tfds:{name}?data_dir=FOLDER)'
        )
    one_of(f'source {spec!r}: split', split, builder.info.splits)
    one_of(f'source {spec!r}: key', key, builder.info.features)
    info = builder.info.splits[split]

    def read() -> Iterator[Document]:
        try:
            records = builder.as_data_source(split)
            for start in range(0, len(records), _AT_ONCE):
                many = records.__getitems__(range(start, min(start + _AT_ONCE, len(records))))
                yield from (Document(f'{name}#{i}', record[key].decode()) for i, record in enumerate(many, start))
        except Exception as error:  # of whatever kind the readers have
            raise BadInput(f'source {spec!r}: cannot be read ({" ".join(str(error).split())})') from error

    return Source(spec, int(info.num_bytes), read, lambda: digest(map(hash_file, info.filepaths)))
