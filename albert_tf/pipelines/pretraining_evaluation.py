"""Evaluation of a pre-trained checkpoint on held-out records."""

import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from albert_tf import config_io, files, run_record
from albert_tf.checkpoints import formats, matching, model_checkpoint
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.config import AlbertConfig
from albert_tf.data_prep.task_data import data_record
from albert_tf.errors import UserError, require
from albert_tf.model import albert_model, encoder, losses, weight_names
from albert_tf.objectives.all_objectives import OBJECTIVES
from albert_tf.pipelines import pretraining_records
from albert_tf.records import features, input_pipeline, manifest
from albert_tf.run_files import BEST
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train import eval_step
from albert_tf.train_config import PretrainConfig

_MEASURED = 512  # examples for the distances between layers


def load(
    path: str,
    strategy: tf.distribute.Strategy,
    which: str = BEST,
    overrides: Sequence[str] = (),
) -> tuple[PretrainConfig, Any, ModelCheckpoint]:
    """Loads a checkpoint of a run, or in any format, on the devices; see `formats.read`.

    `overrides`, such as "eval_batch_size=8", change the config of the run; without a run, the dtype
    is float32.

    Raises `UserError` if there is no checkpoint, or it lacks a weight of the pre-training model.
    """
    checkpoint = formats.read(path, which=which)
    values = (
        checkpoint.run["config"]
        if "train_files" in checkpoint.run
        else {
            "albert": config_io.to_dict(checkpoint.config),
            "max_seq_length": checkpoint.config.max_position_embeddings,
            "dtype": "float32",
        }
    )
    config = config_io.load(PretrainConfig, None, overrides, values)
    with strategy.scope():
        network, _ = OBJECTIVES[config.sentence_task].make_model(config)
    names = weight_names.weights_by_name(network).keys() & checkpoint.weights.keys()
    weights = {name: checkpoint.weights[name] for name in names}
    matching.assign_weights(weights, network, checkpoint.source, log_level=logging.DEBUG)
    return config, network, checkpoint


def recall_files(path: str) -> list[str]:
    """Returns the held-out records of a run, given its folder or one of its checkpoints.

    Returns none without a run. Raises `UserError` if the records have changed.
    """
    run = run_record.find(path)
    recorded = run.data if run else {}
    data_record.check(recorded.get("manifests", {}), "held-out", "--eval_files")
    return list(recorded.get("eval_files", ()))


def evaluate(
    path: str,
    eval_files: Sequence[str],
    strategy: tf.distribute.Strategy | None = None,
    *,
    measures_layers: bool = False,
    by_layer: bool = False,
    which: str = BEST,
    overrides: Sequence[str] = (),
) -> dict[str, Any]:
    """Evaluates a checkpoint on held-out records of one or more sentence tasks.

    With records of both tasks, this is the paper's cross evaluation (section 4.6): a model trained
    on one sentence task predicts the other.

    Args:
        path: the folder of a run, or a checkpoint in any format.
        which: the checkpoint of a run, as in `formats.read`.
        overrides: changes to the config, as in `load`.
        measures_layers: whether to measure the distances between layers on the first records.
        by_layer: whether to apply the heads to the output of every layer, as if it were the last.

    Returns:
        {"checkpoint": prefix, task: {"loss", "masked_lm_accuracy", ..., "files", "by_layer":
        {"masked_lm_accuracy": a list, ...}}, "layer_distances": see
        `measure_layers`}. For records with a `random_from`, the task name ends with it, as in
        `nsp_other_file`.
    """
    strategy = strategy or tf.distribute.get_strategy()
    config, network, checkpoint = load(path, strategy, which, overrides)
    logging.info(f"{checkpoint.source}: evaluated in {config.dtype}")
    tokenizer = model_checkpoint.load_tokenizer(checkpoint)
    if tokenizer is None:
        raise UserError(f"there is no vocabulary next to {path} to compare with the records'.")
    results: dict[str, Any] = {"checkpoint": checkpoint.source}
    paths = files.expand(eval_files, "--eval_files")
    for folder, contents in manifest.read_all(paths).items():
        own = [path for path in paths if os.path.dirname(path) == folder]
        settings = _check_records(own[0], contents, checkpoint, tokenizer)
        name = task = settings["sentence_task"]
        if (random_from := settings.get("random_from", "any")) != "any":
            name += f"_{random_from}"
        if name in results:
            raise UserError(f"{folder}: a second folder of {name} records. Evaluate it separately.")
        read_batches = functools.partial(
            input_pipeline.distribute_eval,
            paths=own,
            spec=features.pretraining(
                settings["max_seq_length"], settings["max_predictions_per_seq"]
            ),
            batch_size=config.eval_batch_size,
            masking=pretraining_records.read_masking(own, tokenizer),
        )
        compute = functools.partial(_compute, network, strategy, read_batches, task)
        results[name] = {**compute(), "files": own}
        if by_layer:
            results[name]["by_layer"] = _list_by_layer(compute, results[name], network.config)
        if measures_layers and "layer_distances" not in results:
            batches = read_batches(tf.distribute.get_strategy(), max_examples=_MEASURED)
            results["layer_distances"] = measure_layers(network.albert, batches)
    return results


def _compute(
    network: Any,
    strategy: tf.distribute.Strategy,
    read_batches: functools.partial[Any],
    task: str,
    **options: Any,
) -> dict[str, float]:
    """Returns the metrics of records; `options` are passed to the network."""
    apply, loss = functools.partial(network, **options), OBJECTIVES[task].loss
    try:
        run = eval_step.make_evaluate(strategy, apply, loss, num_branches=1)
        return run(read_batches(strategy))
    except input_pipeline.DAMAGED as error:
        raise input_pipeline.corrupt_error(read_batches.keywords["paths"], error) from None


def _list_by_layer(
    compute: Callable[..., dict[str, float]], whole: Mapping[str, Any], config: AlbertConfig
) -> dict[str, list[float]]:
    """Returns the metrics after each layer; `whole` are the metrics after the last."""
    layers = [*(compute(num_blocks=number) for number in encoder.list_ends(config)), whole]
    names = [name for name in layers[0] if name.endswith(("loss", "accuracy"))]
    return {name: [values[name] for values in layers] for name in names}


def _check_records(
    path: str, contents: Mapping[str, Any], checkpoint: ModelCheckpoint, tokenizer: Tokenizer
) -> Mapping[str, Any]:
    """Checks that records fit the model, and returns their settings; `contents` is their manifest.

    Raises `UserError` if they are longer than the model's positions, or have other tokens or words.
    """
    folder, longest = os.path.dirname(path), checkpoint.config.max_position_embeddings
    require(
        contents["vocabulary"]["sha256"] == tokenizer.sha256,
        f"the records in {folder} have another vocabulary than {checkpoint.source}. Create them "
        "with the vocabulary of the checkpoint.",
    )
    manifest.check_pretraining(folder, contents)
    length = contents["settings"]["max_seq_length"]
    require(
        length <= longest,
        f"the records in {folder} have max_seq_length={length}, more than the model's "
        f"max_position_embeddings {longest}. Create them with --max_seq_length of the model.",
    )
    run = run_record.find(checkpoint.source)
    require(
        (run and run.words) in (None, pretraining_records.read_words(path)),
        f"the records in {folder} have other words than {checkpoint.source}. Create them with "
        "the run's --words.",
    )
    return contents["settings"]


def measure_layers(
    network: albert_model.Albert, batches: Iterable[Mapping[str, tf.Tensor]]
) -> dict[str, list[float]]:
    """Returns how far each layer moves its input (paper, figure 1), averaged over real tokens.

    Returns:
        {"l2": the L2 distance of each layer's input and output, "angle": their angle in degrees}.
    """
    l2, angle, count = tf.constant(0.0), tf.constant(0.0), tf.constant(0.0)
    for batch in batches:
        vectors = [network.embed(batch), *network(batch)["encoder_outputs"]]
        x = tf.stack([tf.cast(vector, tf.float32) for vector in vectors])
        weights = tf.cast(batch[features.INPUT_MASK], tf.float32)
        weights *= losses.example_weights(batch)[:, tf.newaxis]
        distance = tf.norm(x[1:] - x[:-1], axis=-1)
        cosine = tf.reduce_sum(tf.nn.l2_normalize(x[1:], -1) * tf.nn.l2_normalize(x[:-1], -1), -1)
        degrees = tf.acos(tf.clip_by_value(cosine, -1.0, 1.0)) * (180 / math.pi)
        l2 += tf.reduce_sum(distance * weights, [1, 2])
        angle += tf.reduce_sum(degrees * weights, [1, 2])
        count += tf.reduce_sum(weights)
    return {"l2": (l2 / count).numpy().tolist(), "angle": (angle / count).numpy().tolist()}
