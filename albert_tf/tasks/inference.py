"""Runs a fine-tuned model on a task dataset and decodes its outputs: predictions by example id."""

import functools
import os
from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from albert_tf.kinds import label_scores, task_dataset, task_table
from albert_tf.kinds.spans import qa_windows, span_decoding, tag_decoding
from albert_tf.kinds.task_dataset import TaskDataset
from albert_tf.kinds.task_table import Task
from albert_tf.records import features, input_pipeline
from albert_tf.tasks.predictions import Prediction
from albert_tf.train import devices, eval_step
from albert_tf.train_config import FinetuneConfig

_QUERIES = 1024  # texts whose counterparts are searched for at once

Outputs = Mapping[str, np.ndarray]
Predictions = dict[str, Prediction]


def make_predict(
    config: FinetuneConfig,
    strategy: tf.distribute.Strategy,
    model: keras.Model,
    dataset: TaskDataset,
    *,
    num_branches: int = 1,
) -> Callable[[], Predictions]:
    """Returns `predict()` -> {example id: prediction} of a dataset; see `predictions`.

    The first call reads the records, which stay in memory for the next ones. It raises `UserError`
    if they are damaged or missing.
    """
    run_model = eval_step.make_predict(strategy, model, num_branches=num_branches)

    spec = task_dataset.task_features(dataset.task, config.max_seq_length)
    buckets = devices.choose_buckets(config, strategy)

    @functools.cache  # TensorFlow traces each pipeline that is made, for a third of a second
    def make_batches() -> tuple[tf.data.Dataset, np.ndarray]:
        batches, order = input_pipeline.sorted_eval_batches(
            dataset.records,
            spec,
            max_tokens=config.eval_batch_size * config.max_seq_length,
            buckets=buckets,
            divisor=strategy.num_replicas_in_sync * num_branches,
            fills=devices.needs_static_shapes(strategy),
        )
        # A file that ends between two records can be read to its end.
        if len(order) != dataset.num_records:
            raise task_dataset.damaged_error(dataset, "some records are missing")
        distributed = input_pipeline.distribute(strategy, lambda: batches, spec, buckets=buckets)
        return distributed, np.argsort(order)

    def predict() -> Predictions:
        try:
            batches, places = make_batches()
            outputs = run_model(batches)
        except input_pipeline.DAMAGED as error:
            raise task_dataset.damaged_error(dataset, error) from None
        return decode_outputs(config, dataset, {name: x[places] for name, x in outputs.items()})

    return predict


def decode_outputs(config: FinetuneConfig, dataset: TaskDataset, outputs: Outputs) -> Predictions:
    """Decodes the model's outputs, [N, ...] of all records, to predictions by example id."""
    return _DECODERS[dataset.task.kind](config, dataset, outputs)


def _decode_classes(config: FinetuneConfig, dataset: TaskDataset, outputs: Outputs) -> Predictions:
    logits = outputs["logits"].astype(np.float64)
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities = exponents / exponents.sum(-1, keepdims=True)
    labels = dataset.task.labels
    return {
        example["id"]: {"prediction": labels[int(row.argmax())], "probabilities": row.tolist()}
        for example, row in zip(dataset.examples, probabilities, strict=True)
    }


def _decode_values(config: FinetuneConfig, dataset: TaskDataset, outputs: Outputs) -> Predictions:
    pairs = zip(dataset.examples, outputs["logits"][:, 0].tolist(), strict=True)
    return {example["id"]: {"prediction": value} for example, value in pairs}


def _decode_vectors(config: FinetuneConfig, dataset: TaskDataset, outputs: Outputs) -> Predictions:
    """The cosine of the two texts of an example, and the rank of the second among all of them.

    A text that equals the first one is left out; of equal cosines, and of such that are not finite,
    the own one is the last: vectors that are all alike find nothing.
    """
    vectors = outputs["embedding"].astype(np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    examples = dataset.examples
    candidates = np.unique([k for example in examples for k in example["texts"][1:]])
    predictions: Predictions = {}
    for begin in range(0, len(examples), _QUERIES):
        block = examples[begin : begin + _QUERIES]
        first, second = np.array([example["texts"][:2] for example in block]).T
        cosines = vectors[first] @ vectors[candidates].T  # [Q, M]
        places = np.searchsorted(candidates, second)
        own = cosines[np.arange(len(block)), places]
        is_other = (candidates != first[:, np.newaxis]) | (candidates == second[:, np.newaxis])
        ranks = (~(cosines < own[:, np.newaxis]) & is_other).sum(1)
        for example, cosine, rank in zip(block, own.tolist(), ranks.tolist(), strict=True):
            predictions[example["id"]] = {"prediction": cosine, "rank": rank}
    return predictions


def _decode_several(config: FinetuneConfig, dataset: TaskDataset, outputs: Outputs) -> Predictions:
    """Labels of a probability over a half; the caller may have better thresholds."""
    probabilities = 1 / (1 + np.exp(-outputs["logits"].astype(np.float64)))
    pairs = zip(dataset.examples, probabilities.tolist(), strict=True)
    predictions = {example["id"]: {"probabilities": row} for example, row in pairs}
    return label_scores.apply_thresholds(dataset.task, predictions, {})


def _decode_tags(config: FinetuneConfig, dataset: TaskDataset, outputs: Outputs) -> Predictions:
    return tag_decoding.predict(
        outputs,
        qa_windows.read(os.path.join(dataset.path, task_dataset.WINDOWS)),
        qa_windows.read_words(os.path.join(dataset.path, task_dataset.WORDS)),
        dataset.examples,
        dataset.task.labels,
    )


def _decode_spans(config: FinetuneConfig, dataset: TaskDataset, outputs: Outputs) -> Predictions:
    return span_decoding.predict(
        {**outputs, features.UNIQUE_IDS: outputs[features.UNIQUE_IDS][:, 0]},
        qa_windows.read(os.path.join(dataset.path, task_dataset.WINDOWS)),
        dataset.examples,
        make_answer_options(config, dataset.task),
    )


def make_answer_options(config: FinetuneConfig, task: Task) -> span_decoding.AnswerOptions:
    """Returns which spans are answers of a task."""
    return span_decoding.AnswerOptions(
        may_be_none=task.kind == task_table.SPAN_OR_NONE,
        n_best_size=config.n_best_size,
        max_answer_length=config.max_answer_length,
    )


_DECODERS = {
    task_table.CLASSIFICATION: _decode_classes,
    task_table.REGRESSION: _decode_values,
    task_table.MULTIPLE_CHOICE: _decode_classes,
    task_table.SENTENCE_EMBEDDING: _decode_vectors,
    task_table.SPAN: _decode_spans,
    task_table.SPAN_OR_NONE: _decode_spans,
    task_table.TOKEN_CLASSIFICATION: _decode_tags,
    task_table.MULTI_LABEL: _decode_several,
}
