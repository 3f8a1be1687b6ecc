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
from albert_tf.objectives import all_objectives
from albert_tf.objectives.all_objectives import OBJECTIVES
from albert_tf.plan.formula import costs, memory
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
        {"num_hidden_layers": 3, "inner_group_num": 2, "depth_lora_rank": 2},
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


@pytest.mark.parametrize("options", [{}, {"generator_embeddings": "disentangled"}])
def test_a_generator_and_the_head_of_replaced_tokens_are_counted(options):
    config = tiny_run.settings(token_task="replaced_tokens", generator_divisor=2, **options)
    model, trained = all_objectives.choose(config).make_model(config)
    assert sum(costs.count_model_parameters(config).values()) == model.count_params()
    assert costs.count_trained_parameters(config) == sum(math.prod(w.shape) for w in trained)
    masked = tiny_run.settings()
    totals = [memory.estimate_memory(x, BATCH).total for x in (masked, config)]
    assert totals[0] < totals[1]


def test_the_head_of_words_is_counted():
    config = tiny_run.settings(sentence_task="phonemes", num_words=7)
    _, trained = OBJECTIVES["phonemes"].make_model(config)
    assert costs.count_trained_parameters(config) == sum(math.prod(w.shape) for w in trained)
    words = costs.count_flops_by_part(config, BATCH)[costs.WORDS].forward
    assert words == 2 * BATCH * config.max_seq_length * config.albert.hidden_size * 7
    without = tiny_run.settings(sentence_task="none")
    totals = [memory.estimate_memory(x, BATCH).total for x in (without, config)]
    assert totals[0] < totals[1]


def test_the_hardest_examples_are_computed_twice_and_all_others_once():
    plain = tiny_run.settings(albert=tiny_run.albert(num_hidden_layers=3, attention_window=1))
    config = dataclasses.replace(plain, hard_example_share=0.4)
    whole, half = (costs.count_flops(plain, n) for n in (BATCH, BATCH // 2))
    flops = costs.count_flops(config, BATCH)  # 0.4 of 6 examples are 3
    assert flops.forward == whole.forward + half.forward
    assert flops.backward == half.backward
    assert flops.recomputed == half.recomputed > 0


def test_parts_add_up_and_scale_with_the_batch():
    config = PretrainConfig(albert=PRESETS["albert_large_v2"], rematerialize=True)
    parts = costs.count_flops_by_part(config, 8)
    total = costs.count_flops(config, 8)
    for field in dataclasses.fields(total):
        added = sum(getattr(part, field.name) for part in parts.values())
        assert added == pytest.approx(getattr(total, field.name))
    assert costs.count_flops(config, 16).total == 2 * total.total
    assert parts[costs.FFN].forward > parts[costs.ATTENTION].forward > parts[costs.SCORES].forward


def test_gradients_are_summed_in_float32():
    config = PretrainConfig(albert=PRESETS["albert_base_v2"])
    assert costs.count_all_reduce_bytes(config) == 4 * 11_813_810


def test_memory_grows_with_what_it_must_and_shrinks_with_what_it_should():
    large = PretrainConfig(albert=PRESETS["albert_large_v2"])

    def total(batch=8, **changes):
        return memory.estimate_memory(dataclasses.replace(large, **changes), batch).total

    assert total(batch=16) > 1.8 * total()
    assert total(rematerialize=True) < 0.5 * total()
    assert total(dtype="float32") > 1.5 * total()
    assert total(num_micro_batches=4) < 0.5 * total()
    assert total(optimizer="adamw") == total()
    state = memory.estimate_memory(large, 8)
    assert state.optimizer == 2 * state.weights == 8 * 17_847_474


ROWS_THERE = [json.loads(line) for line in ROWS.read_text().splitlines()]


def test_every_model_was_compiled_in_every_way_for_both_slices():
    models = "base", "large", "xlarge", "xxlarge"
    ways = "plain", "rematerialize", "layer_loop"
    there = [(row["model"], row["way"], row["slice"]) for row in ROWS_THERE]
    assert sorted(there) == sorted(itertools.product(models, ways, ("v3:16x16", "v5e:16x16")))


@pytest.mark.parametrize(
    "row", ROWS_THERE, ids=lambda row: f"{row['model']}-{row['way']}-{row['slice']}"
)
def test_formulas_agree_with_what_was_compiled(row):
    # The rows are what bin/plan_training --compile said; nothing is compiled here.
    values = {"albert": PRESETS[f"albert_{row['model']}_v2"], "max_predictions_per_seq": 77}
    if row["way"] != "plain":
        values[row["way"]] = True
    config = PretrainConfig(**values)
    batch = row["batch"]
    needed = row["peak"] if row["fits"] else row["needed"]
    assert memory.estimate_memory(config, batch).total == pytest.approx(needed, rel=0.15)
    if row["fits"] and row["way"] != "layer_loop":  # what is within a loop is counted once
        assert costs.count_flops(config, batch).total == pytest.approx(row["flops"], rel=0.03)
    if row["fits"]:
        expected = costs.count_all_reduce_bytes(config)
        assert row["all_reduce_bytes"] == pytest.approx(expected, rel=1e-3)
