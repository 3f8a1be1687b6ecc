"""What memory is made of; with dropout, beside what a compiler needed."""

import dataclasses

import pytest

from albert_tf.config import PRESETS
from albert_tf.plan.formula import costs, memory
from albert_tf.train_config import PretrainConfig

LARGE = PretrainConfig(albert=PRESETS["albert_large_v2"], dtype="mixed_bfloat16")
TOKENS = 8 * 512


def needed(batch=8, **changes):
    """Changes with `albert_` in front are of the model."""
    model = {k.removeprefix("albert_"): v for k, v in changes.items() if k.startswith("albert_")}
    others = {k: v for k, v in changes.items() if not k.startswith("albert_")}
    albert = dataclasses.replace(LARGE.albert, **model)
    return memory.estimate_memory(dataclasses.replace(LARGE, albert=albert, **others), batch)


@pytest.mark.parametrize(
    ("changes", "attentions", "ffns"),
    [
        ({}, 1, 1),
        ({"albert_num_hidden_groups": 3}, 3, 3),
        ({"albert_cross_layer_sharing": "attention"}, 1, 24),
        ({"albert_cross_layer_sharing": "none"}, 24, 24),
    ],
)
def test_matrices_of_all_sets_of_weights_are_copied(changes, attentions, ffns):
    assert needed(**changes).copies == 2 * (attentions * 4 * 1024**2 + ffns * 2 * 1024 * 4096)


def test_activations_are_kept_by_part():
    activations = needed().activations
    assert set(activations) == {costs.ATTENTION, memory.PROBABILITIES, costs.FFN}
    assert activations[memory.PROBABILITIES] == 23 * 2 * TOKENS * 16 * 512
    assert activations[costs.ATTENTION] == 23 * 2 * TOKENS * 5 * 1024
    assert activations[costs.FFN] == 23 * 2 * TOKENS * (4096 + 1024)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_dropout_keeps_a_byte_for_each_element_it_sees(dtype):
    plain, attention, hidden = (
        needed(dtype=dtype, **changes).activations
        for changes in (
            {},
            {"albert_attention_probs_dropout_prob": 0.1},
            {"albert_hidden_dropout_prob": 0.1},
        )
    )
    probabilities = {memory.PROBABILITIES: 23 * TOKENS * 16 * 512}
    outputs = dict.fromkeys((costs.ATTENTION, costs.FFN), 23 * TOKENS * 1024)
    for kept, more in ((attention, probabilities), (hidden, outputs)):
        assert kept == {part: size + more.get(part, 0) for part, size in plain.items()}


def test_dropout_of_the_last_block_keeps_as_many():
    # Few tokens and many words: the most is in use at the heads.
    small = {"albert_num_hidden_layers": 1, "max_seq_length": 128, "max_predictions_per_seq": 99}
    plain, attention, hidden = (
        needed(**small, **dict.fromkeys(rates, 0.1)).activations[memory.LAST]
        for rates in ((), ("albert_attention_probs_dropout_prob",), ("albert_hidden_dropout_prob",))
    )
    assert attention - plain == 8 * 100 * 16 * 128
    assert hidden - plain == 8 * 100 * 2 * 1024


@pytest.mark.parametrize("way", ["rematerialize", "layer_loop"])
def test_what_masks_are_made_of_is_there_when_a_block_is_computed_again(way):
    plain, both, hidden = (
        needed(**{way: True}, **dict.fromkeys(rates, 0.1)).working
        for rates in (
            (),
            ("albert_hidden_dropout_prob", "albert_attention_probs_dropout_prob"),
            ("albert_hidden_dropout_prob",),
        )
    )
    masks = 2 * 1024
    assert hidden - plain == TOKENS * (masks + 4 * 1024)
    assert both - plain == TOKENS * (masks + 16 * 512 + 4 * 16 * 512)


@pytest.mark.parametrize(
    ("model", "way", "gigabytes"),
    [
        ("albert_base_v1", {}, 3.611),
        ("albert_base_v1", {"rematerialize": True}, 0.960),
        ("albert_base_v1", {"layer_loop": True}, 0.900),
        ("albert_large_v1", {"rematerialize": True}, 1.671),
    ],
)
def test_with_dropout_it_is_near_what_was_compiled(model, way, gigabytes):
    """16 sequences a chip of v5e:16x16: docs/results.md, "Plans for TPUs"."""
    config = PretrainConfig(albert=PRESETS[model], max_predictions_per_seq=77, **way)
    assert memory.estimate_memory(config, 16).total == pytest.approx(gigabytes * 1e9, rel=0.05)


def test_a_loop_keeps_one_input_a_turn_and_computes_its_blocks_together():
    one = needed(layer_loop=True, albert_num_hidden_layers=12)
    two = needed(layer_loop=True, albert_num_hidden_layers=12, albert_inner_group_num=2)
    assert two.activations == one.activations == {memory.INPUTS: 11 * 2 * TOKENS * 1024}
    block = 2 * TOKENS * (10 * 1024 + 16 * 512)
    assert two.working - one.working == block


def test_a_window_keeps_no_probabilities():
    long = {"max_seq_length": 2048, "albert_max_position_embeddings": 2048}
    full, windowed = needed(**long), needed(**long, albert_attention_window=64)
    assert full.activations[memory.PROBABILITIES] > windowed.activations[memory.PROBABILITIES] == 0
    some = needed(**long, albert_attention_window=64, albert_full_attention_layers=(0, 12))
    two = 2 * 2 * 8 * 2048 * 16 * 2048
    assert some.activations[memory.PROBABILITIES] == pytest.approx(two, rel=1e-6)
    assert windowed.working < some.working == full.working


def test_long_sequences_need_the_most_at_attention():
    wide, long = (needed(max_seq_length=s, albert_max_position_embeddings=s) for s in (64, 2048))
    assert wide.working == 2 * 8 * 64 * (4096 + 4 * 1024)
    assert long.working == 2 * 8 * 2048 * (16 * 2048 + 4 * 1024 - 5 * 1024)
