"""The records of a pre-training run: whether they fit its config, and which a phase uses."""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import config_io, files, run_record
from albert_tf.data_prep.task_data import data_record
from albert_tf.errors import UserError, require
from albert_tf.objectives import initial_weights
from albert_tf.records import input_pipeline, manifest
from albert_tf.records.online_masking import OnlineMasking
from albert_tf.run_record import RunRecord
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train import eval_step
from albert_tf.train.run_data import Evaluate, Metrics, PhaseData, RunData
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import PretrainConfig

# A model whose loss is not this far below the unigram loss has learnt little else.
_PLATEAU_NATS = 0.5
# A run whose loss is this far above its minimum has diverged.
_DIVERGED_NATS = 0.5


def read(config: PretrainConfig, train_files: Sequence[str], eval_files: Sequence[str]) -> RunData:
    """Returns the records of a run; the arguments are patterns of record files.

    `eval_files` are held out, and may be empty. Raises `UserError` if files, manifests and config
    do not agree.
    """
    train_paths = sorted(files.expand(train_files, "--train_files"))
    eval_paths = sorted(files.expand(eval_files, "--eval_files")) if eval_files else []
    vocabulary, tokenizer = check(config, train_paths, eval_paths)
    masking = read_masking(eval_paths, tokenizer) if eval_paths else None
    plateau = functools.cache(
        functools.partial(initial_weights.compute_frequency_loss, train_paths, tokenizer)
    )
    evaluate = functools.partial(_make_evaluate, config, eval_paths, masking)
    rows = run_record.number_rows(count_examples(eval_paths))
    manifests = {os.path.join(os.path.dirname(path), manifest.NAME) for path in eval_paths}

    def explain(error: Exception) -> Exception:
        return input_pipeline.corrupt_error([*train_paths, *eval_paths], error)

    return RunData(
        phases=plan_phases(config, train_paths, tokenizer),
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        record=RunRecord(
            config=config_io.to_dict(config),
            vocabulary=tokenizer.sha256,
            train_files=count_examples(train_paths),
            words=read_words(train_paths[0]),
            data={
                "eval_files": [*map(data_record.to_absolute, eval_paths)],
                "manifests": data_record.hash_files(sorted(manifests)),
            }
            if eval_paths
            else {},
        ),
        held_out=run_record.flatten({"--eval_files": rows}) if eval_paths else {},
        make_evaluate=evaluate if eval_paths else None,
        explain=explain,
        warn=functools.partial(_warn, plateau),
    )


def read_words(path: str) -> dict[str, Any] | None:
    """Returns the number and the checksum of a file's words, if it has them."""
    vocabulary = manifest.read(os.path.dirname(path))["vocabulary"]
    return {x: vocabulary[x] for x in ("num_words", "words_sha256") if x in vocabulary} or None


def _make_evaluate(
    config: PretrainConfig,
    paths: Sequence[str],
    masking: OnlineMasking | None,
    state: TrainState,
) -> Evaluate:
    """Held-out records have the config's own lengths, whatever its phases."""
    evaluate = eval_step.make_evaluate(
        state.strategy, state.model, state.objective.loss, num_branches=state.num_branches
    )

    @functools.cache  # TensorFlow takes a third of a second to trace each pipeline
    def make_batches() -> tf.data.Dataset:
        return input_pipeline.distribute_eval(
            state.strategy,
            paths,
            state.objective.list_features(config),
            batch_size=config.eval_batch_size,
            max_examples=config.max_eval_examples,
            masking=masking,
        )

    return lambda: evaluate(make_batches())


def _warn(find_plateau: Callable[[], float], metrics: Metrics, earlier: Sequence[Metrics]) -> None:
    """Warns about a loss that has risen, and about a loss no better than token frequencies."""
    loss, plateau = metrics["masked_lm_loss"], find_plateau()
    name = "eval_masked_lm_loss"
    lowest = min((x[name] for x in earlier if name in x), default=math.inf)
    if loss > lowest + _DIVERGED_NATS:
        logging.warning(
            f"masked_lm_loss {loss:.2f} was {lowest:.2f} before: the run has diverged or overfits. "
            "Resume from an earlier checkpoint with a lower learning_rate, or add text: "
            "docs/pretrain.md#normal-losses"
        )
    elif loss > plateau - _PLATEAU_NATS:
        logging.warning(
            f"masked_lm_loss {loss:.2f} is hardly below what token frequencies alone give, "
            f"{plateau:.2f}: the model uses little context yet. If this lasts, train on short "
            "sequences first, or change learning_rate: docs/pretrain.md#normal-losses"
        )


def plan_phases(
    config: PretrainConfig, train_paths: Sequence[str], tokenizer: Tokenizer
) -> list[PhaseData]:
    """Gives each phase the records with its lengths; a run without phases has one phase.

    If the previous phase has the same records, the next one continues where that ended. Raises
    `UserError` if a phase has no records.
    """
    if not config.phases:
        masking = make_masking(config, train_paths, tokenizer)
        return [PhaseData(config, train_paths, masking=masking)]
    manifests = manifest.read_all(train_paths)
    phases: list[PhaseData] = []
    step = 0
    for number, phase in enumerate(config.split_phases(), 1):
        folders = {folder for folder, x in manifests.items() if _has_lengths(x, phase)}
        paths = [path for path in train_paths if os.path.dirname(path) in folders]
        if not paths:
            raise UserError(
                f"phase {number} has no records: none of --train_files have max_seq_length="
                f"{phase.max_seq_length} and max_predictions_per_seq="
                f"{phase.max_predictions_per_seq}. Add such records."
            )
        first = 0
        if phases and phases[-1].paths == paths:
            before = phases[-1]
            first = (
                (step + before.offset) * before.config.train_batch_size // phase.train_batch_size
            )
        masking = make_masking(phase, paths, tokenizer)
        phases.append(PhaseData(phase, paths, first - step, masking))
        step = phase.last_step
    return phases


def _list_lengths(contents: manifest.Manifest, config: PretrainConfig) -> dict[str, int]:
    """The lengths that a phase's records must have; online masks have any number of predictions."""
    names = ["max_seq_length"] + ["max_predictions_per_seq"] * (not manifest.is_online(contents))
    return {name: getattr(config, name) for name in names}


def _has_lengths(contents: manifest.Manifest, config: PretrainConfig) -> bool:
    return _list_lengths(contents, config).items() <= contents["settings"].items()


def read_masking(paths: Sequence[str], tokenizer: Tokenizer) -> OnlineMasking | None:
    """How records are masked for evaluation, always the same way; None for records with masks.

    Raises `UserError` if records differ in it.
    """
    names = ("ngram", "masked_lm_prob", "max_predictions_per_seq")
    manifests = manifest.read_all(paths)
    by_folder: dict[str, Any] = {
        folder: tuple(map(x["settings"].get, names)) if manifest.is_online(x) else None
        for folder, x in manifests.items()
    }
    (first, values), *others = by_folder.items()
    for folder, other in others:
        require(
            other == values,
            f"the records in {first} and {folder} differ in masking, {', '.join(names)}. "
            "Create them with the same flags.",
        )
    if values is None:
        return None
    ngram, share, most = values
    settings = manifests[first]["settings"]
    return OnlineMasking(
        max_seq_length=settings["max_seq_length"],
        max_predictions_per_seq=most,
        ngram=ngram,
        masked_lm_prob=share,
        final_masked_lm_prob=share,
        whole_words="num_words" in manifests[first]["vocabulary"],
        tokenizer=tokenizer,
    )


def make_masking(
    config: PretrainConfig, paths: Sequence[str], tokenizer: Tokenizer
) -> OnlineMasking | None:
    """How records are masked for training; None for records with masks.

    Raises `UserError` as `read_masking` does, and if the config sets masked_lm_prob although the
    records have masks.
    """
    masking = read_masking(paths, tokenizer)
    if masking is None:
        require(
            config.masked_lm_prob is None,
            f"masked_lm_prob is set, and the records in {os.path.dirname(paths[0])} hold "
            "masks already. Unset it, or create records with create_pretraining_data "
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
        first_step=config.first_decay_step,
        last_step=config.num_train_steps,
        seed=config.seed,
    )


def check(
    config: PretrainConfig, train_paths: Sequence[str], eval_paths: Sequence[str]
) -> tuple[str, Tokenizer]:
    """Compares the records' manifests with the config; returns their vocabulary.

    Held-out records have the lengths of the config itself, whatever its phases.
    """
    paths = [*train_paths, *eval_paths]
    manifests = manifest.read_all(paths)
    phases, held_out = config.split_phases(), {*map(os.path.dirname, eval_paths)}
    for folder, contents in manifests.items():
        fitting = (x for x in phases if folder not in held_out and _has_lengths(contents, x))
        of_phase = next(fitting, config)
        expected = {
            "sentence_task": config.sentence_task,
            **_list_lengths(contents, of_phase),
            "vocab_size": config.albert.vocab_size,
        }
        manifest.check(folder, contents, expected)
        if oddities := manifest.describe_oddities(contents):
            logging.warning(f"{folder}: {oddities}")
        if config.head_of_words:
            number = contents["vocabulary"].get("num_words")
            require(
                isinstance(number, int) and number < config.num_words,
                f"the records in {folder} have {number} different words, but the head has room for "
                f"{config.num_words - 1}. Raise the config's num_words (--set num_words=).",
            )
    first, *others = manifests
    for other in others:
        if manifests[other]["vocabulary"] != manifests[first]["vocabulary"]:
            raise UserError(
                f"the records in {first} and {other} have different vocabularies. "
                "Create them with the same one."
            )
    vocabulary = os.path.join(first, manifest.VOCABULARY)
    tokenizer = tokenization.load(vocabulary)
    if tokenizer.sha256 != manifests[first]["vocabulary"]["sha256"]:
        raise UserError(
            f"{vocabulary} is not the vocabulary of the records in {first}: it "
            "was changed or damaged. Restore it, or create the records again."
        )
    if both := sorted({*train_paths} & {*eval_paths}):
        logging.warning(
            f"{len(both)} of --eval_files ({both[0]}) are also in --train_files: the evaluation "
            "would not be on held-out text."
        )
    return vocabulary, tokenizer


def count_examples(paths: Sequence[str]) -> list[tuple[str, int]]:
    """The names of record files, with the number of examples in each."""
    return [*zip(map(os.path.basename, paths), manifest.count_examples(paths), strict=True)]
