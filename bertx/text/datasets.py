"""Data sets that TensorFlow Datasets prepared, read without TensorFlow: they must lie there as ArrayRecord files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from bertx.errors import BadInput, one_of
from bertx.text.documents import Document, Source, digest, hash_file

_AT_ONCE = 256  # records that are read together


def query(argument: str, what: str, known: tuple[str, ...]) -> tuple[str, dict[str, str]]:
    """`NAME?setting=value&...`; what: for errors."""
    name, _, settings = argument.partition('?')
    found = dict(parse_qsl(settings.replace('+', '%2B')))  # a plus is one, as in a folder's name
    for setting in found:
        one_of(f'{what}: setting', setting, known)
    return name, found


def opened(argument: str, what: str) -> tuple[str, str, Any]:
    """`NAME?data_dir=FOLDER&split=SPLIT`: name, split and tfds' builder, which has that split."""
    import tensorflow_datasets as tfds  # here: it takes a while, and few want it

    name, settings = query(argument, what, ('data_dir', 'split'))
    folder = settings.get('data_dir') or tfds.core.constants.DATA_DIR
    split = settings.get('split', 'train')
    try:
        # From its files, not by its code in tfds, which may want TensorFlow.
        builder = tfds.core.read_only_builder.builder_from_files(name, data_dir=Path(folder).expanduser())
    except (tfds.core.DatasetNotFoundError, ValueError, OSError):  # their texts are pages long
        builder = None
    if not builder or not builder.info.splits:
        raise BadInput(
            f'{what}: there is no {name!r} in {folder}; prepare it there (tfds build {name} '
            f'--file_format=array_record), or give its folder (tfds:{name}?data_dir=FOLDER)'
        )
    one_of(f'{what}: split', split, builder.info.splits)
    return name, split, builder


def prepared(spec: str, argument: str) -> Source:
    """`tfds:NAME?data_dir=FOLDER&split=SPLIT#KEY`: NAME as in wikipedia/20230601.en:1.0.0.

    Without what follows NAME: tfds' own folder ($TFDS_DATA_DIR, ~/tensorflow_datasets), 'train', 'text'.
    """
    what, _, key = argument.partition('#')
    key = key or 'text'
    name, split, builder = opened(what, f'source {spec!r}')
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
