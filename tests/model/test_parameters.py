"""Names, shapes and numbers of parameters: those of the models, and those that are published."""

import math
import pathlib

import pytest
import tensorflow as tf
import tiny
from parameter_counts import COUNTS

from albert_tf.config import PRESETS, AlbertConfig
from albert_tf.model import weight_names
from albert_tf.model.albert_model import AlbertForPretraining

BASE = PRESETS["albert_base_v2"]
NAMES = pathlib.Path(__file__).parents[1] / "goldens" / "albert_base_variables.txt"
# The paper's ablations (tables 3 and 4). E, sharing: without the pooler, with it.
ABLATIONS = {
    (64, "all"): (9_090_816, 9_681_408),
    (64, "none"): (87_057_408, 87_648_000),
    (128, "all"): (11_092_992, 11_683_584),
    (128, "attention"): (63_056_640, 63_647_232),
    (128, "ffn"): (37_095_936, 37_686_528),
    (128, "none"): (89_059_584, 89_650_176),
    (256, "all"): (15_097_344, 15_687_936),
    (256, "none"): (93_063_936, 93_654_528),
    (768, "all"): (30_524_160, 31_114_752),
    (768, "attention"): (82_487_808, 83_078_400),
    (768, "ffn"): (56_527_104, 57_117_696),
    (768, "none"): (108_490_752, 109_081_344),
}
# All with the pooler.
GROUPS = {
    1: 11_683_584,
    2: 18_771_456,
    3: 25_859_328,
    4: 32_947_200,
    6: 47_122_944,
    12: 89_650_176,
}
WIDTHS = {1024: 17_683_968, 2048: 58_724_864, 4096: 222_595_584, 6144: 495_518_208}


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
def test_names_and_shapes_known_from_a_config_are_those_of_the_model(changes):
    config = tiny.config(**changes)
    variables = weight_names.weights_by_name(AlbertForPretraining(config))
    expected = {name: tuple(variable.shape) for name, variable in variables.items()}
    assert weight_names.expected_shapes(config, expected.keys()) == expected


def test_names_and_shapes_of_albert_base_are_the_published_ones():
    with tf.Graph().as_default():  # allocates nothing
        weights = AlbertForPretraining(BASE).weights
    lines = sorted(f"{w.path} {','.join(str(size) for size in w.shape)}" for w in weights)
    assert lines == NAMES.read_text().splitlines()


def count(config):
    """Returns the numbers of parameters without pooler, with it, with the heads too."""
    parts = weight_names.parts(config)
    sizes = {
        part: sum(math.prod(shape) for shape in parts[part].values())
        for part in weight_names.PRETRAINED
    }
    encoder = sizes[weight_names.ENCODER]
    return encoder, encoder + sizes[weight_names.POOLER], sum(sizes.values())


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset(name):
    assert count(PRESETS[name]) == COUNTS[name.removesuffix("_v1").removesuffix("_v2")]


def test_ablations_widths_and_groups():
    def count_changed(**changes):
        return count(AlbertConfig(**{**vars(BASE), **changes}))

    for (size, sharing), expected in ABLATIONS.items():
        assert count_changed(embedding_size=size, cross_layer_sharing=sharing)[:2] == expected
    for groups, expected in GROUPS.items():
        assert count_changed(num_hidden_groups=groups)[1] == expected
    for width, expected in WIDTHS.items():
        sizes = {"num_attention_heads": width // 64, "intermediate_size": 4 * width}
        assert count_changed(hidden_size=width, **sizes)[1] == expected


def test_heads_of_tasks_have_the_published_numbers_of_weights():
    size = BASE.hidden_size
    squad2 = (size + 1) + (2 * size**2 + 4 * size + 1) + (2 * size**2 + 2 * size)
    parts = weight_names.parts(BASE)
    for part, number in (("squad1", 2 * size + 2), ("squad2", squad2)):
        assert sum(math.prod(shape) for shape in parts[part].values()) == number
    assert parts["classifier"] == {"output_weights": (-1, size), "output_bias": (-1,)}


@pytest.mark.parametrize(
    ("present", "others"),
    [
        ("", "pooler"),
        ("pooler", ""),
        ("masked_lm pooler", ""),
        ("sentence_order", "masked_lm pooler"),
        ("classifier", "pooler"),
        ("squad1", ""),
        ("squad2 pooler", ""),
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
