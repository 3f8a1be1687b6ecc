"""The records of classification, regression and multiple choice, token for token."""

import itertools

import numpy as np
import pytest
from tiny_task_data import CHOICES, LONG, QUESTION, ROWS, TASK, S, read_examples, read_records

from albert_tf.kinds import task_table
from albert_tf.kinds.tables.task_rows import Columns
from albert_tf.kinds.text_data import truncate_pair
from albert_tf.records import features, manifest


def rows_of(tokenizer, *texts):
    """ids, mask and segments of [CLS] text [SEP] (text [SEP]), each as long as it is."""
    ids, segments = [tokenizer.cls_id], [0]
    for segment, tokens in enumerate(texts):
        ids += [*tokens, tokenizer.sep_id]
        segments += [segment] * (len(tokens) + 1)
    return ids, [1] * len(ids), segments


def assert_row(arrays, row, expected):
    names = (features.INPUT_IDS, features.INPUT_MASK, features.SEGMENT_IDS)
    for name, values in zip(names, expected, strict=True):
        array = arrays[name][row]
        assert array.tolist() == values + [0] * (len(array) - len(values)), name


def test_pairs(write_rows, prepare, tokenizer):
    arrays = read_records(prepare(write_rows(ROWS)))
    first, second = tokenizer.encode("The lamp"), tokenizer.encode("a rock")
    assert_row(arrays, 0, rows_of(tokenizer, first, second))
    second = tokenizer.encode("the sea")
    long = tokenizer.encode(LONG)[: S - 3 - len(second)]
    assert_row(arrays, 1, rows_of(tokenizer, long, second))
    third = tokenizer.encode("a")
    assert_row(arrays, 2, rows_of(tokenizer, third, third))
    assert arrays[features.LABEL_IDS].tolist() == [[1], [0], [1]]


def test_single_texts(write_rows, prepare, tokenizer):
    folder = prepare(write_rows(ROWS), columns=Columns())
    arrays = read_records(folder)
    assert_row(arrays, 0, rows_of(tokenizer, tokenizer.encode("The lamp")))
    assert_row(arrays, 1, rows_of(tokenizer, tokenizer.encode(LONG)[: S - 2]))
    assert manifest.read(folder)["statistics"]["truncated"] == 1


def test_pairs_are_truncated_as_if_token_by_token():
    for first, second, room in itertools.product(range(12), range(12), range(2, 14)):
        expected = [first, second]
        while sum(expected) > room:
            expected[expected[0] <= expected[1]] -= 1
        assert truncate_pair(first, second, room) == tuple(expected)


def test_multiple_choice(write_rows, prepare, tokenizer):
    task = task_table.make_own("multiple_choice", ["A", "B", "C"])
    rows = [{**QUESTION, "label": "C"}, {**QUESTION, "text": "The sea", "label": "A"}]
    folder = prepare(write_rows(rows), task, columns=CHOICES, max_qa_length=6)
    arrays = read_records(folder, task, num_choices=3)
    assert arrays[features.LABEL_IDS].tolist() == [[2], [0]]
    del arrays[features.LABEL_IDS]
    arrays = {name: value.reshape(2, 3, S) for name, value in arrays.items()}
    for choice, option in enumerate("xyz"):
        ending = tokenizer.encode(QUESTION["question"].replace("_", QUESTION[option]))[-6:]
        for row, text in enumerate((LONG, "The sea")):
            passage = tokenizer.encode(text)[: S - 3 - len(ending)]
            assert_row(arrays, (row, choice), rows_of(tokenizer, passage, ending))
    statistics = manifest.read(folder)["statistics"]
    assert statistics == {"examples": 2, "skipped_rows": 0, "truncated": 1, "truncated_endings": 2}


def test_regression(write_rows, prepare):
    task = task_table.make_own("regression")
    path = write_rows([{"text": "a", "label": 3.8}, {"text": "b", "label": -1}])
    folder = prepare(path, task, columns=Columns())
    labels = read_records(folder, task)[features.LABEL_IDS]
    np.testing.assert_array_equal(labels, np.array([[3.8], [-1]], np.float32))
    assert read_examples(folder) == [{"id": "0", "label": 3.8}, {"id": "1", "label": -1.0}]


@pytest.mark.parametrize(
    "task", [TASK, task_table.make_own("regression")], ids=lambda task: task.kind
)
def test_examples_without_labels_store_0_and_null(write_rows, prepare, task):
    rows = [{"text": "a", "name": "é"}, {"text": "b", "name": "ü"}]
    folder = prepare(write_rows(rows), task, "test", columns=Columns(id="name"))
    assert read_records(folder, task)[features.LABEL_IDS].tolist() == [[0], [0]]
    assert read_examples(folder) == [{"id": "é", "label": None}, {"id": "ü", "label": None}]
