"""The model in training: dropout, rematerialization, bfloat16.

tests/train/test_train_step.py compares whole updates, with XLA and rematerialized ones too.
"""

import numpy as np
import pytest
import tensorflow as tf
import tiny
from tiny import assert_close

from albert_tf.model.albert_model import AlbertForPretraining
from albert_tf.model.weight_names import weights_by_name

DROPOUT = tiny.config(
    num_hidden_layers=2, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1
)
SEED = tf.constant([3, 4])


def make(config, **options):
    model = AlbertForPretraining(config, **options)
    tiny.fill(model)
    return model


def differ(first, second):
    pairs = zip(tf.nest.flatten(first), tf.nest.flatten(second), strict=True)
    return all(np.abs(a.numpy() - b.numpy()).max() > 1e-3 for a, b in pairs)


def relative_distance(actual, expected):
    actual, expected = (np.asarray(tf.cast(x, tf.float32)) for x in (actual, expected))
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)


def flat(gradients):
    return tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients.values()], 0)


def graph_of(function, *inputs):
    """The operations that a function is made of."""
    return (
        tf.function(function, autograph=False).get_concrete_function(*inputs).graph.get_operations()
    )


@pytest.mark.parametrize("act", ["gelu", "relu"])
def test_without_dropout_training_changes_nothing(act):
    model, batch = make(tiny.config(hidden_act=act)), tiny.batch()
    assert_close(model(batch, training=True), model(batch), 1e-5)
    assert_close(model.albert(batch, training=True), model.albert(batch), 1e-5)


def test_dropout_follows_the_seed_in_training_alone():
    model, batch = make(DROPOUT), tiny.batch()
    first = model(batch, training=True, seed=SEED)
    assert_close(model(batch, training=True, seed=SEED), first, 0.0)
    assert differ(model(batch, training=True, seed=SEED + 1), first)
    assert differ(model(batch, training=True), model(batch, training=True))  # none: another each
    undropped = make(tiny.config(num_hidden_layers=2))(batch)
    assert_close(model(batch, seed=SEED), undropped, 0.0)
    assert differ(undropped, first)


def test_every_place_of_dropout_has_its_own_mask():
    config = tiny.config(
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.2,
        num_hidden_layers=4,
        num_hidden_groups=2,
        inner_group_num=2,
    )
    sites = []
    original = tf.random.fold_in

    def record(seed, site, alg):
        sites.append(site)
        return original(seed, site, alg=alg)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tf.random, "fold_in", record)
        make(config)(tiny.batch(), training=True, seed=SEED)
    # The embeddings, then attention's probabilities, its output and the feed-forward's, 8 times.
    assert len(sites) == len(set(sites)) == 1 + 3 * 8


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "in_a_graph"), [("float32", True), ("mixed_bfloat16", False)])
def test_rematerialization_changes_no_gradient(dtype, in_a_graph):
    def step(**way):
        model = make(DROPOUT, dtype=dtype, **way)

        def compute():
            return tiny.loss_and_gradients(model, tiny.batch(), seed=SEED)

        return tf.function(compute)() if in_a_graph else compute()

    plain = step()
    assert_close(step(rematerialize=True), plain, 1e-6)
    assert_close(step(layer_loop=True), plain, 1e-6)


def test_rematerialization_computes_blocks_again():
    model = make(tiny.config(), rematerialize=True)
    operations = graph_of(lambda batch: tiny.loss_and_gradients(model, batch), tiny.batch())
    products = sum(operation.type == "BatchMatMulV2" for operation in operations)
    # Each of the three blocks: two in the forward pass, two again and four in the backward pass.
    assert products == 3 * (2 + 2 + 4)
    operations = graph_of(lambda batch: model(batch), tiny.batch())
    # Of long sequences and of the others.
    assert sum(operation.type == "Softmax" for operation in operations) == 3 * 2


def test_bfloat16_is_close_to_float32():
    batch = tiny.batch()
    single, half = make(tiny.config()), make(tiny.config(), dtype="mixed_bfloat16")
    for name, expected in single.albert(batch).items():
        actual = half.albert(batch)[name]
        for a, b in zip(tf.nest.flatten(actual), tf.nest.flatten(expected), strict=True):
            assert a.dtype == tf.bfloat16
            assert relative_distance(a, b) < 2e-2
    types = {"masked_lm_logits": tf.bfloat16, "sentence_order_logits": tf.float32}
    for training in (False, True):
        logits = half(batch, training=training)
        for name, expected in single(batch, training=training).items():
            assert logits[name].dtype == types[name]
            assert relative_distance(logits[name], expected) < 2e-2


def test_gradients_of_bfloat16_are_float32_and_close():
    models = [make(tiny.config(), dtype=dtype) for dtype in ("mixed_bfloat16", "float32")]
    for weight in models[1].weights:
        if len(weight.shape) > 1:  # what bfloat16 computes with
            weight.assign(tf.cast(tf.cast(weight, tf.bfloat16), tf.float32))
    (half_loss, half), (single_loss, single) = (
        tiny.loss_and_gradients(model, tiny.batch()) for model in models
    )
    assert {gradient.dtype for gradient in half.values()} == {tf.float32}
    assert half_loss.numpy() == pytest.approx(single_loss.numpy(), rel=2e-2)
    assert relative_distance(flat(half), flat(single)) < 2e-2


def test_what_bfloat16_leaves_in_float32():
    model = make(tiny.config(), dtype="mixed_bfloat16")
    assert {w.dtype for w in weights_by_name(model).values()} == {tf.float32}
    operations = graph_of(lambda batch: model(batch), tiny.batch())

    def types(kind):
        return {operation.get_attr("T") for operation in operations if operation.type == kind}

    assert types("Softmax") == types("Rsqrt") == {tf.float32}
    assert types("BatchMatMulV2") == {tf.bfloat16}
