"""Tests of reading and writing checkpoints of the published TensorFlow 1 code."""

import json
import string
import zipfile

import numpy as np
import pytest
import tensorflow as tf
import tiny_checkpoints
from refusals import one_line

from albert_tf.checkpoints import formats, google_tf1, model_checkpoint

BERT = {**tiny_checkpoints.SQUARE, "cross_layer_sharing": "none", "num_hidden_layers": 3}
# Google's names of the layers in a BERT's block, as in its archives, and ours.
BERT_LAYERS = {
    "attention/self/query": "attention_1/self/query",
    "attention/self/key": "attention_1/self/key",
    "attention/self/value": "attention_1/self/value",
    "attention/output/dense": "attention_1/output/dense",
    "attention/output/LayerNorm": "LayerNorm",
    "intermediate/dense": "ffn_1/intermediate/dense",
    "output/dense": "ffn_1/intermediate/output/dense",
    "output/LayerNorm": "LayerNorm_1",
}
# Of the multilingual and Chinese ones.
DEAD = ("directionality", "pooler_type", "pooler_fc_size", "pooler_num_attention_heads")


def published(folder, changes=None, prefix="", extra=None):
    """A folder as Google publishes it; returns what it holds."""
    made = tiny_checkpoints.make(**(changes or {}))
    arrays = {prefix + name: array for name, array in made.weights.items()}
    tiny_checkpoints.save_v1(f"{folder}/model.ckpt-best", {**arrays, **(extra or {})})
    tiny_checkpoints.write_config(str(folder), made.config, cross_layer_sharing=None)
    return made


def published_bert(folder, model=None, **changes):
    """The folder of a BERT as Google publishes it; returns what it holds."""
    made = tiny_checkpoints.make(model=model, **BERT)
    names = {
        f"bert/encoder/transformer/group_{i}/inner_group_0/{b}": f"bert/encoder/layer_{i}/{a}"
        for i in range(3)
        for a, b in BERT_LAYERS.items()
    }
    split = {name: name.rpartition("/") for name in made.weights}
    arrays = {f"{names.get(a, a)}{b}{c}": made.weights[name] for name, (a, b, c) in split.items()}
    tiny_checkpoints.save_v1(f"{folder}/bert_model.ckpt", arrays)
    unknown = ("embedding_size", "num_hidden_groups", "inner_group_num", "cross_layer_sharing")
    own = dict.fromkeys((*unknown, "classifier_dropout_prob"))
    values = {"name": "bert_config.json", **own, **changes}
    tiny_checkpoints.write_config(str(folder), made.config, **values)
    return made


@pytest.mark.parametrize("model", [None, "classifier", "squad1"])
def test_a_published_bert_is_read_and_written_to_the_bit(tmp_path, model):
    made = published_bert(tmp_path / "in", model, **dict.fromkeys(DEAD, 3))
    with zipfile.ZipFile(tmp_path / "uncased_L-3_H-8_A-2.zip", "w") as archive:
        for path in (tmp_path / "in").iterdir():
            archive.write(path, f"uncased_L-3_H-8_A-2/{path.name}")
    for path in ("in", "in/bert_model.ckpt", "uncased_L-3_H-8_A-2.zip"):
        checkpoint = formats.read(str(tmp_path / path))
        tiny_checkpoints.assert_same(checkpoint, made)
    formats.convert(str(tmp_path / "in"), str(tmp_path / "out"), to_format="google")
    theirs = [tf.train.load_checkpoint(f"{tmp_path}/{x}/bert_model.ckpt") for x in ("in", "out")]
    shapes = [reader.get_variable_to_shape_map() for reader in theirs]
    assert shapes[0] == shapes[1]
    tiny_checkpoints.assert_same(formats.read(str(tmp_path / "out")), made)


@pytest.mark.parametrize(("pieces", "is_cased"), [("Ab c", False), (string.ascii_uppercase, True)])
def test_a_bert_keeps_case_if_its_vocabulary_has_capitals(tmp_path, pieces, is_cased):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<S>", "<T>"]
    rows = [*special, *pieces, *(f"x{i}" for i in range(61))][:61]
    published_bert(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(rows) + "\n")
    tokenizer = model_checkpoint.load_tokenizer(formats.read(str(tmp_path)))
    assert tokenizer.config.lower_case != is_cased


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "albert_config.json"}, "has no bert_config.json, which says how many"),
        ({"hidden_act": "swish"}, "hidden_act: 'swish' is not one of gelu"),
        ({"embedding_size": 6}, "embedding_size is 6; here it is always 8"),
        (
            {"num_hidden_layers": 2},
            r"does not fit the model \(16 unexpected: bert/encoder/layer_2/",
        ),
    ],
)
def test_a_bert_that_is_not_read(tmp_path, changes, message):
    published_bert(tmp_path / "in", **changes)
    with one_line(message):
        formats.convert(str(tmp_path / "in"), str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("prefix", "changes"),
    [("", tiny_checkpoints.GROUPED), ("module/", tiny_checkpoints.SQUARE)],
    ids=["groups", "module, E=H"],
)
def test_a_published_checkpoint_is_read_to_the_bit(tmp_path, prefix, changes):
    name = f"{prefix}bert/pooler/dense/kernel"
    slots = ("adam_m", "adam_v", "lamb_m", "Adam_1")
    extra = {f"{name}/{slot}": np.zeros((8, 8), np.float32) for slot in slots}
    extra["global_step"] = np.int64(125000)
    made = published(tmp_path, changes, prefix, extra)
    dead = {"ln_type": "postln", "directionality": "bidi", "pooler_fc_size": 768, "gap_size": 0}
    tiny_checkpoints.write_config(str(tmp_path), made.config, cross_layer_sharing=None, **dead)
    checkpoint = formats.read(str(tmp_path))
    tiny_checkpoints.assert_same(checkpoint, made)
    assert checkpoint.skipped.keys() == extra.keys()
    assert set(checkpoint.skipped.values()) == {"the step", "the optimizer's"}


def test_a_written_checkpoint_is_read_by_tensorflow_and_by_us(tmp_path, vocabulary):
    made = tiny_checkpoints.make(vocabulary, **tiny_checkpoints.GROUPED)
    google_tf1.write(made, str(tmp_path))
    reader = tf.train.load_checkpoint(f"{tmp_path}/model.ckpt-best")
    assert reader.get_variable_to_shape_map().keys() == made.weights.keys()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        get = tf.compat.v1.get_variable
        variables = {name: get(name, array.shape) for name, array in made.weights.items()}
        tf.compat.v1.train.Saver().restore(session, f"{tmp_path}/model.ckpt-best")
        for name, array in session.run(variables).items():
            np.testing.assert_array_equal(array, made.weights[name])
    values = json.loads((tmp_path / "albert_config.json").read_text())
    assert values["net_structure_type"] == 0  # the published run_pretraining asks for it
    assert values["num_hidden_groups"] == 2
    assert "cross_layer_sharing" not in values
    assert {"30k-clean.model", "30k-clean.vocab"} <= {path.name for path in tmp_path.iterdir()}
    tiny_checkpoints.assert_same(formats.read(str(tmp_path)), made)


def test_renamed_layer_norms_get_their_names_back():
    block = "bert/encoder/transformer/group_0/inner_group_0/"
    expected = {
        "bert/embeddings/layer_normalization/gamma": "bert/embeddings/LayerNorm/gamma",
        f"{block}layer_normalization_1/beta": f"{block}LayerNorm/beta",
        f"{block}layer_normalization_2/beta": f"{block}LayerNorm_1/beta",
        "module/bert/pooler/dense/bias": "bert/pooler/dense/bias",
        "x/layer_norm_2/beta": "x/LayerNorm/beta",
        "x/layer_norm_10/beta": "x/LayerNorm_2/beta",  # one too many is unexpected
        "x/layer_norm_3/beta": "x/LayerNorm_1/beta",
    }
    assert google_tf1.translate_keys(expected) == (expected, {})


TWICE = "module/bert/pooler/dense/bias"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (TWICE, np.ones(8, np.float32), f"both bert/pooler/dense/bias and {TWICE} are bert/pooler"),
        ("quantised", np.int8(1), "quantised is int8, not float32"),
    ],
)
def test_other_tensors_are_refused(tmp_path, name, value, message):
    published(tmp_path, extra={name: value})
    with one_line(message):
        formats.read(str(tmp_path))


def test_a_hub_module_of_tensorflow_1(tmp_path):
    made = tiny_checkpoints.make()
    tiny_checkpoints.save_v1(f"{tmp_path}/variables/variables", made.weights)
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with one_line(r"has no albert_config\.json, which .* Put .*/assets/albert_config\.json\.$"):
        formats.read(str(tmp_path))
    tiny_checkpoints.write_config(f"{tmp_path}/assets", made.config, cross_layer_sharing=None)
    for path in (tmp_path, tmp_path / "saved_model.pb"):
        tiny_checkpoints.assert_same(formats.read(str(path)), made)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "swish"}, "hidden_act: 'swish' is not one of gelu, relu, tanh, linear"),
        ({"ln_type": "preln"}, "ln_type is 'preln'; here it is always 'postln'"),
        ({"typo": 1}, "unknown key 'typo'"),
    ],
)
def test_a_wrong_config_is_named(changes, message):
    with one_line(f"^x: {message}"):
        google_tf1.to_config({"hidden_size": 8, "num_attention_heads": 2, **changes}, "x")


def test_keys_that_a_config_lacks_have_the_published_defaults():
    config = google_tf1.to_config({"vocab_size": 30000}, "x")
    sizes = (config.hidden_size, config.num_attention_heads, config.intermediate_size)
    assert sizes == (4096, 64, 16384)


def test_a_vocabulary_or_a_table_of_another_size_is_refused(tmp_path):
    made = published(tmp_path, {"vocab_size": 62})
    pieces = ["[PAD]", *(f"x{i}" for i in range(98)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab_chinese.txt").write_text("\n".join(pieces) + "\n")
    with one_line("the vocabulary has 103 tokens, the model 62"):
        formats.read(str(tmp_path))
    tiny_checkpoints.write_config(str(tmp_path), made.config, vocab_size=60)
    with one_line("vocab_size 60, the table of words 62 rows"):
        formats.read(str(tmp_path))
