"""Every number of parameters that is published or follows from what is published, exactly."""

import math
import pathlib

import pytest
import tensorflow as tf
import tiny
from parameter_counts import COUNTS

from albert_tf.config import PRESETS, AlbertConfig
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
CHINESE = {
    "albert_tiny": 4_080_520,
    "albert_small": 4_742_272,
    "albert_base_v1": 10_547_968,
    "albert_large_v1": 16_548_352,
    "albert_xlarge_v1": 57_589_248,
    "albert_xxlarge_v1": 221_459_968,
}
CHINESE_VOCABULARY = 21128


def change(config, **changes):
    return AlbertConfig(**{**vars(config), **changes})


def shapes(config):
    """Returns {name: shape} of the pre-trained model, made in a graph, which allocates nothing."""
    with tf.Graph().as_default():
        model = AlbertForPretraining(config)
        shape_of_name = {weight.path: tuple(weight.shape) for weight in model.weights}
        assert len(shape_of_name) == len(model.weights) == len(model.trainable_weights)
        return shape_of_name


def count(config):
    """Returns the numbers of parameters without pooler, with it, with the heads too."""
    sizes = {name: math.prod(shape) for name, shape in shapes(config).items()}
    heads = sum(size for name, size in sizes.items() if name.startswith("cls/"))
    pooler = sum(size for name, size in sizes.items() if "/pooler/" in name)
    total = sum(sizes.values())
    return total - heads - pooler, total - heads, total


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset(name):
    assert count(PRESETS[name]) == COUNTS[name.removesuffix("_v1").removesuffix("_v2")]


@pytest.mark.parametrize(("size", "sharing"), ABLATIONS)
def test_ablations_of_embedding_size_and_sharing(size, sharing):
    config = change(BASE, embedding_size=size, cross_layer_sharing=sharing)
    assert count(config)[:2] == ABLATIONS[size, sharing]


@pytest.mark.parametrize("groups", GROUPS)
def test_groups(groups):
    assert count(change(BASE, num_hidden_groups=groups))[1] == GROUPS[groups]


@pytest.mark.parametrize("width", WIDTHS)
def test_widths(width):
    config = change(
        BASE, hidden_size=width, num_attention_heads=width // 64, intermediate_size=4 * width
    )
    assert count(config)[1] == WIDTHS[width]


@pytest.mark.full
@pytest.mark.parametrize("name", CHINESE)
def test_chinese_models(name):
    assert count(change(PRESETS[name], vocab_size=CHINESE_VOCABULARY))[1] == CHINESE[name]


@pytest.mark.parametrize("layers", [1, 2, 12, 24])
def test_the_number_of_variables_does_not_depend_on_the_depth(layers):
    names = list(shapes(change(BASE, num_hidden_layers=layers)))
    assert len([name for name in names if name.startswith("bert/")]) == 25
    assert len([name for name in names if name.startswith("cls/predictions/")]) == 5
    assert len([name for name in names if name.startswith("cls/seq_relationship/")]) == 2
    assert len(names) == 32


def test_names_and_shapes_of_albert_base_are_the_published_ones():
    items = shapes(BASE).items()
    lines = sorted(f"{name} {','.join(str(size) for size in shape)}" for name, shape in items)
    assert lines == NAMES.read_text().splitlines()


def test_names_of_groups_and_inner_groups():
    config = tiny.config(num_hidden_layers=4, num_hidden_groups=2, inner_group_num=3)
    prefixes = {name.split("/LayerNorm/")[0] for name in shapes(config) if "transformer" in name}
    blocks = {name for name in prefixes if name.count("/") == 4}
    assert blocks == {
        f"bert/encoder/transformer/group_{group}/inner_group_{inner}"
        for group in range(2)
        for inner in range(3)
    }


@pytest.mark.parametrize(("sharing", "owned"), [("attention", "ffn_1"), ("ffn", "attention_1")])
def test_what_is_not_shared_is_there_once_for_every_step(sharing, owned):
    config = tiny.config(num_hidden_layers=5, cross_layer_sharing=sharing)
    parts = [name.split("/") for name in shapes(config) if "transformer" in name]
    groups = {part: {p[3] for p in parts if part in p} for part in ("attention_1", "ffn_1")}
    everywhere = {f"group_{step}" for step in range(5)}
    shared = "attention_1" if owned == "ffn_1" else "ffn_1"
    assert groups == {owned: everywhere, shared: {"group_0"}}
