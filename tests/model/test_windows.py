"""Attention in blocks is attention with a mask: values and gradients, with and without padding."""

import numpy as np
import pytest
import reference_model
import tensorflow as tf
import tiny
from tiny import assert_close

from albert_tf.model import ops, windows, xla
from albert_tf.model.albert_model import Albert
from albert_tf.model.weight_names import weights_by_name

LENGTHS = [21, 13, 5, 17]
PAIRS = [6, 0, 3, 2]  # where the second segment begins; 0 is a text alone
CHOSEN = tf.constant([[20, 3], [1, 12], [4, 2], [9, 9]])
in_both_layouts = pytest.mark.parametrize("static", [False, True])


def make(window, full=(), way=None, **changes):
    sizes = {"attention_window": window, "full_attention_layers": full}
    config = tiny.config(max_position_embeddings=24, **sizes, **changes)
    model = Albert(config, dtype="float32", **({way: True} if way else {}))
    tiny.fill(model)
    return model


def make_batch(rows=slice(None)):
    place, pairs = np.arange(21), np.array(PAIRS)[:, np.newaxis]
    mask = place < np.array(LENGTHS)[:, np.newaxis]
    arrays = {
        "input_ids": np.random.default_rng(0).integers(0, 11, mask.shape),
        "input_mask": mask,
        "segment_ids": mask & (place >= pairs) & (pairs > 0),
    }
    return {name: tf.constant(x[rows].astype(np.int32)) for name, x in arrays.items()}


def select(outputs, batch):
    """The vectors at tokens of all blocks, and the pooled ones."""
    mask = batch["input_mask"]
    *blocks, last = outputs["encoder_outputs"]
    if last.shape[1] == mask.shape[1]:
        last = tf.boolean_mask(last, mask)
    return [*(tf.boolean_mask(x, mask) for x in blocks), last, outputs["pooled_output"]]


def run(model, batch, *, static, selected=slice(None), **options):
    """What is selected of the outputs, and the gradients of its sum of cubes."""
    weights = list(weights_by_name(model).values())
    with xla.trace_options(static_shapes=static, compile_pieces=False), tf.GradientTape() as tape:
        outputs = select(model(batch, skips_padding=True, **options), batch)[selected]
        loss = tf.add_n([tf.reduce_sum(x**3) for x in outputs])
    return outputs, tape.gradient(loss, weights, unconnected_gradients="zero")


def assert_alike(one, other):
    for ours, theirs in zip(one, other, strict=True):
        scale = max(1.0, *(np.abs(x).max(initial=0.0) for x in theirs))
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a / scale, b / scale, rtol=1e-5, atol=1e-5)


@in_both_layouts
@pytest.mark.parametrize("window", [1, 2, 3, 20])
@pytest.mark.parametrize("full", [(), (0, 2)])
def test_blocks_are_the_naive_mask(window, full, static):
    model, batch = make(window, full, num_hidden_layers=3), make_batch()
    weights = {name: x.numpy() for name, x in weights_by_name(model).items()}
    expected = reference_model.albert(weights, model.config, batch)
    with xla.trace_options(static_shapes=static):
        outputs = model(batch, skips_padding=True)
    assert_close(select(outputs, batch), select(expected, batch), 1e-4)


@in_both_layouts
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("positions", [None, CHOSEN])
def test_gradients_are_those_of_the_mask(monkeypatch, static, training, positions):
    model, batch = make(2, (1,)), make_batch()
    options = {"static": static, "training": training, "positions": positions}
    blocks = run(model, batch, **options)
    monkeypatch.setattr(windows, "SHORT_WINDOWS", 100)
    assert_alike(blocks, run(model, batch, **options))


@pytest.mark.parametrize("way", ["rematerialize", "layer_loop"])
def test_layers_may_be_computed_again(way):
    options = {"static": False, "training": True, "positions": CHOSEN, "selected": slice(-2, None)}
    options["seed"] = tf.constant([3, 4])
    dropout = {"attention_probs_dropout_prob": 0.5, "hidden_dropout_prob": 0.2}
    once, again = (run(make(2, way=x, **dropout), make_batch(), **options) for x in (None, way))
    assert_alike(again, once)


@in_both_layouts
@pytest.mark.parametrize("short", [0, 8])  # blocks, or one bias
def test_a_window_that_covers_all_is_full_attention(monkeypatch, static, short):
    monkeypatch.setattr(windows, "SHORT_WINDOWS", short)
    windowed, full, batch = make(20), make(0), make_batch()
    for positions in (None, CHOSEN):
        options = {"static": static, "training": True, "positions": positions}
        assert_alike(run(windowed, batch, **options), run(full, batch, **options))


@pytest.mark.usefixtures("as_users")
@pytest.mark.parametrize("window", [1, 2])
def test_a_graph_takes_sequences_of_any_length_and_xla_compiles_it(window):
    model = make(window, (1,), num_hidden_layers=5)
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in make_batch()}

    @tf.function(input_signature=[specs])
    def serve(batch):
        with xla.trace_options(loops_layers=True, custom_gradients=False):
            return model(batch, skips_padding=True)["sequence_output"]

    for rows, length in ((slice(None), 21), (slice(2, 3), 5), (slice(1, 2), 13), (slice(0), 21)):
        batch = {name: x[:, :length] for name, x in make_batch(rows).items()}
        expected = model(batch, skips_padding=True)["sequence_output"]
        assert_close(serve(batch), expected, 1e-5)
    compiled = tf.function(model, jit_compile=True)(make_batch())
    assert_close(select(compiled, make_batch()), select(model(make_batch()), make_batch()), 1e-5)


@in_both_layouts
def test_no_array_grows_with_the_square_of_the_length(static):
    config = tiny.config(attention_window=2, max_position_embeddings=1000)
    model = Albert(config, dtype="float32")
    ids = tf.zeros([1, 1000], tf.int32)

    def call(ids):
        with xla.trace_options(static_shapes=static):
            return model({"input_ids": ids}, training=True, skips_padding=True)

    graph = tf.function(call).get_concrete_function(ids).graph
    shapes = [x.shape for op in graph.get_operations() for x in op.outputs]
    sizes = [np.prod(shape) for shape in shapes if shape.is_fully_defined()]
    assert 1000 <= max(sizes) < 1000 * 100


def test_dropout_draws_for_blocks_and_first_tokens_by_themselves(monkeypatch):
    model, batch, sites = make(2, attention_probs_dropout_prob=0.5), make_batch(), []

    def call(seed):
        options = {"static": False, "training": True, "seed": tf.constant([seed, 0])}
        return run(model, batch, **options)

    one = call(1)
    assert np.abs(one[0][-1] - call(2)[0][-1]).max() > 0.01
    # A gradient computes attention again, with the same draws.
    monkeypatch.setattr(windows, "compute_again", lambda attend, qkv: attend(qkv))
    draw = ops.dropout

    def drop(x, rate, seed, site, **options):
        sites.append(site)
        return draw(x, rate, seed, site, **options)

    monkeypatch.setattr(ops, "dropout", drop)
    assert_alike(call(1), one)
    assert len({*sites}) == len(sites) == 13  # of three blocks four each, and of the embeddings
