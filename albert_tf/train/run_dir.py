"""What must go together before a run starts: records, config, devices, and the run's folder."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from albert_tf import config_io, files
from albert_tf.checkpoints import model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import HOST_FIELDS, FinetuneConfig, PretrainConfig

Settings = PretrainConfig | FinetuneConfig

CONFIG = "config.json"
# Files that say what a run was made with, and what each is called in messages.
RECORDS, TASK, EXAMPLES = "records.json", "task.json", "training_data.json"
_WHAT = {RECORDS: "--train_files", TASK: "--task", EXAMPLES: "training data"}
T = TypeVar("T")


class Identity(NamedTuple):
    """What makes two runs the same.

    Attributes:
        settings: the config.
        records_vocabulary: folder of the vocabulary of the records.
        files: {name: JSON value} of what else must stay the same. A position in the records means
            something only if they do.
    """

    settings: Settings
    records_vocabulary: str
    files: Mapping[str, Any]


def counts(paths: Sequence[str]) -> list[list[Any]]:
    """The names of record files, with the number of examples in each."""
    names = map(os.path.basename, paths)
    return [list(row) for row in zip(names, manifest.num_examples(paths), strict=True)]


def numbered(rows: Sequence[Any]) -> dict[str, Any]:
    """Rows by their numbers: files of two folders may have the same name."""
    return {str(number): row for number, row in enumerate(rows, 1)}


def read_config(workdir: str, cls: type[T]) -> T:
    """The config of the run in `workdir`.

    Raises:
        UserError: it is not a run's folder.
    """
    path = os.path.join(workdir, CONFIG)
    if not tf.io.gfile.exists(path):
        raise UserError(f"--workdir: {workdir!r} is not the folder of a run: it has no {CONFIG}.")
    return config_io.load(cls, path)


def vocabulary(workdir: str) -> str:
    """The folder of the run's vocabulary."""
    return os.path.join(workdir, manifest.VOCABULARY)


def check_data(settings: PretrainConfig, paths: Sequence[str]) -> str:
    """Compares the records' manifests with the config; returns the folder of their vocabulary.

    Raises:
        UserError: names the first field that disagrees, two folders with two vocabularies, or a
            file that holds no records.
    """
    manifests = manifest.read_for(paths)
    manifest.num_examples(paths)
    expected = {
        "sentence_task": settings.sentence_task,
        "max_seq_length": settings.max_seq_length,
        "max_predictions_per_seq": settings.max_predictions_per_seq,
        "vocab_size": settings.albert.vocab_size,
    }
    for folder, found in manifests.items():
        manifest.check(folder, found, expected)
    first, *others = manifests
    for other in others:
        if manifests[other]["vocabulary"] != manifests[first]["vocabulary"]:
            raise UserError(
                f"the records in {first} and {other} have different vocabularies. "
                "Make them with the same."
            )
    return os.path.join(first, manifest.VOCABULARY)


def check_batches(settings: Settings, strategy: tf.distribute.Strategy, *, evaluates: bool) -> None:
    """Raises `UserError` unless replicas and micro-batches can share the batches evenly."""
    replicas = strategy.num_replicas_in_sync
    parts = {"train_batch_size": replicas * settings.num_micro_batches}
    if evaluates:
        parts["eval_batch_size"] = replicas
    for field, number in parts.items():
        if (size := getattr(settings, field)) % number:
            raise UserError(
                f"{field} {size} is not a multiple of {number} ({replicas} replicas"
                f"{' x num_micro_batches' if number > replicas else ''}). Change it (--set)."
            )


def facts(identity: Identity) -> dict[str, Any]:
    """All that makes a run the same, and what it keeps and tells: {name: JSON value}."""
    of_files = {_WHAT[name]: content for name, content in identity.files.items()}
    if RECORDS in identity.files:
        of_files[_WHAT[RECORDS]] = numbered(identity.files[RECORDS])
    sha256 = tokenization.load(identity.records_vocabulary).sha256
    return flat({**config_io.to_dict(identity.settings), **of_files, "vocabulary": sha256})


def check_same_run(workdir: str, identity: Identity) -> None:
    """Raises `UserError` if `workdir` belongs to a run of other config, vocabulary or records."""
    if not tf.io.gfile.exists(os.path.join(workdir, CONFIG)):
        return
    _check_same_kind(workdir, identity)
    before = flat(config_io.to_dict(read_config(workdir, type(identity.settings))))
    for field, value in flat(config_io.to_dict(identity.settings)).items():
        if field not in HOST_FIELDS and before[field] != value:
            raise UserError(
                f"{workdir} belongs to a run with {field}={before[field]!r}, not {value!r}. "
                "Take another --workdir, or the config of that run."
            )
    _check_vocabularies(vocabulary(workdir), identity.records_vocabulary)
    for name, content in identity.files.items():
        if not _agree(files.read_json(os.path.join(workdir, name), name), content):
            raise UserError(
                f"{workdir} belongs to a run with other {_WHAT[name]} (see {name} in it). "
                "Take another --workdir, or the files of that run."
            )


def _agree(one: Any, other: Any) -> bool:
    """Whether two files say the same, as far as both say it: older ones say less."""
    if isinstance(one, dict) and isinstance(other, dict):
        return all(one[key] == other[key] for key in one.keys() & other.keys())
    return one == other


def _check_same_kind(workdir: str, identity: Identity) -> None:
    """A run of the one kind has files that one of the other has not."""
    if not all(tf.io.gfile.exists(os.path.join(workdir, name)) for name in identity.files):
        raise UserError(f"{workdir} belongs to a run of another program. Take another --workdir.")


def check_vocabulary_of(what: ModelCheckpoint, records_vocabulary: str) -> None:
    """Raises `UserError` if a checkpoint has a vocabulary other than that of the records."""
    found = model_checkpoint.load_tokenizer(what)
    if found is not None and found.sha256 != tokenization.load(records_vocabulary).sha256:
        raise UserError(
            f"those of {what.source} and of the records ({records_vocabulary}) are different "
            "vocabularies. Make records with that of the checkpoint."
        )


def check_model_of(what: ModelCheckpoint, wanted: AlbertConfig) -> None:
    """Raises `UserError` if weights would mean something else, though their shapes are the same.

    The number of layers may differ: a deep model may start from a shallow one.
    """
    for field in ("num_attention_heads", "hidden_act"):
        if (found := getattr(what.config, field)) != getattr(wanted, field):
            raise UserError(
                f"{what.source} was trained with {field}={found!r}, the config has "
                f"{getattr(wanted, field)!r}. Take that of the checkpoint (--set albert.{field}=)."
            )


def _check_vocabularies(one: str, other: str) -> None:
    if tokenization.load(one).sha256 != tokenization.load(other).sha256:
        raise UserError(f"{one} and {other} are different vocabularies. Make records with the one.")


def write(workdir: str, identity: Identity) -> None:
    """Makes `workdir` the folder of this run; the config last, for it is what claims the folder."""
    tf.io.gfile.makedirs(workdir)
    tokenization.copy(identity.records_vocabulary, vocabulary(workdir))
    for name, content in identity.files.items():
        files.write_json(os.path.join(workdir, name), content)
    config_io.save(identity.settings, os.path.join(workdir, CONFIG))


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = flat(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
        found |= {f"{prefix}{name}": v for name, v in inner.items()}
    return found
