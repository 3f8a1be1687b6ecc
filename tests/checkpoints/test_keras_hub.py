"""Tests of presets of Keras Hub by the layout of their files, without Keras Hub."""

import json

import h5py
import numpy as np
import pytest
import tiny_checkpoints

from albert_tf.checkpoints import formats, keras_hub
from albert_tf.errors import UserError

WEIGHTS = "model.weights.h5"


def written(folder, vocabulary=None, model="bare", **changes):
    """A preset of a model without heads, and the model."""
    folder.mkdir(exist_ok=True)
    made = tiny_checkpoints.make(vocabulary, model=model, **changes)
    formats.get_writer("keras_hub")(made, str(folder))
    return made


def change_config(folder, **changes):
    path = folder / "config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "config": {**content["config"], **changes}}))


def test_a_preset_has_the_files_of_keras_hub(tmp_path, vocabulary):
    written(tmp_path, vocabulary)
    names = {"config.json", "metadata.json", "model.weights.h5", "tokenizer.json", "assets"}
    names.add("preprocessor.json")
    assert {path.name for path in tmp_path.iterdir()} == names
    assert (tmp_path / "assets" / "tokenizer" / "vocabulary.spm").exists()


def test_arrays_have_the_shapes_and_places_of_keras_hub(tmp_path):
    made = written(tmp_path, **tiny_checkpoints.GROUPED)
    block = "bert/encoder/transformer/group_1/inner_group_2/"
    theirs = "layers/transformer_encoder_5/"
    with h5py.File(tmp_path / WEIGHTS) as file:
        for name, other, shape in [
            ("attention_1/self/key/kernel", "_self_attention_layer/key_dense/vars/0", (8, 2, 4)),
            ("attention_1/self/query/bias", "_self_attention_layer/query_dense/vars/1", (2, 4)),
            (
                "attention_1/output/dense/kernel",
                "_self_attention_layer/output_dense/vars/0",
                (2, 4, 8),
            ),
            ("attention_1/output/dense/bias", "_self_attention_layer/output_dense/vars/1", (8,)),
            ("LayerNorm_1/gamma", "_feedforward_layer_norm/vars/0", (8,)),
        ]:
            expected = made.weights[block + name].reshape(shape)
            np.testing.assert_array_equal(file[theirs + other][()], expected)
        words = file["layers/reversible_embedding/vars/0"][()]
    np.testing.assert_array_equal(words, made.weights["bert/embeddings/word_embeddings"])


def test_the_config_has_the_fields_of_keras_hub(tmp_path):
    written(tmp_path, **tiny_checkpoints.GROUPED, hidden_dropout_prob=0.25)
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["registered_name"] == "keras_hub>AlbertBackbone"
    expected = {
        "vocabulary_size": 61,
        "num_layers": 4,
        "num_groups": 2,
        "num_inner_repetitions": 3,
        "embedding_dim": 6,
        "hidden_dim": 8,
        "intermediate_dim": 10,
        "dropout": 0.25,
        "max_sequence_length": 16,
        "num_segments": 2,
    }
    assert expected.items() <= content["config"].items()


def test_older_presets_have_another_name_of_the_layers(tmp_path):
    made = written(tmp_path)
    with h5py.File(tmp_path / WEIGHTS, "a") as file:
        file.move("layers", "_layer_checkpoint_dependencies")
    tiny_checkpoints.assert_same(formats.read(str(tmp_path)), made)


def test_heads_have_no_place_in_a_backbone(tmp_path):
    made = tiny_checkpoints.make()
    heads = [name for name in made.weights if name.startswith("cls/")]
    assert made.weights.keys() - keras_hub.map_names(made.config).keys() == set(heads)
    formats.get_writer("albert_tf")(made, str(tmp_path))
    source, target = str(tmp_path), tmp_path / "preset"
    with pytest.raises(UserError, match=r"keras_hub has no place for 7 weights \(cls/pred"):
        formats.convert(source, str(target), to_format="keras_hub")
    assert not target.exists()
    formats.convert(source, str(target), to_format="keras_hub", allow_partial="cls/.*")
    assert formats.read(str(target)).weights.keys() == made.weights.keys() - heads


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "relu"}, "hidden_act is 'relu'; Keras Hub's is 'gelu'"),
        ({"hidden_act": "gelu_erf"}, "hidden_act is 'gelu_erf'; Keras Hub's is 'gelu'"),
        ({"model": "masked_lm"}, "has no pooler, and Keras Hub would make one up"),
        ({"num_hidden_layers": 5, "num_hidden_groups": 2}, "2 groups in 5 layers are rounded"),
    ],
)
def test_models_that_keras_hub_lacks_are_refused(tmp_path, changes, message):
    with pytest.raises(UserError, match=message) as caught:
        written(tmp_path, **changes)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_an_error_that_names_it(tmp_path):
    written(tmp_path)
    path = tmp_path / WEIGHTS
    content = path.read_bytes()
    for damaged in (b"", b"text", content[:-200], content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"model\.weights\.h5: a damaged file") as caught:
            formats.read(str(tmp_path))
        assert "\n" not in str(caught.value)


def test_arrays_that_are_missing_are_named(tmp_path):
    written(tmp_path)
    with h5py.File(tmp_path / WEIGHTS, "a") as file:
        del file["layers/dense_1"]
    with pytest.raises(UserError, match=r"2 missing: bert/pooler/dense/bias"):
        formats.convert(str(tmp_path), str(tmp_path / "out"))


def test_other_presets_are_refused(tmp_path):
    written(tmp_path)
    change_config(tmp_path, hidden_dim="8")
    with pytest.raises(UserError, match="hidden_size"):
        formats.read(str(tmp_path))
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    del content["config"]["num_heads"]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="the config has no num_heads: it is damaged"):
        formats.read(str(tmp_path))
    path.write_text(json.dumps({**content, "class_name": "BertBackbone"}))
    with pytest.raises(UserError, match="a preset of 'BertBackbone', not of 'AlbertBackbone'"):
        formats.read(str(tmp_path))


def test_a_word_piece_vocabulary_is_left_out(tmp_path, capsys):
    made = tiny_checkpoints.make(model="bare")
    object.__setattr__(made, "vocabulary", {"vocab.txt": b"[PAD]\n"})
    keras_hub.write(made, str(tmp_path))
    assert "has no WordPiece: the vocabulary is left out" in capsys.readouterr().err
    assert not (tmp_path / "tokenizer.json").exists()
