"""SQuAD's JSON: what is refused, and that an answer comes back as it was."""

import json
import re

import numpy as np
import pytest
import tiny_task_data
from refusals import one_line
from tiny_task_data import CONTEXT, question

from albert_tf.data_prep.task_data import task_cache
from albert_tf.kinds import task_table
from albert_tf.kinds.base import TaskSplit
from albert_tf.kinds.spans import span_decoding, squad_metrics
from albert_tf.kinds.spans.qa_windows import AnswerOptions
from albert_tf.kinds.spans.span_features import Answer, Question
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import WordPieceConfig

write = tiny_task_data.write_questions

SATURDAY = {"text": "a mat", "answer_start": 16}


def entry(name="q1", **changes):
    return {"id": name, "question": "Who sat?", "answers": [SATURDAY], **changes}


def official(*entries):
    paragraph = {"context": CONTEXT, "qas": entries}
    return {"version": "x", "data": [{"title": "t", "paragraphs": [paragraph]}]}


@pytest.fixture
def read(tmp_path):
    def read(content, may_be_none=True, is_training=False):
        path = tmp_path / "dev.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        task = task_table.get("squad2" if may_be_none else "squad1")
        name = "train" if is_training else "dev"
        return task_cache.read_examples(TaskSplit(task=task, name=name, input_file=str(path)))

    return read


def test_both_versions_are_read(read):
    content = official(
        entry(),
        entry("q2", answers=[SATURDAY, {"text": "mat", "answer_start": 18}]),
        entry("q3", answers=[], is_impossible=True, plausible_answers=[SATURDAY]),
        {"id": 4, "question": "Where?"},
        entry("q5", answers=[], is_impossible=False),
    )
    mat = Answer("a mat", 16)
    assert read(content) == [
        Question("q1", "Who sat?", CONTEXT, (mat,), False, True),
        Question("q2", "Who sat?", CONTEXT, (mat, Answer("mat", 18)), False, True),
        Question("q3", "Who sat?", CONTEXT, (), True, True),
        Question("4", "Where?", CONTEXT, (), False, False),
        Question("q5", "Who sat?", CONTEXT, (), False, False),
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "is not JSON"),
        ("[]", "Expected `object`, got `array`"),
        ({"data": []}, "has no examples"),
        (
            official({"id": "q1"}),
            "field `question` - at `$.data[0].paragraphs[0].qas[0]`",
        ),
        (
            official(entry(), {"question": "?"}),
            "field `id` - at `$.data[0].paragraphs[0].qas[1]`",
        ),
        (official(entry(question=3)), "got `int` - at `$.data[0].paragraphs[0].qas[0].question`"),
        (
            official(entry(answers=[{"text": "a", "answer_start": 1.5}])),
            "got `float`",
        ),
        (official(entry(), entry()), "the id 'q1' occurs 2 times"),
        (official(entry(answers=[{**SATURDAY, "answer_start": 15}])), "'a mat' is not in its"),
        (official(entry(answers=[{**SATURDAY, "answer_start": -6}])), "at answer_start=-6"),
        (official(entry(answers=[{"text": " ", "answer_start": 3}])), "has an empty answer"),
        (official(entry(is_impossible=True)), "has is_impossible and answers"),
        (official(entry(is_impossible="false")), "Expected `bool`, got `str`"),
        (official(entry(answers={})), "Expected `array`, got `object`"),
    ],
)
def test_bad_files_are_refused_in_one_line(read, content, expected):
    with one_line(f"dev.json.*{re.escape(expected)}|{re.escape(expected)}.*dev.json"):
        read(content)


def test_a_question_must_leave_room(prepare, tmp_path):
    path = tmp_path / "dev.json"
    path.write_text(json.dumps(official(entry())))
    with one_line("max_query_length=7 leaves no room"):
        prepare(str(path), task_table.get("squad1"), "dev", max_seq_length=10, max_query_length=7)
    assert list(tmp_path.iterdir()) == [path]


def test_what_one_task_has_and_another_not(read):
    content = official(entry(), entry("q2", answers=[], is_impossible=True))
    assert len(read(content)) == len(read(content, is_training=True)) == 2
    with one_line("question q2 has no answer"):
        read(content, may_be_none=False)
    content = official(entry(), entry("q7", answers=[]))
    with one_line(r"dev\.json: 1 questions have no answers, for example q7"):
        read(content, is_training=True)


def test_records_of_many_questions_are_in_order(write):
    (count, _), records, examples, cut = write([question(id=str(i)) for i in range(301)])
    assert count == 903
    assert [i for (i,) in records["unique_ids"]] == cut.unique_ids.tolist()
    assert np.diff(cut.unique_ids).tolist() == [1] * 902
    assert [row["id"] for row in examples] == [str(i) for i in range(301)]


TEXTS = [
    ("The ﬁnal oﬃce of the café; ½ of it.", ["ﬁnal", "oﬃce of the café", "½ of it"]),
    ("한국어 문장을 읽고 the cat", ["한국어", "문장을 읽고", "cat"]),
    ("İstanbul e\u0301te\u0301 \u200bzero\u00adwidth 2011, x", ["e\u0301te\u0301", "2011"]),
    ("the 😀 cat 👨‍👩‍👧 said: 日本語 ＡＢＣ", ["😀", "日本語 ＡＢＣ", "cat 👨‍👩‍👧 said"]),
    ("NUL \x00 and x, \u2028 a line\nand \t another", ["NUL \x00 and x", "line\nand \t another"]),
    ("我爱北京的猫 and so on " * 9, ["so on 我爱北京的猫 and"]),
    ("Nothing is known of it.", [None]),
]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "a", "##t", "e", "##te", ","]


def asked_about_texts():
    for context, parts in TEXTS:
        for part in parts:
            answers = () if part is None else (Answer(part, context.rindex(part)),)
            name = f"{context[:9]}: {part}"
            yield Question(name, "the what of it", context, answers, part is None, True)


@pytest.mark.parametrize("kind", ["SentencePiece", "WordPiece"])
@pytest.mark.parametrize("max_seq_length", [31, 250])
def test_an_answer_there_and_back(write, vocabulary_dir, kind, max_seq_length):
    """Logits that know the positions give every answer, as it was."""
    rows = "".join(f"{piece}\n" for piece in WORDS).encode()
    vocabulary = {
        "SentencePiece": lambda: tokenization.load(vocabulary_dir),
        "WordPiece": lambda: tokenization.make_tokenizer(rows, WordPieceConfig()),
    }[kind]()
    lengths = {"max_seq_length": max_seq_length, "doc_stride": 5, "max_query_length": 4}
    _, records, examples, cut = write(list(asked_about_texts()), vocabulary, **lengths)
    columns = {name: np.array(values)[:, 0] for name, values in records.items()}
    outputs = {
        "unique_ids": columns["unique_ids"],
        "start_logits": 9.0 * np.eye(max_seq_length)[columns["start_positions"]],
        "end_logits": 9.0 * np.eye(max_seq_length)[columns["end_positions"]],
    }
    predictions = span_decoding.predict(outputs, cut, examples, AnswerOptions(may_be_none=True))
    for example in examples:
        if example["answers"]:
            assert predictions[example["id"]]["prediction"] == example["answers"][0]
    columns = [
        {name: prediction[key] for name, prediction in predictions.items()}
        for key in ("prediction", "null_odds")
    ]
    scores = squad_metrics.evaluate(examples, *columns)
    assert scores["exact"] == scores["f1"] == scores["best_f1"] == 100
    assert (scores["HasAns_total"], scores["NoAns_total"]) == (14, 1)
