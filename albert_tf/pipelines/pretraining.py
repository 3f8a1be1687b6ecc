"""Pre-training, assembled: a config, a strategy and files -> a trained checkpoint."""

import functools
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from albert_tf import files
from albert_tf.checkpoints import formats, matching
from albert_tf.model import albert_model, losses
from albert_tf.records import features, input_pipeline
from albert_tf.train import multi_worker, run_dir, train_state, train_step
from albert_tf.train_config import PretrainConfig

BEST_BY = "masked_lm_accuracy"


def run(
    settings: PretrainConfig,
    strategy: tf.distribute.Strategy,
    train_files: Sequence[str],
    eval_files: Sequence[str],
    workdir: str,
    *,
    init_checkpoint: str | None = None,
    allow_partial: str | None = None,
) -> None:
    """Trains to `num_train_steps`, or goes on where `workdir` stopped.

    Writes to `workdir`: `config.json`, `vocabulary/`, `model.ckpt-STEP`, `best/`, `metrics.jsonl`
    and TensorBoard's events. SIGTERM or Ctrl-C saves a checkpoint and returns.

    Args:
        settings: the run.
        strategy: see `devices.strategy`.
        train_files: patterns of record files.
        eval_files: the same, held out; may be empty.
        workdir: the run's folder.
        init_checkpoint: weights to start from, if `workdir` has no checkpoint yet, in any of the
            `formats`. They are evaluated before the first update.
        allow_partial: see `matching.assign_weights`; for `init_checkpoint`.

    Raises:
        UserError: files, manifest, config and `workdir` do not go together, or the loss is not
            finite any more. Nothing was written then, unless training had begun.
    """
    train_paths = sorted(files.expand(train_files, "--train_files"))
    eval_paths = sorted(files.expand(eval_files, "--eval_files")) if eval_files else []
    records_vocabulary = run_dir.check_data(settings, [*train_paths, *eval_paths])
    run_dir.check_batches(settings, strategy, evaluates=bool(eval_paths))
    identity = run_dir.Identity(
        settings, records_vocabulary, {run_dir.RECORDS: run_dir.counts(train_paths)}
    )
    told = {
        "--eval_files": run_dir.numbered(run_dir.counts(eval_paths)),
        "--init_checkpoint": init_checkpoint,
        "--allow_partial": allow_partial,
    }
    multi_worker.check_same(strategy, run_dir.facts(identity) | run_dir.flat(told))
    run_dir.check_same_run(workdir, identity)
    parts = build(settings, strategy)
    try:
        train_state.train(
            parts,
            identity,
            train_paths,
            workdir,
            evaluate=_make_evaluate(settings, parts, eval_paths) if eval_paths else None,
            best_by=BEST_BY,
            read_initial=functools.partial(formats.read, init_checkpoint)
            if init_checkpoint
            else None,
            assign=lambda checkpoint: matching.assign_weights(
                checkpoint.weights, parts.network, checkpoint.source, allow_partial=allow_partial
            ),
            evaluate_initial=True,
        )
    except tf.errors.DataLossError as error:
        raise input_pipeline.corrupt([*train_paths, *eval_paths], error) from None


def build(settings: PretrainConfig, strategy: tf.distribute.Strategy) -> train_state.Parts:
    """The model, its optimizer and all that an update needs; see `train_state.build`."""
    return train_state.build(
        settings,
        strategy,
        lambda: _make_network(settings),
        losses.pretraining_objective(settings.sentence_task),
        _features(settings),
    )


def _make_network(settings: PretrainConfig) -> train_state.Network:
    network = albert_model.AlbertForPretraining(
        settings.albert,
        seed=settings.seed,
        rematerialize=settings.rematerialize,
        layer_loop=settings.layer_loop,
        dtype=settings.dtype,
    )
    return network, trained_weights(network, settings.sentence_task)


def trained_weights(network: albert_model.AlbertForPretraining, task: str) -> list[keras.Variable]:
    """The weights that a gradient reaches. LAMB would let the others decay to nothing."""
    unreached = {
        id(weight)
        for layer in (network.albert.pooler, network.sentence_order)
        for weight in layer.trainable_weights
        if task == "none"
    }
    return [weight for weight in network.trainable_weights if id(weight) not in unreached]


def _make_evaluate(
    settings: PretrainConfig, parts: train_state.Parts, paths: Sequence[str]
) -> Callable[[], dict[str, float]]:
    evaluate = train_step.make_evaluate(
        parts.strategy, parts.network, parts.objective, num_branches=parts.num_branches
    )
    batches = functools.partial(
        input_pipeline.distribute_eval,
        parts.strategy,
        paths,
        parts.spec,
        batch_size=settings.eval_batch_size,
        max_examples=settings.max_eval_examples,
    )
    return lambda: evaluate(batches())


def _features(settings: PretrainConfig) -> features.Features:
    """Those that the model reads."""
    found = features.pretraining(settings.max_seq_length, settings.max_predictions_per_seq)
    del found[features.TOKEN_BOUNDARY]
    return found
