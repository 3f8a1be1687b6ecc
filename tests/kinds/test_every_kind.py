"""What every kind of task keeps: a new one needs a case here."""

import copy
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tiny_task_data
from repository import ROOT

from albert_tf.errors import UserError
from albert_tf.kinds import task_table
from albert_tf.kinds.base import ReplyOptions, Task
from albert_tf.kinds.spans import qa_windows
from albert_tf.kinds.spans.qa_windows import FIRST_ID, Windows, Words
from albert_tf.records import features
from albert_tf.tasks import predictions
from albert_tf.train_config import FinetuneConfig, Lengths

TEXT = "ab cd"  # two words, two tokens


class Case(NamedTuple):
    """A task, two examples, and outputs of a network that is right."""

    task: Task
    gold: list[dict[str, Any]]
    outputs: dict[str, Any]


def make(kind, labels, gold, outputs, task=None):
    rows = [{"id": f"ä{k}", **row} for k, row in enumerate(gold)]
    arrays = {name: np.array(x) for name, x in outputs.items()}
    return Case(task or task_table.make_own(kind, labels), rows, arrays)


def question(*answers):
    return {
        "question": "What?",
        "context": TEXT,
        "answers": list(answers),
        "is_impossible": not answers,
        "labelled": True,
    }


def text(*span):
    return {"text": TEXT, "words": [[0, 2], [3, 5]], "spans": [list(span)], "labelled": True}


SURE = [[9.0, 0.0], [0.0, 9.0]]
SURE_PLACES = [[0.0, 9, 0, 0], [0, 0, 9, 0]]
BEST, PLACES = [[-0.1], [-0.1]], [[1], [2]]
CASES = {
    "classification": make(
        "classification", ["a", "b"], [{"label": "a"}, {"label": "b"}], {"logits": SURE}
    ),
    "regression": make(
        "regression", [], [{"label": 1.0}, {"label": 2.5}], {"logits": [[1.0], [2.5]]}
    ),
    "multiple_choice": make(
        "multiple_choice", ["A", "B"], [{"label": "A"}, {"label": "B"}], {"logits": SURE}
    ),
    "span": make(
        "span",
        [],
        [question("ab"), question("cd", "ab cd")],
        {"start_logits": SURE_PLACES, "end_logits": SURE_PLACES},
        task_table.get("squad1"),
    ),
    "span_or_none": make(
        "span_or_none",
        [],
        [question("ab"), question()],
        {
            **dict.fromkeys(("start_top_log_probs", "end_top_log_probs"), BEST),
            **dict.fromkeys(("start_top_index", "end_top_index"), PLACES),
            "cls_logits": [-5.0, 5.0],
        },
        task_table.get("squad2"),
    ),
    "sentence_embedding": make(
        "sentence_embedding",
        [],
        [{"label": None, "texts": [0, 1]}, {"label": None, "texts": [2, 3]}],
        {"embedding": [[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]]},
    ),
    "token_classification": make(
        "token_classification",
        ["O", "B-X", "I-X"],
        [text(0, 2, "X"), text(3, 5, "X")],
        {"logits": 9.0 * np.eye(3)[[[0, 1, 0, 0], [0, 0, 1, 0]]]},
    ),
    "multi_label": make(
        "multi_label",
        ["x", "y"],
        [{"label": ["x"]}, {"label": ["x", "y"]}, {"label": ["y"]}],
        {"logits": [[9.0, -9.0], [9.0, 9.0], [-9.0, 9.0]]},
    ),
}
every_kind = pytest.mark.parametrize("name", task_table.KINDS)


def decode(case):
    columns = ([0, 1], [1, 1], [2, 2], [0, 2], [1, 1], [3, 3], [0, 3, 0, 3], [2, 5, 2, 5])
    windows = Windows(FIRST_ID + np.arange(2), *map(np.array, columns))
    words = Words(*map(np.array, ([0, 0, 1, 1], [0, 3, 0, 3], [2, 5, 2, 5], [0, 1, 2, 3])))
    arrays = {qa_windows.WINDOWS: windows, qa_windows.WORDS: words}
    options = ReplyOptions(run_config=FinetuneConfig(), labels=case.task.labels)
    return case.task.kind.answer.decode(case.outputs, case.gold, options, arrays)


def test_every_kind_has_a_case():
    assert [*CASES] == [*task_table.KINDS]
    assert all(case.task.kind is task_table.KINDS[name] for name, case in CASES.items())


@every_kind
def test_a_network_that_is_right_has_the_best_score_and_makes_no_mistake(name):
    case = CASES[name]
    task, kind = case.task, case.task.kind
    predicted = decode(case)
    scores = predictions.score(task, case.gold, predicted)
    best_by = kind.learn.choose_best_by(task, case.gold)
    best = 100 if kind.learn.is_percent else 1
    assert {metric: scores[metric] for metric in {*task.metrics, best_by}} == pytest.approx(
        dict.fromkeys({*task.metrics, best_by}, best)
    )
    assert kind.learn.find_worst_mistakes(task, case.gold, predicted, 5) == ([], 0)
    table = kind.learn.score_labels(task, case.gold, predicted)
    assert [*table] == [*kind.learn.list_types(task.labels)]
    assert all(row["f1"] == 1 for row in table.values())
    if confusions := kind.learn.count_confusions(task, case.gold, predicted):
        assert all(one == other for one, other in confusions.pairs)
    thresholds = kind.learn.tune_thresholds(task, case.gold, predicted)
    assert kind.learn.apply_thresholds(task, predicted, thresholds) == predicted
    predictions.warn_if_constant(task, case.gold, predicted, 0.1)


@every_kind
def test_predictions_are_checked_and_kept(name, tmp_path):
    case = CASES[name]
    task, answer = case.task, case.task.kind.answer
    predicted = decode(case)
    path = str(tmp_path / "found.json")
    predictions.write(path, task, predicted, split="dev", checkpoint="run/best/ckpt-7")
    content = predictions.read(path)
    assert content["predictions"] == predicted
    assert task_table.from_header(content) == task
    for prediction in predicted.values():
        # Ranks cannot be told from cosines alone.
        assert answer.is_plain(prediction["prediction"], task.labels) != answer.gives_vectors
        assert all(isinstance(line, str) for line in answer.describe(prediction, task.labels))
        for field in prediction:
            assert not answer.is_sound({**prediction, field: object()}, task.labels)
    assert not answer.is_plain(object(), task.labels)
    with pytest.raises(UserError, match="does not fit the kind"):
        predictions.write(path, task, {"ä0": {}}, split="dev", checkpoint="c")


@every_kind
def test_an_ensemble_of_equals_is_as_each(name):
    case = CASES[name]
    [first, *_] = decode(case).values()
    if name == "sentence_embedding":
        with pytest.raises(UserError, match="cannot be averaged"):
            case.task.kind.answer.average([first], case.task.labels)
        return
    average = case.task.kind.answer.average([copy.deepcopy(first), first], case.task.labels)
    assert case.task.kind.answer.is_sound(average, case.task.labels)
    assert average["prediction"] == first["prediction"]


@every_kind
def test_labels_are_as_the_features_say(name):
    case = CASES[name]
    spec = case.task.make_features(7)
    assert {"input_ids", "input_mask", "segment_ids"} < spec.keys()
    if "label" not in case.gold[0] or case.task.kind.answer.gives_vectors:
        return
    values = [tuple(x) if isinstance(x, list) else x for x in (x["label"] for x in case.gold)]
    ids = case.task.kind.data.make_label_ids([*values, None], case.task.labels)
    feature = spec[features.LABEL_IDS]
    assert ids.shape == (len(values) + 1, *feature.shape)
    assert (ids.dtype.kind == "f") == feature.dtype.is_floating


@every_kind
def test_records_have_the_features(name):
    kind, task = CASES[name].task.kind, CASES[name].task
    example = kind.data.make_example("ä", ("the cats sat",) * (kind.data.count_texts(task) or 1))
    lengths = Lengths(max_seq_length=16, max_query_length=4, max_qa_length=5)
    tokenizer = tiny_task_data.make_question_tokenizer()
    records = kind.data.encode([example], tokenizer, task.labels, lengths, trains=True)
    batch = records.make_batch(slice(None))
    spec = task.make_features(16)
    assert {name: list(array.shape) for name, array in batch.items()} == {
        name: [records.size, *feature.shape] for name, feature in spec.items()
    }
    assert [line["id"] for line in records.lines] == ["ä"]
    assert {*records.arrays} == {*kind.data.files}


def test_kinds_are_known_without_tensorflow():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('tensorflow', 'keras')));"
        "import albert_tf.kinds.task_table"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_kind_of_the_page_for_contributors_is_one_file():
    page = (ROOT / "docs/research/adding_a_kind.md").read_text(encoding="utf-8")
    module: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], module)
    kind, labels = module["KIND"], ("bad", "fair", "good")
    task = Task("own", kind, labels, kind.learn.metrics)
    gold = [{"id": label, "label": label} for label in labels]
    logits = tf.constant([[9.0, 0, 0]] * 3)
    loss = kind.learn.make_loss(FinetuneConfig())
    losses = []
    for label_id in kind.data.make_label_ids(labels, labels):
        batch = {
            features.INPUT_IDS: tf.ones([3, 2], tf.int32),
            features.LABEL_IDS: tf.constant([label_id] * 3),
        }
        losses.append(float(loss.sums({"logits": logits}, batch)["ordinal_loss"]))
    assert losses == pytest.approx([0, 3, 6], abs=0.01)  # twice as bad if twice as far
    options = ReplyOptions(run_config=FinetuneConfig(), labels=labels)
    predicted = kind.answer.decode({"logits": 9.0 * np.eye(3)}, gold, options, {})
    assert predictions.score(task, gold, predicted) == pytest.approx({"spearman": 1, "accuracy": 1})
