"""Without padding the model gives what it gives with it, at the tokens, and so do its gradients."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_tasks
from tiny import assert_close

from albert_tf.model import token_layout, xla
from albert_tf.model.albert_model import Albert, AlbertForPretraining
from albert_tf.model.weight_names import weights_by_name

SEED = tf.constant([3, 4])
DROPOUT = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.3}
NONE, ALL = [0] * 7, [1] * 7
MASKS = {
    "unlike lengths": [ALL, [1] * 4 + [0] * 3, [1] * 5 + [0] * 2],
    "one long sequence": [[1] * 2 + [0] * 5, ALL, [1] + [0] * 6],
    "holes": [[1, 0, 1, 1, 0, 0, 1], [1, 1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 1]],
    "a row of padding": [[1] * 3 + [0] * 4, NONE, [1] * 6 + [0]],
    "no token": [NONE] * 3,
    "no padding": [ALL] * 3,
    "one row": [[1] * 5 + [0] * 2],
    "one full row": [ALL],
}
in_both_modes = pytest.mark.parametrize("training", [False, True])


def masked(batch, mask):
    """The batch with another mask, and as many rows as that has."""
    batch = {name: value[: len(mask)] for name, value in batch.items()}
    return {**batch, "input_mask": tf.constant(mask)}


def make(kind=Albert, *, dtype="float32", layer_loop=False, rematerialize=False, **changes):
    options = {"dtype": dtype, "layer_loop": layer_loop, "rematerialize": rematerialize}
    model = kind(tiny.config(**changes), **options)
    tiny.fill(model)
    return model


def outputs_and_gradients(model, batch, select, *, static=False, pieces=False, **options):
    """What is selected of the outputs, and the gradients of its sum of cubes."""
    weights = list(weights_by_name(model).values())
    with xla.trace_options(static_shapes=static, compile_pieces=pieces):
        with tf.GradientTape() as tape:
            outputs = tf.nest.flatten(select(model(batch, seed=SEED, **options)))
            outputs = [tf.cast(x, tf.float32) for x in outputs]
            loss = tf.add_n([tf.reduce_sum(x**3) for x in outputs])
        gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
    return outputs, [tf.convert_to_tensor(x) for x in gradients]


def assert_alike(model, batch, select=lambda outputs: outputs, *, tolerance=1e-5, **options):
    """Compares both paths, relative to the largest output and the largest gradient."""
    expected = outputs_and_gradients(model, batch, select, static=True, **options)
    actual = outputs_and_gradients(model, batch, select, **options)
    for ours, theirs in zip(actual, expected, strict=True):
        scale = max([1.0, *(np.abs(x).max(initial=0.0) for x in theirs)])
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a / scale, b / scale, rtol=tolerance, atol=tolerance)


def select_tokens(mask, positions=None):
    """Returns a function of the outputs: the vectors at tokens."""
    mask = tf.constant(mask)
    mask_of_last = mask
    if positions is not None:
        first_and_these = tf.pad(positions, [[0, 0], [1, 0]])
        mask_of_last = tf.gather(mask, first_and_these, batch_dims=1)

    def select(outputs):
        *vectors, last = outputs["encoder_outputs"]  # of a loop the last alone
        pooled = outputs["pooled_output"]
        last = tf.boolean_mask(last, mask_of_last)
        return [*(tf.boolean_mask(x, mask) for x in vectors), last, pooled[mask[:, 0] == 1]]

    return select


CHOSEN = [[0, 6], [3, 3], [1, 0]]
NOTHING = np.zeros([3, 0])
HALF = {"dtype": "mixed_bfloat16", **DROPOUT}
LOOP, AGAIN = {"layer_loop": True, **DROPOUT}, {"rematerialize": True, **DROPOUT}


@pytest.mark.parametrize(
    ("mask", "training", "positions", "options"),
    [
        *((mask, number % 2 == 0, None, DROPOUT) for number, mask in enumerate(MASKS)),
        ("unlike lengths", False, None, {"inner_group_num": 2}),
        ("unlike lengths", True, None, {"cross_layer_sharing": "ffn"}),
        ("unlike lengths", True, None, HALF),
        ("unlike lengths", False, CHOSEN, DROPOUT),
        ("holes", True, CHOSEN, AGAIN),
        ("holes", True, CHOSEN, LOOP),
        ("no token", False, CHOSEN, DROPOUT),
        ("unlike lengths", True, NOTHING, DROPOUT),
        ("no token", True, NOTHING, DROPOUT),
    ],
)
def test_vectors_and_gradients_are_those_of_padded_ones(mask, training, positions, options):
    mask, tolerance = MASKS[mask], 0.05 if options is HALF else 1e-5
    if positions is not None:  # the last block computes these alone, or none
        positions = tf.constant(positions, tf.int32)[: len(mask)]
    arguments = {"training": training, "positions": positions, "skips_padding": True}
    select = select_tokens(mask, positions)
    assert_alike(
        make(**options), masked(tiny.batch(), mask), select, tolerance=tolerance, **arguments
    )


@in_both_modes
def test_vectors_at_padding_are_zeros_and_the_pooled_one_is_finite(training):
    model = make()
    for mask in MASKS.values():
        batch, is_token = masked(tiny.batch(), mask), np.array(mask) == 1
        for positions in (None, np.array(CHOSEN)[: len(mask)]):
            outputs = model(batch, training=training, positions=positions, skips_padding=True)
            expected = is_token
            if positions is not None:
                expected = np.take_along_axis(is_token, positions, 1)
            vectors = outputs["sequence_output"]
            np.testing.assert_array_equal(expected, np.abs(vectors).max(-1) > 0)
            assert np.isfinite(outputs["pooled_output"]).all()


@pytest.mark.usefixtures("as_users")
def test_pretraining():
    mask = MASKS["a row of padding"]
    batch = {**masked(tiny.batch(), mask)}
    # Unused predictions are of the first token, which is one.
    tokens = np.maximum(np.argmax(mask, 1), 0)[:, np.newaxis]
    at_tokens = np.take_along_axis(np.array(mask), batch["masked_lm_positions"].numpy(), 1) == 1
    positions = np.where(at_tokens, batch["masked_lm_positions"], tokens).astype(np.int32)
    batch["masked_lm_positions"] = tf.constant(positions)
    is_first = np.array(mask)[:, 0] == 1

    def select(outputs):
        return [x[is_first] for x in outputs.values()]

    model = make(AlbertForPretraining, **DROPOUT)
    assert_alike(model, batch, select, training=True, pieces=True)


@pytest.mark.parametrize("head", ["multiple_choice", "span_or_none", "token_classification"])
def test_heads(head):
    model, batch = tiny_tasks.make(head, **DROPOUT), tiny_tasks.batch(head)
    if "p_mask" in batch:
        batch["p_mask"] = tf.maximum(batch["p_mask"], 1 - batch["input_mask"])
    assert_alike(model, batch, training=True)


def test_an_empty_batch():
    batch = {name: value[:0] for name, value in tiny.batch().items()}
    for training in (False, True):
        outputs = make()(batch, training=training, skips_padding=True)
        assert outputs["sequence_output"].shape == (0, 7, 8)


def test_a_graph_of_any_shape_skips_padding():
    names = ("input_ids", "input_mask", "segment_ids")
    specs = dict.fromkeys(names, tf.TensorSpec([None, None], tf.int32))
    model = make()
    graph = tf.function(
        lambda batch: model(batch, skips_padding=True), input_signature=[specs], autograph=False
    )
    for mask in MASKS.values():
        batch = {name: masked(tiny.batch(), mask)[name] for name in names}
        outputs, expected = graph(batch), model(batch)
        select = select_tokens(mask)
        assert_close(select(outputs), select(expected), 1e-5)


def test_padding_is_computed_where_shapes_are_static_and_its_vectors_are_0(monkeypatch):
    model, batch = make(), masked(tiny.batch(), MASKS["unlike lengths"])
    padded = model(batch)["sequence_output"]
    mask = tf.cast(batch["input_mask"], tf.float32)[:, :, tf.newaxis]

    def call(batch):
        return model(batch, skips_padding=True)["sequence_output"]

    def refuse(*args, **options):
        raise AssertionError("a layout of unknown shapes was made")

    with monkeypatch.context() as patch:
        patch.setattr(token_layout, "make_layout", refuse)
        with xla.trace_options(static_shapes=True):
            assert_close(call(batch), padded * mask, 0.0)
        assert_close(
            tf.function(call, jit_compile=True, autograph=False)(batch), padded * mask, 1e-5
        )
        with pytest.raises(AssertionError, match="unknown shapes"):
            call(batch)


def test_a_long_sequence_does_not_widen_the_others():
    lengths = np.array([3, 200, 4, 2, 190])
    mask = tf.constant((np.arange(200) < lengths[:, np.newaxis]).astype(np.int32))
    layout = token_layout.make_layout(mask, 2, training=False)
    assert [x.shape for x in layout.tokens.rows] == [(2, 200), (3, 4)]
    np.testing.assert_array_equal(tf.concat(layout.sequences, 0), [1, 4, 2, 0, 3])


@pytest.mark.parametrize("num_tokens", [0, 1, 63, 64, 65, 1000, 1023, 1024])
def test_training_sees_few_numbers_of_tokens(num_tokens):
    mask = np.random.default_rng(0).permutation(np.arange(1024) < num_tokens).reshape(8, 128)
    layout = token_layout.make_layout(tf.constant(mask.astype(np.int32)), 2, training=True)
    indices = layout.indices.numpy()
    assert len(set(indices)) == len(indices) == max(64, -(-num_tokens // 64) * 64)
    np.testing.assert_array_equal(indices[:num_tokens], np.flatnonzero(mask))
