"""A larger model begins where a smaller one ended."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tiny
import tiny_run
from refusals import one_line

from albert_tf.checkpoints import matching
from albert_tf.checkpoints.model_checkpoint import ModelCheckpoint
from albert_tf.model.albert_model import AlbertForPretraining
from albert_tf.model.weight_names import weights_by_name
from albert_tf.train import growth

POSITIONS = "bert/embeddings/position_embeddings"
WIDER = {"hidden_size": 24, "num_attention_heads": 6, "intermediate_size": 30}


def make(**changes):
    model = AlbertForPretraining(tiny_run.albert(**changes))
    tiny.fill(model)
    return model


def grow_checkpoint(model, config):
    weights = {name: np.array(x) for name, x in weights_by_name(model).items()}
    small = ModelCheckpoint(source="small", config=model.config, weights=weights)
    return growth.grow_checkpoint(small, tiny_run.settings(albert=config))


def grow(model, **changes):
    config = dataclasses.replace(model.config, **changes)
    larger, checkpoint = AlbertForPretraining(config), grow_checkpoint(model, config)
    matching.assign_weights(checkpoint.weights, larger, checkpoint.source)
    return larger


def batch():
    return {name: tf.constant(x) for name, x in tiny_run.examples(4).items()}


@pytest.mark.parametrize(
    ("sharing", "changes"),
    [("all", WIDER), ("attention", {"intermediate_size": 20}), ("none", WIDER)],
)
def test_a_wider_model_computes_the_same(sharing, changes):
    small = make(num_hidden_layers=2, cross_layer_sharing=sharing)
    wide = grow(small, **changes)
    expected, outputs = small(batch()), wide(batch())
    for name, value in expected.items():
        scale = float(tf.reduce_max(tf.abs(value)))
        np.testing.assert_allclose(outputs[name] / scale, value / scale, atol=1e-5, err_msg=name)


def test_copies_of_a_unit_have_gradients_of_their_own():
    wide = grow(make(), **WIDER)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(wide(batch())["masked_lm_logits"] ** 2)
    kernel = weights_by_name(wide)["bert/encoder/embedding_hidden_mapping_in/kernel"]
    one, other = np.array(tape.gradient(loss, kernel)).reshape(6, 3, 8).swapaxes(0, 1)[:2]
    assert np.abs(one - other).max() > 0.01 * np.abs(one).max()


def test_a_deeper_model_repeats_its_layers():
    small = make(num_hidden_layers=2, cross_layer_sharing="attention")
    deep = {k: np.array(x) for k, x in weights_by_name(grow(small, num_hidden_layers=5)).items()}
    old, kernel = weights_by_name(small), "{}/inner_group_0/ffn_1/intermediate/dense/kernel"
    group = "bert/encoder/transformer/group_{}"
    for new, before in enumerate((0, 0, 0, 1, 1)):
        name, source = (kernel.format(group.format(n)) for n in (new, before))
        np.testing.assert_array_equal(deep[name], old[source])
    shared = [name for name in deep if "attention_1" in name]
    assert shared and all("group_0" in name for name in shared)


def test_a_longer_model_has_more_positions():
    small = make()
    before = weights_by_name(small)[POSITIONS].numpy()
    after = weights_by_name(grow(small, max_position_embeddings=46))[POSITIONS].numpy()
    # [CLS] is not copied.
    np.testing.assert_array_equal(after, np.concatenate([before, before[1:], before[1:]]))
    for kind, ratio in (("adam_m", 16 / 46), ("adam_v", (16 / 46) ** 2)):
        arrays = {POSITIONS: before}
        moments = growth.grow_arrays(arrays, {POSITIONS: (46, 6)}, kind)
        np.testing.assert_allclose(moments[POSITIONS], after * ratio, rtol=1e-5)


def test_moments_grow_as_gradients_do():
    """Each of two copies of a unit has half of its gradient."""
    kernel, bias = "bert/pooler/dense/kernel", "bert/pooler/dense/bias"
    moments = {kernel: np.array([[6.0, 12, 18], [24, 30, 36]]), bias: np.array([6.0, 12, 18])}
    for kind, share in (("adam_m", 1 / 2), ("adam_v", 1 / 4)):
        grown = growth.grow_arrays(moments, {kernel: (4, 6), bias: (6,)}, kind)
        np.testing.assert_array_equal(grown[kernel], np.tile(moments[kernel] * share, (2, 2)))
        np.testing.assert_array_equal(grown[bias], np.tile(moments[bias] * share, 2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 12, "num_attention_heads": 3}, "is not a multiple of it"),
        ({"hidden_size": 16}, "heads of small have the size 4, heads of the config 8"),
        ({"num_hidden_layers": 1}, "has 2 layers, the config 1. A model cannot shrink"),
        ({"vocab_size": 70}, "has vocab_size=61"),
        ({"max_position_embeddings": 15}, "has 16 positions, the config 15. A model cannot shrink"),
    ],
)
def test_what_is_not_larger_is_refused(changes, message):
    small = make(num_hidden_layers=2)
    with one_line(message):
        grow_checkpoint(small, dataclasses.replace(small.config, **changes))


@pytest.mark.usefixtures("eagerly")
def test_a_run_grows_from_another_and_its_moments_too(data, trained, tmp_path, capsys):
    albert = tiny_run.albert(**WIDER, num_hidden_layers=3, max_position_embeddings=20)
    wide = tiny_run.settings(albert=albert, num_train_steps=2)
    first = dataclasses.replace(wide, stop_at_step=1)  # its learning rate is 0
    tiny_run.run(data, tmp_path / "wide", first, evaluate=True, grow_from=trained)
    log = capsys.readouterr().err
    assert f"{trained}/model.ckpt-1, grown" in log
    grown = int(log.split(" moments grown as well")[0].split()[-3])
    tensors = tiny_run.all_tensors(tmp_path / "wide")
    slots = [name for name in tensors if name.startswith("slots/")]
    assert grown == len(slots) > 0
    assert min(np.abs(tensors[name]).max() for name in slots if "adam_v" in name) > 0
    tiny_run.run(data, tmp_path / "wide", wide, evaluate=True)
    assert tiny_run.metrics(tmp_path / "wide")[-1]["step"] == 2
