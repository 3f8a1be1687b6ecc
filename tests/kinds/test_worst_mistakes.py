"""The worst mistakes of every kind."""

import pytest
import tiny_tasks

from albert_tf.kinds import task_table


def find(kind, gold, predicted, labels=(), task=None):
    task = task or task_table.make_own(kind, labels)
    gold = [{"id": str(number), **row} for number, row in enumerate(gold)]
    predicted = {str(number): row for number, row in enumerate(predicted) if row}
    return task.kind.learn.find_worst_mistakes(task, gold, predicted, 2)


def test_classes_of_which_the_model_is_sure():
    gold = [{"label": label} for label in "aabb"]
    rows = [("b", [0.4, 0.6]), ("a", [0.9, 0.1]), ("a", [0.8, 0.2]), ("a", [0.7, 0.3])]
    predicted = [tiny_tasks.choice(*row) for row in rows]
    mistakes, number = find("classification", gold, predicted, ["a", "b"])
    assert number == 3
    expected = [("2", "b (0.20)", "a (0.80)"), ("3", "b (0.30)", "a (0.70)")]
    assert [mistake[:3] for mistake in mistakes] == expected
    assert [mistake.size for mistake in mistakes] == pytest.approx([0.6, 0.4])


def test_values_that_are_far_and_several_labels():
    gold = [{"label": x} for x in (1.0, 2.0, 3.0)]
    predicted = [{"prediction": x} for x in (1.5, 2.0, 0.25)]
    expected = [("2", "3", "0.25", 2.75, ()), ("0", "1", "1.5", 0.5, ())], 2
    assert find("regression", gold, predicted) == expected
    gold = [{"label": ["a"]}, {"label": []}, {"label": ["a", "b"]}]
    rows = [(["a", "b"], [0.9, 0.6]), (["b"], [0.2, 0.8]), (["a", "b"], [0.9, 0.9])]
    predicted = [tiny_tasks.choice(*row) for row in rows]
    expected = [("1", "none", "b (0.80)", 0.8, ()), ("0", "a", "a (0.90), b (0.60)", 0.6, ())]
    assert find("multi_label", gold, predicted, ["a", "b"]) == (expected, 2)


def test_spans_that_are_missing_or_none():
    text = "Ann saw Bob in Rome"
    gold = [{"text": text, "spans": [[0, 3, "PER"], [8, 11, "PER"], [15, 19, "LOC"]]}]
    spans = [(0, 3, "PER"), (15, 19, "PER")]
    predicted = {"prediction": [{"start": a, "end": b, "type": t} for a, b, t in spans]}
    [mistake], _ = find("token_classification", gold, [predicted], ("O", "B-PER", "B-LOC"))
    assert mistake[:4] == ("0", "Bob = PER, Rome = LOC", "Rome = PER", 3)
    labels = [(a, b, "label") for a, b, _ in gold[0]["spans"]]
    assert mistake.marks == [*labels, (0, 3, "predicted"), (15, 19, "predicted")]


def test_answers():
    context = {"context": "Not a mouse, but the cat."}
    answers = (["the cat", "cat"], [], ["a dog"], ["x"])  # the last was not predicted
    gold = [{"answers": x, "labelled": True, "is_impossible": not x, **context} for x in answers]
    rows = ((("a mouse", 0.75), -1.0), (("a dog", 0.5), -1.0), (("a dog", 0.5), 2.0))
    predicted = [*(tiny_tasks.answer(best, null_odds=odds) for best, odds in rows), None]
    mistakes, number = find("", gold, predicted, task=task_table.get("squad2"))
    places = [(17, 24, "label"), (21, 24, "label"), (4, 11, "predicted")]
    worst = ("0", "the cat / cat", "a mouse", 0.75, places)
    assert (mistakes, number) == ([("2", "a dog", "no answer", 1.0, []), worst], 3)


def test_vectors():
    predicted = [{"prediction": x, "rank": rank} for x, rank in ((0.9, 1), (0.5, 1200), (0.1, 3))]
    expected = [("1", "rank 1", "rank 1,200", 1200, ()), ("2", "rank 1", "rank 3", 3, ())]
    assert find("sentence_embedding", [{"label": None}] * 3, predicted) == (expected, 2)
    gold = [{"label": x} for x in (0.0, 2.5, 5.0)]
    first, second = ("0, rank 1", "0.9, rank 3", 2.0, ()), ("5, rank 3", "0.1, rank 1", 2.0, ())
    expected = [("0", *first), ("2", *second)]
    assert find("sentence_embedding", gold, predicted) == (expected, 2)
