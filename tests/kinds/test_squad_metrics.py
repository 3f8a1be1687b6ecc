"""Scores by hand, by the rules of the official scripts for SQuAD 1.1 and 2.0."""

import math

import numpy as np
import pytest
from refusals import one_line

from albert_tf.kinds.spans import squad_metrics


def gold(*answers):
    """Questions 0, 1... with these right answers; none if there is no answer."""
    return [
        {"id": str(i), "answers": list(texts), "is_impossible": not texts, "labelled": True}
        for i, texts in enumerate(answers)
    ]


def by_id(*values):
    return {str(i): value for i, value in enumerate(values) if value is not None}


QUESTIONS = gold(["black cat"], [], ["dog"], [], ["bird"])
TEXTS = by_id("cat", "wolf", "dog", "", "fish")
ODDS = by_id(-1.5, 2.0, 0.5, -3.0, 0.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Cat's a\tmat!", "cats mat"),
        ("a an the", ""),
        ("theatre an-the then", "theatre anthe then"),
        ("a.the", "athe"),
        ("U.S.", "us"),
        ("ÜBER Σ İ", "über σ i\u0307"),
        # Only ASCII's punctuation goes, no form of Unicode is undone, and no accent.
        ("«ﬁn» – café’s", "«ﬁn» – café’s"),
        ("日本、the東京", "日本、the東京"),
        ("\u00a0x\u2028y\u200b", "x y\u200b"),
    ],
)
def test_what_counts_of_a_text(text, expected):
    # Where the last article or space leaves spaces, they go too.
    assert squad_metrics.normalize(text) == " ".join(expected.split())


@pytest.mark.parametrize(
    ("answers", "text", "of_1_1", "of_2_0"),
    [
        (["the cat"], "Cat.", (1, 1), (1, 1)),
        (["black cat"], "cat", (0, 2 / 3), (0, 2 / 3)),
        (["black cat"], "the black dog sat", (0, 2 * 1 / (3 + 2)), (0, 2 * 1 / (3 + 2))),
        # A word counts as often as it is in both.
        (["no no no"], "no no", (0, 0.8), (0, 0.8)),
        # Exact match and F1 may be best for different answers.
        (["dog", "black cat", "cat"], "cat", (1, 1), (1, 1)),
        (["cat", "big black cat"], "black cat", (0, 0.8), (0, 0.8)),
        (["cat"], "", (0, 0), (0, 0)),
        (["日 本"], "日本", (0, 0), (0, 0)),
        # Nothing is left of either.
        (["the"], "a", (1, 0), (1, 1)),
        # 2.0 does not count "The" as an answer as long as there are others.
        (["The", "cat"], "", (1, 0), (0, 0)),
    ],
)
def test_the_score_of_an_answer(answers, text, of_1_1, of_2_0):
    for odds, (exact, f1) in ((None, of_1_1), ({"0": 0.0}, of_2_0)):
        scores = squad_metrics.evaluate(gold(answers), {"0": text}, odds)
        assert scores["exact"] == 100 * exact
        assert scores["f1"] == pytest.approx(100 * f1, rel=1e-15)
        assert (scores["total"], scores["missing"]) == (1, 0)


def test_what_is_missing_is_wrong_in_both_versions():
    questions = gold(["black cat"], ["dog"], ["mouse", "the mice"], ["bird"])
    scores = squad_metrics.evaluate(questions, by_id("cat", None, "Mice", "fish"))
    assert scores == {"exact": 25.0, "f1": 100.0 * (2 / 3 + 1) / 4, "total": 4, "missing": 1}
    texts, odds = by_id("black cat", None, None, "", None), by_id(-1.0, None, 4.0, 9.0)
    scores = squad_metrics.evaluate(QUESTIONS, texts, odds)
    names = ("exact", "f1", "HasAns_f1", "NoAns_f1", "best_f1", "best_f1_thresh", "missing")
    assert [scores[name] for name in names] == [40.0, 40.0, 100 / 3, 50.0, 40.0, -1.0, 3]


def test_version_2_0():
    # Above 0: the wolf, rightly, and the dog, wrongly.
    scores = squad_metrics.evaluate(QUESTIONS, TEXTS, ODDS)
    assert scores == {
        "exact": 40.0,
        "f1": 100.0 * (2 / 3 + 1 + 1) / 5,
        "total": 5,
        "HasAns_exact": 0.0,
        "HasAns_f1": 100.0 * (2 / 3) / 3,
        "HasAns_total": 3,
        "NoAns_exact": 100.0,
        "NoAns_f1": 100.0,
        "NoAns_total": 2,
        # 2 are right if nothing is answered. Then, as the odds rise: "" is right all the same,
        # the cat has no exact match but two thirds, the fish has nothing, the dog is right.
        "best_exact": 60.0,
        "best_exact_thresh": 0.5,
        "best_f1": 100.0 * (2 + 2 / 3 + 1) / 5,
        "best_f1_thresh": 0.5,
        "missing": 0,
    }


@pytest.mark.parametrize(
    ("threshold", "exact", "has_exact", "no_exact"),
    [(math.inf, 40.0, 100 / 3, 50.0), (0.5, 60.0, 100 / 3, 100.0), (-3.5, 40.0, 0.0, 100.0)],
)
def test_a_fixed_threshold(threshold, exact, has_exact, no_exact):
    scores = squad_metrics.evaluate(QUESTIONS, TEXTS, ODDS, threshold=threshold)
    assert scores["exact"] == exact
    assert scores["HasAns_exact"] == pytest.approx(has_exact)
    assert scores["NoAns_exact"] == no_exact
    # What is tuned is not touched by it, however high the odds are: they are no probabilities.
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (60.0, 0.5)


def test_to_answer_nothing_may_be_best_and_equal_odds_are_taken_one_by_one():
    scores = squad_metrics.evaluate(gold([], []), by_id("cat", "dog"), by_id(-7.0, -5.0))
    assert (scores["best_exact"], scores["best_exact_thresh"]) == (100.0, 0.0)
    assert (scores["exact"], scores["NoAns_exact"]) == (0.0, 0.0)
    assert "HasAns_exact" not in scores
    # No threshold tells two apart; the script counts the first alone all the same.
    for first, expected in (("0", (100.0, 1.0)), ("1", (50.0, 0.0))):
        odds = dict.fromkeys((first, "0", "1"), 1.0)
        scores = squad_metrics.evaluate(gold(["cat"], []), by_id("cat", "dog"), odds)
        assert (scores["best_exact"], scores["best_exact_thresh"]) == expected


@pytest.mark.parametrize(
    ("answers", "odds", "threshold"),
    [
        (("cat", ""), (1.0, 2.0), 1.5),
        # As near as two float32 can be: the lower one is still answered, the higher one not.
        (("cat", ""), (1.0, 1 + 2**-23), 1.0),
        # Nearer than that they are equal, and answered together or not at all.
        (("cat", ""), (1.0, 1 + 2**-30), 0.5),
        (("cat", "", ""), (1.0, 1.0, 1.0), 0.5),
        (("", ""), (-7.0, -5.0), -7.5),
        # Both cuts are as good: the one with most room.
        (("", "cat", "", ""), (0.0, 1.0, 4.0, 5.0), 2.5),
    ],
)
def test_the_served_threshold_lies_between_questions(answers, odds, threshold):
    questions = gold(*([answer] if answer else [] for answer in answers))
    texts, odds = by_id(*["cat"] * len(answers)), by_id(*odds)
    assert squad_metrics.choose_threshold(questions, texts, odds) == threshold
    assert threshold not in list(odds.values())[1:]
    served = {id_: float(np.float32(value)) for id_, value in odds.items()}
    scores = squad_metrics.evaluate(questions, texts, served, threshold=threshold)
    others = [squad_metrics.evaluate(questions, texts, served, threshold=t) for t in range(-9, 9)]
    assert scores["f1"] == max(other["f1"] for other in others)


def test_the_scores_of_questions():
    scores = squad_metrics.score_questions(QUESTIONS, {**TEXTS, "4": "Bird"}, ODDS, threshold=0.3)
    assert scores == by_id((0, 2 / 3), (1, 1), (0, 0), (1, 1), (1, 1))
    assert list(scores) == ["0", "1", "2", "3", "4"]
    scores = squad_metrics.score_questions(gold(["cat"], ["dog"]), {"1": "dog"})
    assert scores == by_id((0, 0), (1, 1))


def test_many_f1_are_added_one_after_the_other():
    questions = gold(*[["a b c d e f g"]] * 1000)
    texts = by_id(*(" ".join("bcdefgxyz"[: 1 + i % 9]) for i in range(1000)))
    total = 0.0
    for score in squad_metrics.score_questions(questions, texts).values():
        total += score.f1
    assert squad_metrics.evaluate(questions, texts)["f1"] == 100.0 * total / 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], {}), "there is no question to score"),
        (
            (QUESTIONS, {"x7": "cat", "x8": "dog"}),
            "predictions for 2 unknown questions, for example x7",
        ),
        (
            (QUESTIONS, TEXTS, {**ODDS, "x": 0.0}),
            "null odds for 1 unknown questions, for example x",
        ),
        ((QUESTIONS, TEXTS, {"0": 0.0}), "4 predictions have no null odds, for example 1"),
        (([{**QUESTIONS[0], "labelled": False}], {}), "1 questions have no labels, for example 0"),
    ],
)
def test_what_cannot_be_scored_is_told_in_one_line(arguments, message):
    with one_line(message):
        squad_metrics.evaluate(*arguments)
