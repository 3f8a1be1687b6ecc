"""SavedModels of TensorFlow 2 as TF Hub has them, with the names of tensorflow/models."""

import json

import pytest
import tensorflow as tf
import tiny_checkpoints
import tiny_run

from albert_tf.checkpoints import formats, model_checkpoint, tfhub_tf2
from albert_tf.errors import UserError


def with_heads(name, array, heads):
    """As Keras' attention has it: [D, N, H], [N, H], and [N, H, D] for the output."""
    size = array.shape[0] // heads
    if "attention_1/self" in name:
        return array.reshape(*array.shape[:-1], heads, array.shape[-1] // heads)
    if name.endswith("attention_1/output/dense/kernel"):
        return array.reshape(heads, size, array.shape[1])
    return array


def save(
    folder,
    made,
    vocabulary,
    *,
    has_layers=True,
    root="bert_pretrainer/",
    lower_case=True,
    again="",
):
    """A module like `albert_en_base`: without a config and without the sentence head."""
    theirs = {ours: name for name, ours in tfhub_tf2.NAMES.items()}
    module = tf.train.Checkpoint()
    module.variables = [
        tf.Variable(
            with_heads(name, array, made.config.num_attention_heads),
            name=(root if name.startswith("cls/") else "") + theirs[name],
        )
        for name, array in made.weights.items()
        if name in theirs
    ]
    if again:
        module.again = tf.Variable([1.0], name=again)
    module.do_lower_case = tf.Variable(lower_case, trainable=False)
    module.sp_model_file = tf.saved_model.Asset(f"{vocabulary}/30k-clean.model")

    @tf.function(input_signature=[tf.TensorSpec([None, 8])])
    def call(x):
        outputs = [x] * made.config.num_hidden_layers
        lists = {"encoder_outputs": outputs} if has_layers else {}
        return {"sequence_output": x * module.variables[0][0, 0], **lists}

    module.__call__ = call
    tf.saved_model.save(module, str(folder))


@pytest.fixture
def vocabulary(tmp_path):
    folder = tmp_path / "vocabulary"
    tiny_run.write_vocabulary(str(folder))
    (folder / "30k-clean.model").write_bytes((folder / "spiece.model").read_bytes())
    return folder


def test_a_module_is_read_to_the_bit(tmp_path, vocabulary):
    made = tiny_checkpoints.make(num_hidden_layers=5)
    save(tmp_path / "module", made, vocabulary)
    checkpoint = formats.read(str(tmp_path / "module"))
    assert checkpoint.config == made.config
    weights = {n: a for n, a in made.weights.items() if "seq_relationship" not in n}
    assert len(weights) == 30
    assert checkpoint.vocabulary == {"spiece.model": (vocabulary / "spiece.model").read_bytes()}
    assert checkpoint.skipped.keys() == {"do_lower_case", "save_counter"}
    tiny_checkpoints.assert_same(
        checkpoint,
        model_checkpoint.ModelCheckpoint(
            source="", config=made.config, weights=weights, vocabulary=checkpoint.vocabulary
        ),
    )


def test_the_case_of_letters_is_read(tmp_path, vocabulary):
    save(tmp_path / "module", tiny_checkpoints.make(), vocabulary, lower_case=False)
    checkpoint = formats.read(str(tmp_path / "module"))
    assert json.loads(checkpoint.vocabulary["cleaning.json"]) == {"lower_case": False}
    assert not model_checkpoint.load_tokenizer(checkpoint).config.lower_case


@pytest.mark.parametrize(
    "again", ["other/cls/predictions/output_bias/bias", "bert/embeddings/word_embeddings"]
)
def test_two_variables_of_one_name_are_refused(tmp_path, vocabulary, again):
    save(tmp_path / "module", tiny_checkpoints.make(), vocabulary, again=again)
    with pytest.raises(UserError, match=r"both .* and .* are \S+/(word_embeddings|output_bias)\."):
        formats.read(str(tmp_path / "module"))


def test_equal_sizes_have_no_mapping(tmp_path, vocabulary):
    made = tiny_checkpoints.make(**tiny_checkpoints.SQUARE)
    save(tmp_path / "module", made, vocabulary, root="")
    checkpoint = formats.read(str(tmp_path / "module"))
    assert len(checkpoint.weights) == 28


def test_a_module_needs_no_sentence_head_which_is_noted(tmp_path, capsys, vocabulary):
    save(tmp_path / "module", tiny_checkpoints.make(), vocabulary)
    formats.convert(str(tmp_path / "module"), str(tmp_path / "out"))
    assert "no sentence head" in capsys.readouterr().err
    assert len(formats.read(str(tmp_path / "out")).weights) == 30


def test_a_config_in_it_must_agree(tmp_path, vocabulary):
    made = tiny_checkpoints.make()
    save(tmp_path / "module", made, vocabulary, has_layers=False)
    with pytest.raises(UserError, match=r"does not say how many layers it has\. Put albert_"):
        formats.read(str(tmp_path / "module"))
    assets = str(tmp_path / "module" / "assets")
    tiny_checkpoints.write_config(assets, made.config, cross_layer_sharing=None)
    assert formats.read(str(tmp_path / "module")).config == made.config
    tiny_checkpoints.write_config(assets, made.config, num_attention_heads=4)
    with pytest.raises(UserError, match="num_attention_heads 4, but the variables say 2"):
        formats.read(str(tmp_path / "module"))


def test_other_saved_models_are_refused(tmp_path, vocabulary):
    module = tf.train.Checkpoint(v=tf.Variable(1.0))
    tf.saved_model.save(module, str(tmp_path / "module"))
    with pytest.raises(UserError, match="is a SavedModel, but not of an ALBERT encoder"):
        formats.read(str(tmp_path / "module"))
    made = tiny_checkpoints.make()
    save(tmp_path / "other", made, vocabulary)
    (tmp_path / "other" / "saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(UserError, match=r"saved_model\.pb is damaged"):
        formats.read(str(tmp_path / "other"))


# Names of the variables of an ALBERT of tensorflow/models, written down here a second time.
PUBLISHED = """
    word_embeddings/embeddings position_embedding/embeddings type_embeddings/embeddings
    embeddings/layer_norm/gamma embeddings/layer_norm/beta
    embedding_projection/kernel embedding_projection/bias
    transformer/self_attention/query/kernel transformer/self_attention/query/bias
    transformer/self_attention/key/kernel transformer/self_attention/key/bias
    transformer/self_attention/value/kernel transformer/self_attention/value/bias
    transformer/self_attention/attention_output/kernel
    transformer/self_attention/attention_output/bias
    transformer/self_attention_layer_norm/gamma transformer/self_attention_layer_norm/beta
    transformer/intermediate/kernel transformer/intermediate/bias
    transformer/output/kernel transformer/output/bias
    transformer/output_layer_norm/gamma transformer/output_layer_norm/beta
    pooler_transform/kernel pooler_transform/bias
    cls/predictions/transform/dense/kernel cls/predictions/transform/dense/bias
    cls/predictions/transform/LayerNorm/gamma cls/predictions/transform/LayerNorm/beta
    cls/predictions/output_bias/bias
"""


def test_the_names_are_the_published_ones(tmp_path, vocabulary):
    made = tiny_checkpoints.make()
    save(tmp_path / "module", made, vocabulary, root="")
    names = tfhub_tf2.map_variables(f"{tmp_path}/module/variables/variables").values()
    assert set(names) - {"do_lower_case", "save_counter"} == set(PUBLISHED.split())
