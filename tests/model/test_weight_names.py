"""The names and shapes known from a config are those of the model's variables."""

import math

import pytest
import tiny

from albert_tf.config import PRESETS
from albert_tf.model import albert_model, weight_names


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 3},
        {"embedding_size": 8},
        {"cross_layer_sharing": "attention"},
        {"cross_layer_sharing": "ffn"},
        {"cross_layer_sharing": "none", "type_vocab_size": 4},
    ],
)
def test_they_are_those_of_the_model(changes):
    config = tiny.config(**changes)
    variables = weight_names.weights_by_name(albert_model.AlbertForPretraining(config))
    expected = {name: tuple(variable.shape) for name, variable in variables.items()}
    assert weight_names.expected_shapes(config, expected.keys()) == expected


def count(shapes):
    return sum(math.prod(shape) for shape in shapes.values())


def test_parts_have_the_published_numbers_of_weights():
    config = PRESETS["albert_base_v2"]
    size = config.hidden_size
    squad2 = (size + 1) + (2 * size**2 + 4 * size + 1) + (2 * size**2 + 2 * size)
    parts = weight_names.parts(config)
    assert count(parts["encoder"]) == 11_092_992
    assert count(parts["pooler"]) == 11_683_584 - 11_092_992
    assert count(parts["masked_lm"]) == 128_688
    assert count(parts["sentence_order"]) == 1_538
    assert count(parts["squad1"]) == 2 * size + 2
    assert count(parts["squad2"]) == squad2
    assert parts["classifier"] == {"output_weights": (-1, size), "output_bias": (-1,)}


@pytest.mark.parametrize(
    ("present", "others"),
    [
        ("", "pooler"),
        ("pooler", ""),
        ("masked_lm", ""),
        ("masked_lm pooler", ""),
        ("sentence_order", "masked_lm pooler"),
        ("classifier", "pooler"),
        ("squad1", ""),
        ("squad1 pooler", ""),
        ("squad2 pooler", ""),
        ("classifier masked_lm pooler", ""),
        ("classifier masked_lm pooler sentence_order", ""),
    ],
)
def test_what_a_model_must_have_its_heads_tell(present, others):
    config = tiny.config()
    parts = weight_names.parts(config)
    names = {next(iter(parts[part])) for part in present.split()}  # one of each is enough
    expected = {"encoder", *present.split(), *others.split()}
    shapes = weight_names.expected_shapes(config, names)
    assert shapes == {name: shape for part in expected for name, shape in parts[part].items()}
