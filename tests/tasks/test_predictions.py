"""Predictions files, and their scores."""

import json
import math
import os

import pytest
from refusals import one_line
from tiny_tasks import OWN, OWN_GOLD, OWN_PREDICTIONS, answer, choice, content, write_predictions

from albert_tf.kinds import span, task_table
from albert_tf.tasks import predictions

MRPC, STS_B, RACE = task_table.get("mrpc"), task_table.get("sts-b"), task_table.get("race")
SQUAD1, SQUAD2 = task_table.get("squad1"), task_table.get("squad2")
FOUND = {"0": choice("1", [0.25, 0.75]), "1": choice("0", [1.0, 0.0])}


@pytest.mark.parametrize(
    ("task", "predicted"),
    [
        (MRPC, {"0": choice("1", [math.nan, math.nan])}),
        (MRPC, {"0": choice("2", [0.5, 0.5])}),
        (STS_B, {"0": {"prediction": math.inf}}),
        (SQUAD1, {"0": answer(("a", math.nan))}),
        (SQUAD2, {"0": answer(("a", 1.0))}),
    ],
)
def test_a_prediction_of_another_kind_is_neither_written_nor_read(task, predicted, tmp_path):
    path = tmp_path / "found.json"
    message = rf"the prediction of '0' does not fit the kind {task.kind}"
    with one_line(message):
        write_predictions(path, task, predicted)
    assert os.listdir(tmp_path) == []
    path.write_text(json.dumps(content(task, predicted)))
    with one_line(message):
        predictions.read(str(path))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"checkpoint": None},
            r"found\.json is damaged: Expected .*`\$\.checkpoint`",
        ),
        ({"predictions": {}}, r"found\.json has no predictions"),
        ({"labels": ["1", "0"]}, r"is not for the task mrpc: its kind or labels differ"),
        ({"task": "mprc"}, r"there is no task 'mprc'"),
    ],
)
def test_a_file_that_is_none_is_refused(change, message, tmp_path):
    path = tmp_path / "found.json"
    path.write_text(json.dumps({**content(MRPC, FOUND), **change}))
    with one_line(message):
        predictions.read(str(path))


def question(id_, *answers, labelled=True):
    return {
        "id": id_,
        "question": "Where?",
        "context": "In Zürich, on the river.",
        "answers": list(answers),
        "is_impossible": labelled and not answers,
        "labelled": labelled,
    }


def test_score_of_answers_or_none_takes_the_odds():
    gold = [question("q", "Zürich"), question("r"), question("s", "the river")]
    predicted = {
        "q": answer(("Zürich", 1.0), null_odds=-2.0),
        "r": answer(("the river", 1.0), null_odds=3.0),
        "s": answer(("the river", 1.0), null_odds=1.0),
    }
    scores = predictions.score(SQUAD2, gold, predicted)
    assert scores["exact"] == pytest.approx(200 / 3)  # at threshold 0 the third is not answered
    assert scores["best_exact"] == pytest.approx(100.0)
    assert 1.0 <= scores["best_exact_thresh"] < 3.0
    strict = span.with_null_threshold(SQUAD2, 1.0)
    scores = predictions.score(strict, gold, predicted, confidence=True)
    assert scores["exact"] == scores["exact_to"] == pytest.approx(100.0)
    assert scores["exact_from"] == pytest.approx(43.850, abs=1e-3)  # Wilson's, of 3 of 3


UNLABELLED = {"id": "x", "label": None}


@pytest.mark.parametrize(
    ("task", "gold", "predicted", "message"),
    [
        (OWN, [], OWN_PREDICTIONS, "there are no examples to score: the set is empty"),
        (OWN, OWN_GOLD[:2], OWN_PREDICTIONS, r"the predictions: 1 are of unknown examples \('x'\)"),
        (OWN, OWN_GOLD, {"0": OWN_PREDICTIONS["0"]}, r"the predictions: 2 missing \('größe/2'\)"),
        (OWN, [*OWN_GOLD[:2], UNLABELLED], OWN_PREDICTIONS, "'x' has no label: this split can"),
        (SQUAD1, [question("q", labelled=False)], {"q": answer()}, "1 .*no labels, for example q"),
        (SQUAD1, [question("q", "In")], {"r": answer()}, "1 unknown questions, for example r"),
    ],
)
def test_what_cannot_be_scored_is_told_in_one_line(task, gold, predicted, message):
    with one_line(message):
        predictions.score(task, gold, predicted)


def test_confidence_of_answers_is_of_questions():
    """Three of four right: what BCa and percentiles give lies within the four that there are."""
    gold = [question(str(i), "In") for i in range(20)]
    predicted = {str(i): answer(("In" if i % 4 else "the river", 1.0)) for i in range(19)}
    scores = predictions.score(SQUAD1, gold, predicted, confidence=True)
    assert scores["exact"] == pytest.approx(100 * 14 / 20)
    for end, half in (("from", -1), ("to", 1)):
        expected = 70 + half * 1.96 * 100 * math.sqrt(0.7 * 0.3 / 20)
        assert scores[f"exact_{end}"] == pytest.approx(expected, abs=6)
        assert scores[f"f1_{end}"] == scores[f"exact_{end}"]
    assert scores == predictions.score(SQUAD1, gold, predicted, confidence=True)


@pytest.mark.parametrize(
    ("task", "labels", "guesses", "shown"),
    [
        (OWN, ["good", "bad", "bad"], ["good"] * 3, "'good'"),
        (RACE, ["A", "C", "D"], ["B"] * 3, "'B'"),
        (STS_B, [0.0, 5.0, 2.5], [2.61, 2.62, 2.6], "about 2.61"),
        (OWN, ["good"] * 3, ["good"] * 3, None),  # as they should be
        (OWN, ["good", "bad", "bad"], ["good", "bad", "good"], None),
        (STS_B, [0.0, 5.0, 2.5], [2.5, 2.6, 2.4], None),
        (STS_B, [2.5] * 3, [2.5] * 3, None),
    ],
)
def test_constant_predictions_are_a_warning(task, labels, guesses, shown, capsys):
    gold = [{"id": str(i), "label": label} for i, label in enumerate(labels)]
    predicted = {str(i): {"prediction": value} for i, value in enumerate(guesses)}
    predictions.warn_if_constant(task, gold, predicted, 0.0005)
    warning = (
        f"warning: all 3 predictions are {shown}, but the labels vary: the model has learnt "
        "nothing, or has collapsed. If this persists, train again for more epochs, with a "
        "learning_rate below 0.0005, or with a longer warm-up.\n"
    )
    assert capsys.readouterr().err == (warning if shown else "")
