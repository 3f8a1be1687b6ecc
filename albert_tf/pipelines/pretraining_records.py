"""The records of a pre-training run: whether they fit its config, and which each phase takes."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import PretrainConfig


class Phase(NamedTuple):
    """A phase of a run."""

    config: PretrainConfig
    paths: list[str]  # of its records
    offset: int  # the number of its first batch among those of its records, less its first step


def plan_phases(config: PretrainConfig, train_paths: Sequence[str]) -> list[Phase]:
    """Gives each phase the records that have its lengths; a run without phases is one.

    If the phase before has the same records, it goes on where that ends. Raises `UserError` if
    there are none for a phase.
    """
    if not config.phases:
        return [Phase(config, list(train_paths), 0)]
    manifests = manifest.read_all(train_paths)
    phases: list[Phase] = []
    step = 0
    for number, phase in enumerate(config.split_phases(), 1):
        folders = {folder for folder, x in manifests.items() if _has_lengths(x, phase)}
        paths = [path for path in train_paths if os.path.dirname(path) in folders]
        if not paths:
            raise UserError(
                f"phase {number} has no records: none of --train_files have max_seq_length="
                f"{phase.max_seq_length} and max_predictions_per_seq="
                f"{phase.max_predictions_per_seq}. Name such records, too."
            )
        first = 0
        if phases and phases[-1].paths == paths:
            before = phases[-1]
            first = (
                (step + before.offset) * before.config.train_batch_size // phase.train_batch_size
            )
        phases.append(Phase(phase, paths, first - step))
        step = phase.last_step
    return phases


def _has_lengths(contents: dict[str, Any], config: PretrainConfig) -> bool:
    names = "max_seq_length", "max_predictions_per_seq"
    return all(contents["settings"].get(name) == getattr(config, name) for name in names)


def check(config: PretrainConfig, train_paths: Sequence[str], eval_paths: Sequence[str]) -> str:
    """Compares the records' manifests with the config; returns the folder of their vocabulary.

    Held-out records have the lengths of the config itself, whatever its phases.
    """
    paths = [*train_paths, *eval_paths]
    manifests = manifest.read_all(paths)
    manifest.count_examples(paths)
    for folder, contents in manifests.items():
        of_phase = config
        if folder not in map(os.path.dirname, eval_paths):
            fitting = (x for x in config.split_phases() if _has_lengths(contents, x))
            of_phase = next(fitting, config)
        expected = {
            "sentence_task": config.sentence_task,
            "max_seq_length": of_phase.max_seq_length,
            "max_predictions_per_seq": of_phase.max_predictions_per_seq,
            "vocab_size": config.albert.vocab_size,
        }
        manifest.check(folder, contents, expected)
    first, *others = manifests
    for other in others:
        if manifests[other]["vocabulary"] != manifests[first]["vocabulary"]:
            raise UserError(
                f"the records in {first} and {other} have different vocabularies. "
                "Make them with the same."
            )
    vocabulary = os.path.join(first, manifest.VOCABULARY)
    if tokenization.load(vocabulary).sha256 != manifests[first]["vocabulary"]["sha256"]:
        raise UserError(
            f"{vocabulary} is not the vocabulary that the records in {first} were made with: it "
            "was changed or damaged. Restore it, or create the records anew."
        )
    return vocabulary


def count_examples(paths: Sequence[str]) -> list[list[Any]]:
    """The names of record files, with the number of examples in each."""
    names = map(os.path.basename, paths)
    return [list(row) for row in zip(names, manifest.count_examples(paths), strict=True)]
