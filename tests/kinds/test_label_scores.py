"""Scores by label, of spans and of several labels a text, and their thresholds."""

import numpy as np
import pytest

from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.tasks import ensembles, predictions

TAGS = task_table.make_own("token_classification", ("O", "B-A", "I-A", "B-B", "I-B"))
LABELS = task_table.make_own("multi_label", ("x", "y", "z"))


def make_gold(name, spans, num_words=6):
    words = [[2 * k, 2 * k + 1] for k in range(num_words)]
    return {"id": name, "text": "ab" * num_words, "words": words, "spans": spans, "labelled": True}


def make_spans(*spans, score=0.9):
    names = ("start", "end", "type")
    rows = [dict(zip(names, span, strict=True)) for span in spans]
    return {"prediction": [{"text": "a", "score": score, **row} for row in rows]}


GOLD = [
    make_gold("0", [[0, 3, "A"], [6, 7, "B"]]),
    make_gold("1", [[2, 3, "A"]]),
    make_gold("2", []),
]
PREDICTED = {
    "0": make_spans((0, 3, "A"), (6, 9, "B")),
    "1": make_spans((2, 3, "B")),
    "2": make_spans((0, 1, "A")),
}


def test_spans_are_scored_as_seqeval_does():
    """seqeval 1.2.2 gives 0.25, 0.3333, 0.2857 and the accuracy 0.8333 of the same tags."""
    scores = predictions.score(TAGS, GOLD, PREDICTED)
    assert scores == pytest.approx(
        {"f1": 2 / 7, "precision": 1 / 4, "recall": 1 / 3, "accuracy": 15 / 18}
    )
    table = TAGS.kind.score_labels(TAGS, GOLD, PREDICTED)
    assert table["A"] == pytest.approx({"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2})
    assert table["B"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}


def test_no_span_at_all_scores_nothing():
    gold, predicted = [make_gold("0", [])], {"0": make_spans()}
    assert predictions.score(TAGS, gold, predicted)["f1"] == 0
    with pytest.raises(UserError, match="'0' has no label"):
        predictions.score(TAGS, [make_gold("0", None)], predicted)


def test_parts_of_speech_are_scored_by_word():
    task = task_table.make_own("token_classification", ("NN", "VB"))
    gold = [make_gold("0", [[0, 1, "NN"], [2, 3, "VB"]], num_words=2)]
    predicted = {"0": make_spans((0, 1, "NN"), (2, 3, "NN"))}
    assert predictions.score(task, gold, predicted) == {"accuracy": 0.5}


def several(*rows):
    gold = [{"id": str(k), "label": labels} for k, (labels, _) in enumerate(rows)]
    raw = {str(k): {"probabilities": values} for k, (_, values) in enumerate(rows)}
    return gold, LABELS.kind.apply_thresholds(LABELS, raw, {})


def test_several_labels_and_their_thresholds():
    gold, predicted = several(
        (["x", "y"], [0.9, 0.4, 0.2]),
        (["x"], [0.6, 0.1, 0.1]),
        ([], [0.55, 0.3, 0.7]),
        (["y"], [0.1, 0.35, 0.2]),
    )
    assert [row["prediction"] for row in predicted.values()] == [["x"], ["x"], ["x", "z"], []]
    thresholds = LABELS.kind.tune_thresholds(LABELS, gold, predicted)
    assert thresholds == pytest.approx({"x": 0.575, "y": 0.325, "z": 0.5})
    scores = predictions.score(LABELS, gold, predicted)
    assert scores["micro_f1"] == pytest.approx(2 * 2 / (4 + 4))
    assert scores["macro_f1"] == pytest.approx((2 * 2 / (3 + 2) + 0 + 0) / 3)
    assert scores["best_micro_f1"] == pytest.approx(2 * 4 / (5 + 4))
    assert scores["best_macro_f1"] == pytest.approx(2 / 3)
    assert scores["auc"] == 1.0  # z never applies
    better = LABELS.kind.apply_thresholds(LABELS, predicted, thresholds)
    assert better["3"]["prediction"] == ["y"]
    table = LABELS.kind.score_labels(LABELS, gold, better)
    assert (table["y"]["f1"], table["z"]["support"]) == (1.0, 0)


def test_equal_probabilities_are_on_one_side_of_a_threshold():
    gold, predicted = several(*[(["x"], [0.5, 0, 0])], *[([], [0.5, 0, 0])] * 3)
    assert LABELS.kind.tune_thresholds(LABELS, gold, predicted)["x"] == 0.25


@pytest.mark.parametrize("values", [(1.0, 1 - 2**-24), (2**-149, 0.0), (0.75, 0.75 - 2**-40)])
def test_the_threshold_divides_probabilities_that_are_nearly_equal(values):
    gold, predicted = several((["x"], [values[0], 0, 0]), ([], [values[1], 0, 0]))
    threshold = LABELS.kind.tune_thresholds(LABELS, gold, predicted)["x"]
    high, low = np.float32(values)
    assert high > np.float32(threshold)
    assert (low > np.float32(threshold)) == (low == high)


def test_no_probability_is_over_zero():
    gold, predicted = several((["x"], [0.0, 0, 0]), ([], [0.0, 0, 0]))
    assert LABELS.kind.tune_thresholds(LABELS, gold, predicted)["x"] == 0.0


def test_plain_predictions_have_no_auc():
    gold, _ = several((["x"], [1, 0, 0]))
    assert set(predictions.score(LABELS, gold, {"0": {"prediction": ["x"]}})) == {
        *("micro_f1", "macro_f1")
    }


def test_ensembles():
    _, one = several((["x"], [0.9, 0.4, 0.2]))
    _, two = several((["x"], [0.0, 0.8, 0.2]))
    header = {"task": "own", "split": "dev", "checkpoint": "c"}
    contents = [
        {**header, "kind": "multi_label", "labels": ["x", "y", "z"], "predictions": rows}
        for rows in (one, two)
    ]
    averaged = ensembles.average(dict(enumerate(contents)))["predictions"]["0"]
    assert averaged["prediction"] == ["y"]
    np.testing.assert_allclose(averaged["probabilities"], [0.45, 0.6, 0.2])
    members = [PREDICTED["0"], make_spans((0, 3, "A"), (6, 7, "B")), make_spans((0, 3, "A"))]
    contents = [
        {**header, "kind": TAGS.kind.name, "labels": list(TAGS.labels), "predictions": {"0": row}}
        for row in members
    ]
    spans = ensembles.average(dict(enumerate(contents)))["predictions"]["0"]["prediction"]
    assert [(x["start"], x["end"], x["score"]) for x in spans] == [(0, 3, pytest.approx(0.9))]
