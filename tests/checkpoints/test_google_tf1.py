"""Tests of reading and writing checkpoints of the published TensorFlow 1 code."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tiny_checkpoints
import tiny_run

from albert_tf.checkpoints import formats, google_tf1, model_checkpoint
from albert_tf.errors import UserError


def published(folder, changes=None, prefix="", extra=None):
    """A folder as Google publishes it; returns what it holds."""
    made = tiny_checkpoints.make(**(changes or {}))
    arrays = {prefix + name: array for name, array in made.weights.items()}
    tiny_checkpoints.save_v1(f"{folder}/model.ckpt-best", {**arrays, **(extra or {})})
    tiny_checkpoints.write_config(str(folder), made.config, cross_layer_sharing=None)
    return made


@pytest.mark.parametrize(
    ("prefix", "changes"),
    [("", tiny_checkpoints.GROUPED), ("module/", {}), ("module/", tiny_checkpoints.SQUARE)],
    ids=["groups", "module", "E=H"],
)
def test_a_published_checkpoint_is_read_to_the_bit(tmp_path, prefix, changes):
    name = f"{prefix}bert/pooler/dense/kernel"
    slot = np.zeros((8, 8), np.float32)
    extra = {
        f"{name}/adam_m": slot,
        f"{name}/adam_v": slot,
        f"{name}/lamb_m": slot,
        f"{name}/Adam_1": slot,
        "global_step": np.int64(125000),
    }
    made = published(tmp_path, changes, prefix, extra)
    checkpoint = formats.read(str(tmp_path))
    tiny_checkpoints.assert_same(checkpoint, made)
    assert checkpoint.skipped.keys() == extra.keys()
    assert set(checkpoint.skipped.values()) == {"the step", "the optimizer's"}


def test_a_written_checkpoint_is_read_by_tensorflow_and_by_us(tmp_path):
    vocabulary = tiny_run.write_vocabulary(str(tmp_path / "vocabulary"))
    made = tiny_checkpoints.make(vocabulary, **tiny_checkpoints.GROUPED)
    folder = tmp_path / "out"
    folder.mkdir()
    google_tf1.write(made, str(folder))
    reader = tf.train.load_checkpoint(f"{folder}/model.ckpt-best")
    assert reader.get_variable_to_shape_map().keys() == made.weights.keys()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(name, array.shape)
            for name, array in made.weights.items()
        }
        tf.compat.v1.train.Saver().restore(session, f"{folder}/model.ckpt-best")
        for name, array in session.run(variables).items():
            np.testing.assert_array_equal(array, made.weights[name])
    values = json.loads((folder / "albert_config.json").read_text())
    assert values["net_structure_type"] == 0  # the published run_pretraining asks for it
    assert values["num_hidden_groups"] == 2
    assert "cross_layer_sharing" not in values
    names = {path.name for path in folder.iterdir()}
    assert {"30k-clean.model", "30k-clean.vocab"} <= names
    tiny_checkpoints.assert_same(formats.read(str(folder)), made)


def test_renamed_layer_norms_get_their_names_back():
    block = "bert/encoder/transformer/group_0/inner_group_0/"
    expected = {
        "bert/embeddings/layer_normalization/gamma": "bert/embeddings/LayerNorm/gamma",
        f"{block}layer_normalization_1/beta": f"{block}LayerNorm/beta",
        f"{block}layer_normalization_2/beta": f"{block}LayerNorm_1/beta",
        "module/bert/pooler/dense/bias": "bert/pooler/dense/bias",
    }
    names, skipped = google_tf1.translate_keys(expected)
    assert names == expected
    assert skipped == {}


def test_a_layer_norm_too_many_is_unexpected():
    names, _ = google_tf1.translate_keys([f"x/layer_norm_{i}/beta" for i in (2, 10, 3)])
    assert list(names.values()) == ["x/LayerNorm/beta", "x/LayerNorm_2/beta", "x/LayerNorm_1/beta"]


def test_two_weights_of_one_name_are_refused(tmp_path):
    name = "bert/pooler/dense/bias"
    published(tmp_path, extra={f"module/{name}": np.ones(8, np.float32)})
    with pytest.raises(UserError, match=f"both {name} and module/{name} are {name}"):
        formats.read(str(tmp_path))


def test_a_hub_module_of_tensorflow_1(tmp_path):
    made = tiny_checkpoints.make()
    tiny_checkpoints.save_v1(f"{tmp_path}/variables/variables", made.weights)
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(UserError, match=r"assets/albert_config\.json\.$"):
        formats.read(str(tmp_path))
    tiny_checkpoints.write_config(f"{tmp_path}/assets", made.config, cross_layer_sharing=None)
    for path in (tmp_path, tmp_path / "saved_model.pb"):
        tiny_checkpoints.assert_same(formats.read(str(path)), made)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "swish"}, "hidden_act: 'swish' is not one of gelu, relu, tanh, linear"),
        ({"num_attention_heads": 3}, "hidden_size 8 is not a multiple of num_attention_heads 3"),
        ({"vocab_size": 60}, "vocab_size 60, the table of words 61 rows"),
        ({"ln_type": "preln"}, "ln_type is not 'postln'"),
        ({"typo": 1}, "unknown key 'typo'"),
    ],
)
def test_a_wrong_config_is_named(tmp_path, changes, message):
    made = published(tmp_path)
    tiny_checkpoints.write_config(str(tmp_path), made.config, **changes)
    with pytest.raises(UserError, match=message) as caught:
        formats.read(str(tmp_path))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_dead_keys_are_ignored(tmp_path):
    made = published(tmp_path)
    dead = {"ln_type": "postln", "directionality": "bidi", "pooler_fc_size": 768, "gap_size": 0}
    tiny_checkpoints.write_config(str(tmp_path), made.config, **dead)
    assert formats.read(str(tmp_path)).config == made.config


def test_a_checkpoint_needs_its_config(tmp_path):
    published(tmp_path)
    (tmp_path / "albert_config.json").unlink()
    with pytest.raises(UserError, match=r"has no albert_config\.json: nothing else says how many"):
        formats.read(str(tmp_path))
    (tmp_path / "albert_config.json").write_text("[1]")
    with pytest.raises(UserError, match="does not hold a JSON object"):
        formats.read(str(tmp_path))


def test_keys_that_a_config_lacks_have_the_published_defaults(tmp_path):
    (tmp_path / "albert_config.json").write_text('{"vocab_size": 30000}')
    config = model_checkpoint.read_google_config(str(tmp_path / "albert_config.json"), "x")
    sizes = (config.hidden_size, config.num_attention_heads, config.intermediate_size)
    assert sizes == (4096, 64, 16384)


def test_numbers_of_another_type_are_refused(tmp_path):
    published(tmp_path, extra={"quantised": np.int8(1)})
    with pytest.raises(UserError, match="quantised is int8, not float32"):
        formats.read(str(tmp_path))


def test_a_vocabulary_of_another_size_is_refused(tmp_path):
    published(tmp_path, {"vocab_size": 62})
    vocabulary = tmp_path / "vocabulary"
    tiny_run.write_vocabulary(str(vocabulary))
    (vocabulary / "spiece.model").rename(tmp_path / "30k-clean.model")
    with pytest.raises(UserError, match="the vocabulary has 61 pieces, the model 62"):
        formats.read(str(tmp_path))
    (tmp_path / "30k-clean.model").unlink()
    pieces = ["[PAD]", *(f"x{i}" for i in range(98)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab_chinese.txt").write_text("\n".join(pieces) + "\n")
    with pytest.raises(UserError, match="the vocabulary has 103 pieces, the model 62"):
        formats.read(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cross_layer_sharing": "attention"}, "cross_layer_sharing 'attention' is this project's"),
        ({"num_hidden_layers": 22, "num_hidden_groups": 22}, "22 groups in 22 layers are rounded"),
        ({"hidden_act": "gelu_erf"}, "'gelu_erf', which the published code lacks"),
    ],
)
def test_a_model_that_the_published_code_cannot_run_is_not_written(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        google_tf1.write(tiny_checkpoints.make(**changes), str(tmp_path))
    assert list(tmp_path.iterdir()) == []
