"""The records of a pre-training run: whether they fit its config, and which each phase takes."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from absl import logging

from albert_tf.errors import UserError, require
from albert_tf.records import manifest
from albert_tf.records.online_masking import OnlineMasking
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import LONGEST_ONLINE_NGRAM, PretrainConfig


class Phase(NamedTuple):
    """A phase of a run."""

    config: PretrainConfig
    paths: list[str]  # of its records
    offset: int  # the number of its first batch among those of its records, less its first step
    masking: OnlineMasking | None  # of records without masks


def plan_phases(
    config: PretrainConfig, train_paths: Sequence[str], tokenizer: Tokenizer
) -> list[Phase]:
    """Gives each phase the records that have its lengths; a run without phases is one.

    If the phase before has the same records, it goes on where that ends. Raises `UserError` if
    there are none for a phase.
    """
    if not config.phases:
        masking = make_masking(config, train_paths, tokenizer)
        return [Phase(config, list(train_paths), 0, masking)]
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
        masking = make_masking(phase, paths, tokenizer)
        phases.append(Phase(phase, paths, first - step, masking))
        step = phase.last_step
    return phases


def _list_lengths(contents: dict[str, Any], config: PretrainConfig) -> dict[str, int]:
    """Those of a phase that its records must have: online masks have any number of predictions."""
    names = ["max_seq_length"] + ["max_predictions_per_seq"] * (not manifest.is_online(contents))
    return {name: getattr(config, name) for name in names}


def _has_lengths(contents: dict[str, Any], config: PretrainConfig) -> bool:
    return _list_lengths(contents, config).items() <= contents["settings"].items()


def read_masking(paths: Sequence[str], tokenizer: Tokenizer) -> OnlineMasking | None:
    """How records are masked to evaluate, which does not change; None for those with masks.

    Raises `UserError` if they do not have it in common, or a setting is none.
    """
    names = ("ngram", "masked_lm_prob", "max_predictions_per_seq")
    by_folder = {
        folder: tuple(map(x["settings"].get, names)) if manifest.is_online(x) else None
        for folder, x in manifest.read_all(paths).items()
    }
    (first, values), *others = by_folder.items()
    for folder, other in others:
        require(
            other == values,
            f"the records in {first} and {folder} differ in masking, {', '.join(names)}. "
            "Make them with the same flags.",
        )
    if values is None:
        return None
    ngram, share, most = values
    is_sound = type(ngram) is int and 0 < ngram <= LONGEST_ONLINE_NGRAM and type(most) is int
    require(
        is_sound and most > 0 and isinstance(share, float) and 0 <= share < 1,
        f"{os.path.join(first, manifest.NAME)} is damaged: {', '.join(names)} are "
        f"{ngram!r}, {share!r}, {most!r}. Create the records anew.",
    )
    settings = manifest.read(first)["settings"]
    return OnlineMasking(
        max_seq_length=settings["max_seq_length"],
        max_predictions_per_seq=most,
        ngram=ngram,
        masked_lm_prob=share,
        final_masked_lm_prob=share,
        tokenizer=tokenizer,
    )


def make_masking(
    config: PretrainConfig, paths: Sequence[str], tokenizer: Tokenizer
) -> OnlineMasking | None:
    """How records are masked to train on; None for those with masks.

    Raises `UserError` as `read_masking`, and if the config has a share to mask that those have not.
    """
    masking = read_masking(paths, tokenizer)
    if masking is None:
        require(
            config.masked_lm_prob is None,
            f"masked_lm_prob is set, and the records in {os.path.dirname(paths[0])} hold "
            "masks already. Unset it, or make records with create_pretraining_data "
            "--masking=online.",
        )
        return None
    first = masking.masked_lm_prob if config.masked_lm_prob is None else config.masked_lm_prob
    last = first if config.final_masked_lm_prob is None else config.final_masked_lm_prob
    return dataclasses.replace(
        masking,
        max_predictions_per_seq=config.max_predictions_per_seq,
        masked_lm_prob=first,
        final_masked_lm_prob=last,
        first_step=config.first_schedule_step,
        last_step=config.num_train_steps,
        seed=config.seed,
    )


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
            **_list_lengths(contents, of_phase),
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
    tokenizer = tokenization.load(vocabulary)
    if tokenizer.sha256 != manifests[first]["vocabulary"]["sha256"]:
        raise UserError(
            f"{vocabulary} is not the vocabulary that the records in {first} were made with: it "
            "was changed or damaged. Restore it, or create the records anew."
        )
    if eval_paths:
        read_masking(eval_paths, tokenizer)
    if both := sorted({*train_paths} & {*eval_paths}):
        logging.warning(
            f"{len(both)} of --eval_files ({both[0]}) are in --train_files, too: the evaluation is "
            "not of held-out text."
        )
    return vocabulary


def count_examples(paths: Sequence[str]) -> list[list[Any]]:
    """The names of record files, with the number of examples in each."""
    names = map(os.path.basename, paths)
    return [list(row) for row in zip(names, manifest.count_examples(paths), strict=True)]
