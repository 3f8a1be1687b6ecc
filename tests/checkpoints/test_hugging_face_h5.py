"""Tests of reading the weights of transformers 4's TensorFlow classes."""

import json
import random

import h5py
import numpy as np
import pytest
import safetensors.numpy
import tiny_checkpoints
from refusals import one_line

from albert_tf.checkpoints import formats, hugging_face_h5
from albert_tf.errors import UserError

BERT = {**tiny_checkpoints.SQUARE, "cross_layer_sharing": "none", "num_hidden_layers": 3}
KINDS = {"albert": tiny_checkpoints.GROUPED, "bert": BERT}
# {what a name of PyTorch has: what the name of the variable has}
NAMES = {
    "cls.predictions.": "mlm___cls.predictions.",
    "cls.seq": "nsp___cls.seq",
    "layer.": "layer_._",
    "albert_layer_groups.": "albert_layer_groups_._",
    "albert_layers.": "albert_layers_._",
    "LayerNorm.weight": "LayerNorm.gamma",
    "LayerNorm.bias": "LayerNorm.beta",
    "full_layer_layer_norm.weight": "full_layer_layer_norm.gamma",
    "full_layer_layer_norm.bias": "full_layer_layer_norm.beta",
    "position_embeddings.weight": "position_embeddings.embeddings",
    "token_type_embeddings.weight": "token_type_embeddings.embeddings",
}


def to_variables(arrays):
    """Returns {name of a variable, without the model's: array} for {name of PyTorch: array}."""
    variables = {}
    for name, array in arrays.items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        if name.endswith(".weight") and "word_embeddings" not in name:
            name, array = name.replace(".weight", ".kernel"), array.T
        variables[name.replace(".", "/") + ":0"] = array
    return {name.replace("_/_", "_._"): array for name, array in variables.items()}


def save(folder, made):
    """Writes a folder as a TensorFlow class of transformers 4 does; returns the variables."""
    tiny_checkpoints.write(folder, made, "hugging_face")
    path = folder / "model.safetensors"
    variables = to_variables(safetensors.numpy.load_file(path))
    path.unlink()
    with h5py.File(folder / "tf_model.h5", "w") as file:
        for name, array in variables.items():
            file[f"{name.split('/')[0]}/tf_bert_model_1/{name}"] = array
            if "predictions/bias" in name:  # the head has copies, and TFAlbert a second bias
                file[f"{name.split('/')[0]}/tf_bert_model_1/bert/embeddings/x:0"] = array + 1
                if name.startswith("predictions"):
                    file["predictions/tf_bert_model_1/predictions/decoder/bias:0"] = array
                    file["predictions/tf_bert_model_1/predictions/bias:0"][:] = 9
    return variables


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", [None, *sorted(tiny_checkpoints.MODELS.keys() - {"squad2"})])
def test_a_tensorflow_model_of_transformers_4_is_read_to_the_bit(tmp_path, kind, model):
    made = tiny_checkpoints.make(model=model, **KINDS[kind])
    variables = save(tmp_path, made)
    for path in (tmp_path, tmp_path / "tf_model.h5"):
        tiny_checkpoints.assert_same(formats.read(str(path)), made)
    (tmp_path / "tf_model.h5").unlink()
    names = {name: np.ascontiguousarray(array) for name, array in variables.items()}
    safetensors.numpy.save_file(names, tmp_path / "model.safetensors", {"format": "tf"})
    tiny_checkpoints.assert_same(formats.read(str(tmp_path)), made)


# Of TFBertForPreTraining and TFAlbertForMaskedLM of transformers 4.57.
REAL = [
    "bert/embeddings/position_embeddings/embeddings:0",
    "bert/embeddings/word_embeddings/weight:0",
    "bert/encoder/layer_._1/attention/output/LayerNorm/beta:0",
    "bert/encoder/layer_._1/attention/self/query/kernel:0",
    "bert/pooler/dense/kernel:0",
    "mlm___cls/predictions/bias:0",
    "mlm___cls/predictions/transform/dense/kernel:0",
    "nsp___cls/seq_relationship/kernel:0",
    "albert/encoder/albert_layer_groups_._0/albert_layers_._0/attention/dense/bias:0",
    "albert/encoder/albert_layer_groups_._0/albert_layers_._0/full_layer_layer_norm/gamma:0",
    "predictions/LayerNorm/beta:0",
]


def test_the_variables_of_these_tests_have_their_real_names(tmp_path):
    names = {
        x for kind in KINDS for x in save(tmp_path / kind, tiny_checkpoints.make(**KINDS[kind]))
    }
    assert {*REAL} <= names


@pytest.fixture
def folder(tmp_path):
    save(tmp_path, tiny_checkpoints.make(**BERT))
    return tmp_path


def set_config(folder, **changes):
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(values | changes))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda x: (x / "config.json").unlink(), r"there is no file .*config\.json"),
        (lambda x: (x / "tf_model.h5").write_bytes(b"x" * 99), r"tf_model\.h5: a damaged file"),
        (lambda x: set_config(x, model_type="electra"), "model_type: 'electra' is not one of"),
        (lambda x: set_config(x, num_hidden_layers=4), r"not fit the model \(16 missing: bert/enc"),
    ],
)
def test_a_folder_that_is_not_read(folder, damage, message):
    damage(folder)
    with one_line(message):
        formats.convert(str(folder), str(folder / "out"))


def test_any_damage_is_one_line_or_changes_numbers_alone(folder):
    path, rng = folder / "tf_model.h5", random.Random(0)
    content = path.read_bytes()
    for _ in range(60):
        damaged = bytearray(content)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged))])])
        try:
            hugging_face_h5.read(str(path))
        except UserError as error:
            assert "\n" not in str(error)
