"""ALBERT with the head of a task."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_tasks
from tiny import assert_close

from albert_tf.model import weight_names
from albert_tf.model.losses import mean_loss

SEED = tf.constant([3, 4])
SHAPES = {
    "classification": {"logits": (3, 4)},
    "regression": {"logits": (3, 1)},
    "multiple_choice": {"logits": (3, 4)},
    "span": {"start_logits": (3, 7), "end_logits": (3, 7)},
    "span_or_none": {
        "start_top_log_probs": (3, 2),
        "start_top_index": (3, 2),
        "end_top_log_probs": (3, 6),
        "end_top_index": (3, 6),
        "cls_logits": (3,),
    },
    "sentence_embedding": {"embedding": (3, 8)},
    "first_embedding": {"embedding": (3, 8)},
    "token_classification": {"logits": (3, 7, 4)},
    "multi_label": {"logits": (3, 4)},
}
READ_TOKENS = ("span", "span_or_none", "token_classification", "sentence_embedding")
PARTS = {
    "classification": [weight_names.CLASSIFIER],
    "regression": [weight_names.CLASSIFIER],
    "multiple_choice": [weight_names.CLASSIFIER],
    "span": [weight_names.SQUAD1],
    "span_or_none": [weight_names.SQUAD2],
    "token_classification": [weight_names.TOKEN_CLASSIFIER],
    "multi_label": [weight_names.CLASSIFIER],
}
every_head = pytest.mark.parametrize("head", tiny_tasks.HEADS)


@every_head
def test_a_model_has_the_published_weights_and_the_outputs_of_its_head(head):
    config, batch = tiny.config(), tiny_tasks.batch(head)
    parts = weight_names.parts(config)
    classes = 1 if head in ("regression", "multiple_choice") else 4
    expected = {
        name: tuple(classes if size == weight_names.ANY else size for size in shape)
        for part in (weight_names.ENCODER, weight_names.POOLER, *PARTS.get(head, ()))
        for name, shape in parts[part].items()
    }
    model = tiny_tasks.make(head, dtype="mixed_bfloat16")
    weights = weight_names.weights_by_name(model)
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == expected
    with tf.GradientTape() as tape:
        outputs = model(batch)
    assert {name: tuple(value.shape) for name, value in outputs.items()} == SHAPES[head]
    types = {tf.int32 if name.endswith("_index") else tf.float32 for name in outputs}
    assert {value.dtype for value in outputs.values()} == types
    read = {id(variable) for variable in tape.watched_variables()}
    pooler = {id(weight.value) for weight in model.albert.pooler.trainable_weights}
    assert pooler & read == (pooler if model.reads_pooled_output else set())
    assert model.reads_pooled_output == (head not in READ_TOKENS)


@every_head
def test_a_gradient_reaches_every_trained_weight(head):
    made, batch = tiny_tasks.make(head), tiny_tasks.batch(head)
    if head in tiny_tasks.EMBEDDINGS:
        batch = tiny_tasks.texts_batch(tiny_tasks.CLASSES)
    objective = tiny_tasks.make_objective(
        "sentence_embedding" if head in tiny_tasks.EMBEDDINGS else head
    )
    weights = made.trained_weights()
    with tf.GradientTape() as tape:
        outputs = made(batch, training=True, seed=SEED)
        loss = mean_loss(objective.sums(outputs, batch), objective.counts(batch))
    gradients = tape.gradient(loss, [weight.value for weight in weights])
    assert all(isinstance(gradient, tf.Tensor) for gradient in gradients)
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    pooled = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}
    left_out = set(weight_names.weights_by_name(made)) - {weight.path for weight in weights}
    assert left_out == (set() if made.reads_pooled_output else pooled)


@every_head
def test_padding_changes_nothing(head):
    made, batch = tiny_tasks.make(head), tiny_tasks.batch(head)
    hidden = batch["input_mask"] == 0
    other = {**batch, "input_ids": tf.where(hidden, 1, batch["input_ids"])}
    actual, expected = made(other), made(batch)
    if head == "token_classification":
        hidden = hidden[:, :, tf.newaxis]
    if head in ("span", "token_classification"):  # logits at padding are of what stands there
        actual, expected = (
            {name: tf.where(hidden, 0.0, value) for name, value in outputs.items()}
            for outputs in (actual, expected)
        )
    assert_close(actual, expected, 1e-5)


def test_a_choice_is_scored_as_if_alone():
    made, batch = tiny_tasks.make("multiple_choice"), tiny_tasks.batch("multiple_choice")
    logits = made(batch)["logits"].numpy()
    order = [2, 0, 3, 1]
    names = ("input_ids", "input_mask", "segment_ids")
    parts = {name: tf.split(batch[name], 4, axis=1) for name in names}
    moved = {name: tf.concat([part[k] for k in order], 1) for name, part in parts.items()}
    assert_close(made(moved)["logits"], logits[:, order], 1e-5)
