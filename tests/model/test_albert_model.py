"""The whole model against a second implementation, and what must not change its outputs."""

import numpy as np
import pytest
import reference_model
import tensorflow as tf
import tiny
from tiny import assert_close

from albert_tf.model.albert_model import Albert, AlbertForPretraining
from albert_tf.model.weight_names import weights_by_name

CONFIGS = {
    "factorised": tiny.config(),
    "not factorised, linear": tiny.config(embedding_size=8, hidden_act="linear"),
    "three uneven groups": tiny.config(num_hidden_groups=3, num_hidden_layers=5),
    "inner groups in groups": tiny.config(inner_group_num=2, num_hidden_groups=2),
    "attention shared": tiny.config(cross_layer_sharing="attention"),
    "ffn shared in groups": tiny.config(
        cross_layer_sharing="ffn", num_hidden_groups=2, inner_group_num=2
    ),
    "nothing shared, three segments": tiny.config(cross_layer_sharing="none", type_vocab_size=3),
    "relu": tiny.config(hidden_act="relu"),
    "tanh, one head": tiny.config(hidden_act="tanh", num_attention_heads=1),
}


def make(config=None, **options):
    model = AlbertForPretraining(config or tiny.config(), **options)
    return model, tiny.fill(model)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_outputs_are_those_of_the_reference(config):
    model, weights = make(config)
    batch = tiny.batch()
    outputs = model.albert(batch)
    expected = reference_model.albert(weights, config, batch)
    depth = config.num_hidden_layers * config.inner_group_num
    assert len(outputs["encoder_outputs"]) == depth
    assert outputs["sequence_output"].shape == (3, 7, 8)
    assert outputs["pooled_output"].shape == (3, 8)
    assert_close(outputs, expected, 2e-5)
    logits = model(batch)
    assert logits["masked_lm_logits"].shape == (3, 5, 11)
    assert logits["sentence_order_logits"].shape == (3, 2)
    assert_close(logits, reference_model.pretraining(weights, config, batch), 2e-5)


@pytest.mark.usefixtures("as_users")
@pytest.mark.parametrize("name", ["factorised", "ffn shared in groups", "relu"])
def test_gradients_are_those_of_the_reference(name):
    """Central differences of the reference's loss, in float64, at two entries of every weight."""
    config, batch, step = CONFIGS[name], tiny.batch(), 1e-5
    model, weights = make(config)
    loss, gradients = tiny.loss_and_gradients(model, batch)
    weights = {n: w.astype(np.float64) for n, w in weights.items()}
    assert loss.numpy() == pytest.approx(
        reference_model.pretraining_loss(weights, config, batch), rel=1e-5
    )
    rng = np.random.default_rng(1)
    for name, weight in weights.items():
        for index in rng.integers(0, weight.size, 2):
            original = weight.flat[index]
            ends = []
            for value in (original + step, original - step):
                weight.flat[index] = value
                ends.append(reference_model.pretraining_loss(weights, config, batch))
            weight.flat[index] = original
            expected = (ends[0] - ends[1]) / (2 * step)
            actual = gradients[name].numpy().flat[index]
            assert actual == pytest.approx(expected, rel=2e-5, abs=2e-6), (name, index)


@pytest.mark.parametrize("training", [False, True])
def test_positions_leave_out_the_other_tokens_of_the_last_block(training):
    model, _ = make()
    positions = tf.constant([[6, 0, 6, 2], [3, 1, 1, 0], [2, 4, 0, 5]])
    options = {"training": training}
    whole = model.albert(tiny.batch(), **options)
    part = model.albert(tiny.batch(), positions=positions, **options)
    expected = tf.gather(whole["sequence_output"], positions, batch_dims=1)
    assert part["encoder_outputs"][-1].shape == (3, 1 + 4, 8)
    assert_close(part["sequence_output"], expected, 1e-6)
    assert_close(part["pooled_output"], whole["pooled_output"], 1e-6)
    assert_close(part["encoder_outputs"][:-1], whole["encoder_outputs"][:-1], 0.0)


def test_a_length_that_is_known_stays_known():
    model, _ = make()
    ids = tf.TensorSpec([None, 7], tf.int32)
    outputs = (
        tf.function(model.albert, autograph=False)
        .get_concrete_function({"input_ids": ids})
        .structured_outputs
    )
    assert outputs["sequence_output"].shape.as_list() == [None, 7, 8]


def test_a_mask_of_ones_and_segment_zero_are_the_defaults():
    model, _ = make()
    ids = tiny.batch()["input_ids"]
    full = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    assert_close(model.albert({"input_ids": ids}), model.albert(full), 0.0)


def test_what_is_padding_changes_nothing_on_real_positions():
    model, _ = make()
    batch = tiny.batch()
    mask = batch["input_mask"]
    other_ids = tf.where(mask == 1, batch["input_ids"], (batch["input_ids"] + 1) % 11)
    other_segments = tf.where(mask == 1, batch["segment_ids"], 1 - batch["segment_ids"])
    before = model.albert(batch)
    after = model.albert({**batch, "input_ids": other_ids, "segment_ids": other_segments})
    real = np.asarray(mask, bool)
    assert_close(after["pooled_output"], before["pooled_output"], 1e-6)
    for a, b in zip(after["encoder_outputs"], before["encoder_outputs"], strict=True):
        assert_close(a.numpy()[real], b.numpy()[real], 1e-6)
        assert np.abs(a.numpy()[~real] - b.numpy()[~real]).max() > 0.01


def test_batches_and_sequences_of_any_size_go_through_one_graph():
    model, _ = make()
    unknown = tf.TensorSpec([None, None], tf.int32)
    names = ("input_ids", "input_mask", "segment_ids")
    signature = [dict.fromkeys(names, unknown)]
    graph = tf.function(model.albert, input_signature=signature, autograph=False)
    batch = tiny.batch()
    for rows, length in ((3, 7), (2, 1), (1, 5)):
        inputs = {name: batch[name][:rows, :length] for name in names}
        assert_close(graph(inputs), model.albert(inputs), 1e-6)
    assert graph.experimental_get_tracing_count() == 1


def test_initial_weights_follow_the_seed_and_the_published_distribution():
    first, again, other = (
        weights_by_name(AlbertForPretraining(tiny.config(vocab_size=5000), seed=seed))
        for seed in (1, 1, 2)
    )
    for name, weight in first.items():
        values = weight.numpy()
        assert np.array_equal(values, again[name].numpy())
        if name.endswith(("bias", "beta", "gamma")):
            assert np.all(values == float(name.endswith("gamma")))
        else:
            assert np.abs(values).max() <= 2 * 0.02
            assert not np.array_equal(values, other[name].numpy())
    drawn = [w.numpy().ravel() for w in first.values() if w.shape == (8, 8)]
    assert len({values.tobytes() for values in drawn}) == len(drawn) == 5
    words = first["bert/embeddings/word_embeddings"].numpy()
    # A normal distribution cut at two standard deviations keeps 0.8796 of its own.
    assert words.std() == pytest.approx(0.02 * 0.8796, rel=0.02)


def test_weights_without_a_seed_are_zeros():
    weights = weights_by_name(Albert(tiny.config(), seed=None))
    assert not weights["bert/pooler/dense/kernel"].numpy().any()
