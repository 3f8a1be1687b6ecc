"""The formulas, against real models, the products of the real step, and what was compiled."""

import dataclasses
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


def test_parameters_are_those_of_the_presets():
    for name, config in PRESETS.items():
        expected = parameter_counts.COUNTS[re.sub(r"_v\d$", "", name)][2]
        assert sum(costs.count_parameters(config).values()) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 3},
        {"num_hidden_layers": 3, "cross_layer_sharing": "attention"},
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
    for changes in ({"sentence_task": "none"}, {"sentence_task": "phonemes", "num_words": 7}):
        train_config = tiny_run.settings(albert=config, **changes)
        _, trained = OBJECTIVES[train_config.sentence_task].make_model(train_config)
        number = sum(math.prod(w.shape) for w in trained)
        assert costs.count_trained_parameters(train_config) == number


def test_the_head_of_words_is_counted():
    config = tiny_run.settings(sentence_task="phonemes", num_words=7)
    words = costs.count_flops_by_part(config, BATCH)[costs.WORDS].forward
    assert words == 2 * BATCH * config.max_seq_length * config.albert.hidden_size * 7
    without = tiny_run.settings(sentence_task="none")
    totals = [sum(costs.estimate_memory(x, BATCH).values()) for x in (without, config)]
    assert totals[0] < totals[1]


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
    """16 sequences a chip of v5e:16x16: docs/research/results.md, "Plans for TPUs"."""
    config = PretrainConfig(albert=PRESETS[model], max_predictions_per_seq=77, **way)
    memory = costs.estimate_memory(config, 16)
    assert sum(memory.values()) == pytest.approx(gigabytes * 1e9, rel=0.05)


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
