"""What must go together before a run starts: records, config, devices, and the run's folder."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from albert_tf import config, manifest, tokenization
from albert_tf.errors import UserError

CONFIG = "config.json"
# Fields that change what is kept and told, not what is learnt: a run may be resumed with others.
HOST_FIELDS = frozenset(
    {
        "eval_batch_size",
        "eval_steps",
        "keep_checkpoint_max",
        "max_eval_examples",
        "max_rollbacks",
        "save_checkpoints_steps",
        "steps_per_loop",
    }
)


T = TypeVar("T")


def read_config(workdir: str, cls: type[T]) -> T:
    """The config of the run in `workdir`."""
    return config.load(cls, os.path.join(workdir, CONFIG))


def vocabulary(workdir: str) -> str:
    """The folder of the run's vocabulary."""
    return os.path.join(workdir, manifest.VOCABULARY)


def check_data(settings: config.PretrainConfig, paths: Sequence[str]) -> str:
    """Compares the records' manifests with the config; returns the folder of their vocabulary.

    Raises:
        UserError: names the first field that disagrees, or two folders with two vocabularies.
    """
    manifests = manifest.read_for(paths)
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
            raise UserError(f"the records in {first} and {other} have different vocabularies.")
    return os.path.join(first, manifest.VOCABULARY)


def check_batch(settings: config.PretrainConfig, strategy: tf.distribute.Strategy) -> None:
    """Raises `UserError` unless a batch can be shared by all replicas and micro-batches."""
    parts = strategy.num_replicas_in_sync * settings.num_micro_batches
    if settings.train_batch_size % parts:
        raise UserError(
            f"train_batch_size {settings.train_batch_size} is not a multiple of {parts} "
            f"({strategy.num_replicas_in_sync} replicas x {settings.num_micro_batches} "
            "num_micro_batches)."
        )


def claim(
    workdir: str, settings: config.PretrainConfig, records_vocabulary: str, *, write: bool
) -> None:
    """Writes config and vocabulary to a new `workdir`, or checks that an old one has the same.

    Raises:
        UserError: the folder belongs to a run of another config or vocabulary.
    """
    path = os.path.join(workdir, CONFIG)
    own = vocabulary(workdir)
    if tf.io.gfile.exists(path):
        before = config.to_dict(read_config(workdir, config.PretrainConfig))
        for field, value in _flat(config.to_dict(settings)).items():
            if field not in HOST_FIELDS and _flat(before)[field] != value:
                raise UserError(
                    f"{workdir} belongs to a run with {field}={_flat(before)[field]!r}, not "
                    f"{value!r}. Take another --workdir, or the config of that run."
                )
        if tokenization.load(own).sha256 != tokenization.load(records_vocabulary).sha256:
            raise UserError(
                f"{workdir} belongs to a run with another vocabulary than {records_vocabulary}."
            )
    if write:
        tf.io.gfile.makedirs(workdir)
        tokenization.copy(records_vocabulary, own)
        config.save(settings, path)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = _flat(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
        found |= {f"{prefix}{name}": v for name, v in inner.items()}
    return found
