"""The formulas, against real models, the products of the real step, and what was compiled."""

import dataclasses
import itertools
import json
import math
import pathlib
import re

import parameter_counts
import pytest
import tiny_run

from albert_tf.config import PRESETS
from albert_tf.model import albert_model
from albert_tf.objectives.all_objectives import OBJECTIVES
from albert_tf.plan import costs
from albert_tf.train_config import PretrainConfig

BATCH = 6
ROWS = pathlib.Path(__file__).parents[1] / "goldens" / "plan_rows.jsonl"


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_are_those_of_the_presets(name):
    expected = parameter_counts.COUNTS[re.sub(r"_v\d$", "", name)][2]
    assert sum(costs.count_parameters(PRESETS[name]).values()) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 3},
        {"num_hidden_layers": 3, "inner_group_num": 2},
        {"num_hidden_layers": 3, "cross_layer_sharing": "attention"},
        {"num_hidden_layers": 3, "cross_layer_sharing": "ffn"},
        {"num_hidden_layers": 3, "cross_layer_sharing": "none", "embedding_size": 8},
    ],
)
def test_parameters_are_those_of_the_real_model(options):
    config = tiny_run.albert(**options)
    network = albert_model.AlbertForPretraining(config)
    parameters = costs.count_parameters(config)
    assert sum(parameters.values()) == network.count_params()
    ffn_weights = [w for w in network.weights if re.search(r"ffn_1|LayerNorm_1", w.path)]
    assert parameters[costs.FFN] == sum(math.prod(w.shape) for w in ffn_weights)
    heads = [w for w in network.weights if "pooler" in w.path or "seq_relationship" in w.path]
    train_config = tiny_run.settings(albert=config, sentence_task="none")
    left_out = sum(parameters.values()) - costs.count_trained_parameters(train_config)
    assert left_out == sum(math.prod(w.shape) for w in heads)


def test_the_head_of_words_is_counted():
    config = tiny_run.settings(sentence_task="phonemes", num_words=7)
    _, trained = OBJECTIVES["phonemes"].make_model(config)
    assert costs.count_trained_parameters(config) == sum(math.prod(w.shape) for w in trained)
    words = costs.count_flops_by_part(config, BATCH)[costs.WORDS].forward
    assert words == 2 * BATCH * config.max_seq_length * config.albert.hidden_size * 7
    without = tiny_run.settings(sentence_task="none")
    totals = [sum(costs.estimate_memory(x, BATCH).values()) for x in (without, config)]
    assert totals[0] < totals[1]


def test_parts_add_up_and_scale_with_the_batch():
    config = PretrainConfig(albert=PRESETS["albert_large_v2"], rematerialize=True)
    parts = costs.count_flops_by_part(config, 8)
    total = costs.count_flops(config, 8)
    for name, number in total._asdict().items():
        assert sum(getattr(part, name) for part in parts.values()) == pytest.approx(number)
    assert sum(costs.count_flops(config, 16)) == 2 * sum(total)
    assert parts[costs.FFN].forward > parts[costs.ATTENTION].forward > parts[costs.SCORES].forward


def test_memory_grows_with_what_it_must_and_shrinks_with_what_it_should():
    large = PretrainConfig(albert=PRESETS["albert_large_v2"])

    def total(batch=8, **changes):
        return sum(costs.estimate_memory(dataclasses.replace(large, **changes), batch).values())

    assert total(batch=16) > 1.8 * total()
    assert total(rematerialize=True) < 0.5 * total()
    assert total(dtype="float32") > 1.5 * total()
    assert total(num_micro_batches=4) < 0.5 * total()
    assert total(optimizer="adamw") == total()
    state = costs.estimate_memory(large, 8)
    assert state["optimizer"] == 2 * state["weights"] == 8 * 17_847_474


ROWS_THERE = [json.loads(line) for line in ROWS.read_text().splitlines()]


def test_every_model_was_compiled_in_every_way_for_both_slices():
    models = "base", "large", "xlarge", "xxlarge"
    ways = "plain", "rematerialize", "layer_loop"
    there = [(row["model"], row["way"], row["slice"]) for row in ROWS_THERE]
    assert sorted(there) == sorted(itertools.product(models, ways, ("v3:16x16", "v5e:16x16")))


@pytest.mark.parametrize(
    ("model", "way", "gigabytes"),
    [
        ("albert_base_v1", {}, 3.611),
        ("albert_base_v1", {"rematerialize": True}, 0.960),
        ("albert_base_v1", {"layer_loop": True}, 0.900),
        ("albert_large_v1", {"rematerialize": True}, 1.671),
    ],
)
def test_with_dropout_memory_is_near_what_was_compiled(model, way, gigabytes):
    """16 sequences a chip of v5e:16x16: docs/results.md, "Plans for TPUs"."""
    config = PretrainConfig(albert=PRESETS[model], max_predictions_per_seq=77, **way)
    memory = costs.estimate_memory(config, 16)
    assert sum(memory.values()) == pytest.approx(gigabytes * 1e9, rel=0.15)


@pytest.mark.parametrize(
    "row", ROWS_THERE, ids=lambda row: f"{row['model']}-{row['way']}-{row['slice']}"
)
def test_formulas_agree_with_what_was_compiled(row):
    # The rows are what examples/tpu_compile said; nothing is compiled here.
    values = {"albert": PRESETS[f"albert_{row['model']}_v2"], "max_predictions_per_seq": 77}
    if row["way"] != "plain":
        values[row["way"]] = True
    config = PretrainConfig(**values)
    batch = row["batch"]
    needed = row["peak"] if row["fits"] else row["needed"]
    assert sum(costs.estimate_memory(config, batch).values()) == pytest.approx(needed, rel=0.15)
    if row["fits"] and row["way"] != "layer_loop":  # what is within a loop is counted once
        assert sum(costs.count_flops(config, batch)) == pytest.approx(row["flops"], rel=0.03)
    if row["fits"]:
        expected = 4 * costs.count_trained_parameters(config)
        assert row["all_reduce_bytes"] == pytest.approx(expected, rel=1e-3)
