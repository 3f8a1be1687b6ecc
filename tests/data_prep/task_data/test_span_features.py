"""Questions to windows: what a model reads, and where the answer is in it."""

import numpy as np
import pytest
import tiny_task_data
from tiny_task_data import CONTEXT, question

from albert_tf.kinds.spans import span_features
from albert_tf.kinds.spans.span_features import Tokens
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import Lengths

write = tiny_task_data.write_questions


def test_answers_in_no_window_are_counted(write):
    questions = [question(), question(CONTEXT.rstrip("."), 0, id="q2"), question("", id="q3")]
    (_, counts), records, *_ = write(questions)
    assert counts["answers_in_no_window"] == 1
    assert records["start_positions"] == [[6], *[[0]] * 8]
    assert "answers_in_no_window" not in write(questions, max_seq_length=20)[0][1]


def test_windows_of_a_long_context(write):
    written, records, examples, cut = write([question()])
    # who sat ? | the cat ##s sat on a mat .
    query, context = [5, 6, 7], [8, 9, 10, 6, 11, 12, 13, 14]
    assert records == {
        "input_ids": [[2, *query, 3, *context[i : i + 4], 3] for i in (0, 2, 4)],
        "input_mask": [[1] * 10] * 3,
        "segment_ids": [[0] * 5 + [1] * 5] * 3,
        "p_mask": [[0] + [1] * 4 + [0] * 4 + [1]] * 3,
        "unique_ids": [[1_000_000_000], [1_000_000_001], [1_000_000_002]],
        "start_positions": [[6], [0], [0]],
        "end_positions": [[7], [0], [0]],
        "is_impossible": [[0], [1], [1]],
    }
    assert written == (
        3,
        {"windows": 3, "truncated_questions": 0, "inexact_answers": 0, "windows_without_answer": 2},
    )
    text = {"id": "q1", "question": "Who sat?", "context": CONTEXT, "answers": ["cats"]}
    assert examples == [text | {"is_impossible": False, "labelled": True}]
    assert {name: array.tolist() for name, array in cut._asdict().items()} == {
        "unique_ids": [1_000_000_000, 1_000_000_001, 1_000_000_002],
        "questions": [0, 0, 0],
        "firsts": [5, 5, 5],
        "lengths": [4, 4, 4],
        "tokens": [0, 2, 4],
        "best_begins": [5, 6, 6],
        "best_ends": [8, 8, 9],
        "token_starts": [0, 4, 7, 9, 13, 16, 18, 21],
        "token_ends": [3, 7, 8, 12, 15, 17, 21, 22],
    }


def test_padding(write):
    _, records, _, _ = write([question()], max_seq_length=17)
    assert records["input_ids"] == [[2, 5, 6, 7, 3, 8, 9, 10, 6, 11, 12, 13, 14, 3, 0, 0, 0]]
    assert records["input_mask"] == [[1] * 14 + [0] * 3]
    assert records["segment_ids"] == [[0] * 5 + [1] * 9 + [0] * 3]
    assert records["p_mask"] == [[0] + [1] * 4 + [0] * 8 + [1] * 4]


@pytest.mark.parametrize(
    ("changes", "is_impossible"), [({}, 1), ({"is_impossible": False, "labelled": False}, 0)]
)
def test_no_answer_is_at_the_first_position(write, changes, is_impossible):
    _, records, examples, _ = write([question("", **changes)], max_seq_length=17)
    assert records["start_positions"] == records["end_positions"] == [[0]]
    assert records["is_impossible"] == [[is_impossible]]
    assert examples[0]["answers"] == []


def test_a_long_question_loses_its_end_and_is_counted(write):
    long = question(question="Where who sat?")
    (_, counts), records, _, _ = write([question(), long], max_seq_length=17)
    assert records["input_ids"][1][:5] == [2, 15, 5, 6, 3]
    assert counts["truncated_questions"] == 1


def test_several_questions_about_several_contexts(write):
    other = "Where?"
    questions = [
        question("", id="a", context=other, is_impossible=False, labelled=False),
        question("mat", 18, id="b"),
        question("Where", 0, id="c", question="", context=other),
        question("", id="d", context=" "),
    ]
    _, records, examples, cut = write(questions)
    assert [row["id"] for row in examples] == ["a", "b", "c", "d"]
    assert cut.questions.tolist() == [0, 1, 1, 1, 2, 3]
    # Each context is kept once.
    assert cut.token_ends.tolist() == [5, 6, 3, 7, 8, 12, 15, 17, 21, 22]
    assert cut.tokens.tolist() == [0, 2, 4, 6, 0, 10]
    assert records["input_ids"][4] == [2, 3, 15, 7, 3, 0, 0, 0, 0, 0]
    assert records["input_ids"][5] == [2, 5, 6, 7, 3, 3, 0, 0, 0, 0]
    assert records["start_positions"] == [[0], [0], [0], [7], [2], [0]]


@pytest.mark.parametrize(
    ("text", "start", "tokens", "is_exact"),
    [
        ("cats", 4, (1, 2), True),
        (" cats ", 3, (1, 2), True),
        ("cat", 4, (1, 1), True),
        ("at", 5, (1, 1), False),
        ("ts s", 6, (1, 3), False),
        ("mat.", 18, (6, 7), True),
    ],
)
def test_the_tokens_of_an_answer(text, start, tokens, is_exact, write):
    (_, counts), records, _, _ = write([question(text, start)], max_seq_length=17)
    assert records["start_positions"] == [[tokens[0] + 5]]
    assert records["end_positions"] == [[tokens[1] + 5]]
    assert counts["inexact_answers"] == (not is_exact)


TEXTS = [
    "The ﬁnal oﬃce of the café; ½ of it, the Ωmega.",
    "한국어 문장을 읽고 쓴다. 가각 the cat",
    "İstanbul e\u0301te\u0301 \u200bzero\u00adwidth the\u00a0end 40,000 2011, x",
    "the 😀 cat 👨‍👩‍👧 said: 我爱北京 “the” ＡＢＣ",
    "NUL \x00 and \x00x, \u2028 a line\nand \t another  ",
]


def test_an_answer_is_the_smallest_part_that_pieces_can_give(vocabulary_dir):
    vocabulary = tokenization.load(vocabulary_dir)
    questions = [
        question(text[begin:end], begin, context=text)
        for text in TEXTS
        for begin in range(len(text))
        for end in range(begin + 1, len(text) + 1)
        if text[begin:end].strip()
    ]
    tokens = span_features.tokenize(questions, vocabulary, 3)
    windows = span_features.split_into_windows(tokens, Lengths(max_seq_length=150, doc_stride=10))
    labels = span_features.label(questions, tokens, windows)
    assert not labels.is_impossible.any()
    assert 0.02 < labels.is_exact.mean() < 0.9
    for row, labelled in enumerate(questions):
        context = slice(tokens.begins[row], tokens.begins[row] + tokens.lengths[row])
        starts, ends = tokens.starts[context], tokens.ends[context]
        first = labels.start_positions[row] - windows.firsts[row]
        last = labels.end_positions[row] - windows.firsts[row]
        text = labelled.answers[0].text.strip()
        begin = labelled.context.index(text, labelled.answers[0].start)
        expected = np.flatnonzero((starts < begin + len(text)) & (ends > begin))
        if len(expected):
            assert (first, last) == (expected[0], expected[-1])
        part = labelled.context[starts[first] : ends[last]].strip()
        assert labels.is_exact[row] == (part == text)


def published_windows(length, room, stride):
    """Starts and lengths, and the window with most context for every token; token by token."""
    spans, start = [], 0
    while start < length:
        size = min(length - start, room)
        spans.append((start, size))
        if start + size == length:
            break
        start += min(size, stride)
    best = []
    for token in range(length):
        scores = [
            (min(token - start, start + size - 1 - token) + 0.01 * size, -i)
            for i, (start, size) in enumerate(spans)
            if start <= token < start + size
        ]
        best.append(-max(scores)[1])
    return spans, best


def test_windows_are_those_of_the_published_loop():
    rng = np.random.default_rng(0)
    # A last window that is a hundred tokens shorter loses a token's worth of context.
    sizes = [(700, 384, 128), (640, 260, 100), (1000, 201, 37), (5, 7, 1), (8, 7, 9)]
    sizes += [(int(rng.integers(1, 60)), int(rng.integers(1, 30)), 7) for _ in range(50)]
    for length, room, stride in sizes:
        tokens = Tokens(
            queries=[[5, 6]],
            num_truncated=0,
            ids=np.arange(length),
            starts=np.arange(length),
            ends=np.arange(length) + 1,
            begins=np.array([0]),
            lengths=np.array([length]),
            cls_id=2,
            sep_id=3,
        )
        lengths = Lengths(max_seq_length=room + 5, doc_stride=stride)
        windows = span_features.split_into_windows(tokens, lengths)
        spans, best = published_windows(length, room, stride)
        assert list(zip(windows.tokens.tolist(), windows.lengths.tolist(), strict=True)) == spans
        for i, (start, _) in enumerate(spans):
            positions = np.arange(windows.best_begins[i], windows.best_ends[i])
            indices = positions - windows.firsts[i] + start
            assert indices.tolist() == [t for t, window in enumerate(best) if window == i]
