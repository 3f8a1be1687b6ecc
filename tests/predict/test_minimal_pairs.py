"""Minimal pairs: scores equal a loop over masks, and equal scores count a half."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf
import tiny_checkpoints
from input_files import write_rows
from refusals import one_line

import albert_tf
from albert_tf import train_config
from albert_tf.predict import minimal_pairs

PAIRS = [
    minimal_pairs.Pair("the museum is old.", "the museum are old.", ("syntax", "agreement", "a")),
    minimal_pairs.Pair("it opened today", "it open todays", ("syntax", "verbs", "b")),
    minimal_pairs.Pair("the museum is old.", "museum the is old.", ("order", "words", "c")),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, vocabulary):
    made = tiny_checkpoints.make(vocabulary, max_position_embeddings=40, num_hidden_layers=2)
    return tiny_checkpoints.write(tmp_path_factory.mktemp("pretrained"), made, "albert_tf")


@pytest.fixture(scope="module")
def loaded(folder):
    return albert_tf.load(folder)


@pytest.fixture(scope="module")
def score_in_a_loop(loaded):
    """A row for each mask, by the words that ▁ begins."""
    tokenizer = loaded.tokenizer

    @functools.cache
    def score_in_a_loop(text, rule):
        ids, rows = tokenizer.encode(text), []
        for place in range(len(ids)):
            masked = [*ids]
            masked[place] = tokenizer.mask_id
            for later in range(place + 1, len(ids)):
                if rule == "original" or tokenizer.is_word_start[ids[later]]:
                    break
                masked[later] = tokenizer.mask_id
            rows.append([tokenizer.cls_id, *masked, tokenizer.sep_id])
        places = [[place + 1] for place in range(len(ids))]
        batch = {"input_ids": tf.constant(rows), "masked_lm_positions": tf.constant(places)}
        scores = tf.nn.log_softmax(loaded.model(batch)["masked_lm_logits"][:, 0])
        return tf.reduce_sum(tf.gather(scores, ids, batch_dims=1)).numpy()

    return score_in_a_loop


@pytest.mark.parametrize("rule", train_config.PAIR_RULES)
def test_scores_equal_a_loop_over_the_masks(loaded, score_in_a_loop, rule, monkeypatch):
    monkeypatch.setattr(minimal_pairs, "_BATCH_TOKENS", 100)  # several batches of a length
    texts = [text for pair in PAIRS for text in (pair.good, pair.bad)]
    texts += ["museum museum opened", "the", " the"]
    scores = minimal_pairs.score(loaded.model, loaded.tokenizer, texts, rule=rule)
    assert scores[-1] == scores[-2]  # to the bit: the texts have the same ids
    loop = [score_in_a_loop(text, rule) for text in texts]
    np.testing.assert_allclose(scores, loop, rtol=0, atol=1e-4)
    others = [score_in_a_loop(text, "original") for text in texts]
    assert np.allclose(loop, others, atol=1e-3) == (rule == "original")


def test_accuracies_are_of_all_and_of_groups(loaded, monkeypatch):
    scores = {"the museum is old.": -1, "the museum are old.": -2, "it opened today": -3}
    scores |= {"it open todays": -2, "museum the is old.": -1}
    monkeypatch.setattr(
        minimal_pairs, "score", lambda *args, **_: np.array([scores[text] for text in args[2]])
    )
    results = minimal_pairs.evaluate(loaded.model, loaded.tokenizer, PAIRS)
    assert results["accuracy"] == 0.5 and results["num_pairs"] == 3
    paradigms = {name: x["accuracy"] for name, x in results["paradigm"].items()}
    assert paradigms == {"a": 1, "b": 0, "c": 0.5}
    assert results["field"]["syntax"]["accuracy"] == 0.5
    low, high = results["interval"]
    assert 0 <= low < 0.5 < high <= 1
    assert "50.0 % of 3 pairs" in minimal_pairs.describe(results)


def test_pairs_are_scored_after_each_layer(folder):
    results = minimal_pairs.evaluate_checkpoint(folder, PAIRS, by_layer=True)["minimal_pairs"]
    assert len(results["by_layer"]["accuracy"]) == 2
    assert results["by_layer"]["accuracy"][-1] == results["accuracy"]


def test_a_model_that_knows_nothing_gets_half(loaded):
    constant = albert_tf.load(loaded.checkpoint.source)
    for weight in constant.model.weights:
        weight.assign(tf.zeros_like(weight))
    results = minimal_pairs.evaluate(constant.model, constant.tokenizer, PAIRS[2:] * 5)
    assert results["accuracy"] == 0.5
    text = "the museum is old."
    [score] = minimal_pairs.score(constant.model, constant.tokenizer, [text])
    pieces = len(constant.tokenizer.encode(text))
    assert math.isclose(score, -pieces * math.log(constant.config.vocab_size), rel_tol=1e-5)


def test_files_of_a_folder_are_paradigms(tmp_path):
    for name in ("one", "two"):
        row = {"sentence_bad": "x", "field": "f"}
        rows = [{"sentence_good": f"{name} {n}", **row} for n in range(9)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    pairs = minimal_pairs.read([str(tmp_path)], 4)
    assert [pair.groups for pair in pairs] == [("f", "one", "one")] * 4 + [("f", "two", "two")] * 4
    assert pairs == minimal_pairs.read([str(tmp_path / "*.jsonl")], 4)
    assert len(minimal_pairs.read([str(tmp_path)])) == 18


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("a.jsonl", [], "holds no pairs"),
        ("a.jsonl", [{"sentence_good": "a"}], "row 1 has no text 'sentence_bad'"),
        ("a.jsonl", [{"sentence_good": " ", "sentence_bad": "b"}], "no text 'sentence_good'"),
        ("a.txt", [], "a.txt is not a .jsonl file"),
    ],
)
def test_bad_files_are_refused(tmp_path, name, rows, message):
    write_rows(tmp_path / name, rows)
    with one_line(message):
        minimal_pairs.read([str(tmp_path / name)])


def test_what_cannot_be_scored_is_refused(loaded, tmp_path, vocabulary):
    with one_line(r"'the the .* tokens: a sentence must have 1 to "):
        minimal_pairs.score(loaded.model, loaded.tokenizer, ["the " * 99])
    made = tiny_checkpoints.make(vocabulary, model="bare")
    bare = tiny_checkpoints.write(tmp_path / "bare", made, "albert_tf")
    with one_line("bare has no masked-LM head"):
        minimal_pairs.evaluate_checkpoint(bare, PAIRS)
