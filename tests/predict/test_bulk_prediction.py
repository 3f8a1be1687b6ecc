"""bin/predict: files of rows, answered as the exported model answers each row alone."""

import csv
import functools
import gzip
import io
import itertools
import json
import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
import tiny_exports
from tiny_records import ALONE, Killed, task

from albert_tf import files
from albert_tf.data_prep.corpus import worker_processes
from albert_tf.data_prep.corpus.shards import Workers
from albert_tf.errors import UserError
from albert_tf.export import saved_model
from albert_tf.predict import bulk_prediction, output_files, predictor

load_once = functools.cache(saved_model.load)
TEXTS = ["a good day", "", "it was so so", "한국어", "good " * 40, "a\u2028b"]
ROWS = [{"id": f"n{k}", "text": text} for k, text in enumerate(TEXTS)]


@pytest.fixture
def export(exported):
    """A function: the folder with the versions of a model of a kind."""
    return lambda kind="classification": os.path.dirname(exported(kind, text=True)[1])


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch):
    monkeypatch.setattr(saved_model, "load", load_once)


@pytest.fixture
def write(tmp_path):
    """A function: writes files, {name: content}, and returns their paths."""

    def write(inputs):
        for name, content in inputs.items():
            (tmp_path / name).write_bytes(content)
        return [str(tmp_path / name) for name in inputs]

    return write


@pytest.fixture
def predict(export, write, tmp_path, monkeypatch):
    """A function: the predictions of files, in blocks of four rows."""
    monkeypatch.setattr(bulk_prediction, "_BLOCK_ROWS", 4)

    def predict(inputs, name="out", workers=ALONE, *, kind="classification", vectors=False):
        num_rows = bulk_prediction.predict(
            export(kind),
            input_files=write(inputs),
            output_dir=str(tmp_path / name),
            batch_size=3,
            workers=workers,
            vectors=vectors,
        )
        blocks = sorted((tmp_path / name).glob("predictions-*.jsonl"))
        # Not splitlines: texts may hold a line separator of Unicode.
        lines = [line for block in blocks for line in block.read_text().split("\n")]
        rows = [json.loads(line) for line in lines if line]
        assert num_rows in (None, len(rows))
        return rows

    return predict


@pytest.fixture
def to_file(export, write, tmp_path):
    """A function: writes the predictions of files to one, and returns its path."""

    def to_file(output, inputs, columns=None):
        bulk_prediction.predict_to_file(
            export(),
            str(tmp_path / output),
            input_files=write(inputs),
            batch_size=3,
            workers=ALONE,
            vectors=False,
            columns=columns,
        )
        return tmp_path / output

    return to_file


def read_table(path):
    with open(path, newline="", encoding="utf-8") as file:
        options = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if path.suffix == ".tsv" else {}
        return list(csv.DictReader(file, strict=True, **options))


def to_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_rows_are_answered_in_their_order(export, predict):
    content = gzip.compress(to_lines(ROWS[:2]) + b"\n" + to_lines(ROWS[2:]))
    answers = predict({"rows.jsonl.gz": content})
    function = tiny_exports.load(export() + "/1").signatures["serving_default"]
    assert len(answers) == len(ROWS)
    for row, answer in zip(ROWS, answers, strict=True):
        outputs = {x: y.numpy()[0] for x, y in function(text=tf.constant([row["text"]])).items()}
        assert (answer["id"], answer["label"]) == (row["id"], outputs["label"].decode())
        labels, values = zip(*answer["probabilities"].items(), strict=True)
        assert [x.encode() for x in labels] == outputs["classes"].tolist()
        np.testing.assert_allclose(values, outputs["probabilities"], atol=1e-5)
        np.testing.assert_allclose(answer["logits"], outputs["logits"], atol=1e-5)
        assert {*answer} == {"id", "label", "logits", "probabilities"}
    numbers = [answer["row"] for answer in predict({"a.jsonl": b'{"text": ""}\n\n' + A}, "b")]
    assert numbers == [1, 3]


def test_tasks_a_kill_and_another_run(predict, tmp_path, monkeypatch, capsys):
    inputs = {
        "a.txt": "\n".join(f"good day {k}" for k in range(10)).encode(),
        "b.jsonl": to_lines(ROWS),
    }
    alone = predict(inputs, "alone")
    names = [row.get("row", row.get("id")) for row in alone]
    assert names == [*range(1, 11), *map("n{}".format, range(6))]
    write = files.write_bytes

    def write_or_die(path, content):
        if "predictions-00000-00002" in path:
            raise Killed
        write(path, content)

    with monkeypatch.context() as context:
        context.setattr(files, "write_bytes", write_or_die)
        with pytest.raises(Killed):
            predict(inputs, "tasks", task(0, 2))
    done = tmp_path / "tasks" / "predictions-00000-00000.jsonl"
    time = done.stat().st_mtime_ns
    predict(inputs, "tasks", task(0, 2))
    assert done.stat().st_mtime_ns == time
    assert "tasks: 1 of 2 sources still wait" in capsys.readouterr().out
    assert predict(inputs, "tasks", task(1, 2)) == alone
    assert predict(inputs, "tasks") == alone
    with pytest.raises(UserError, match="holds work with inputs="):
        predict({"a.txt": b"other"}, "tasks")


def test_one_file_for_all(predict, to_file, tmp_path, monkeypatch):
    inputs = {"b.jsonl": to_lines(ROWS), "a.txt": b"good day\n" * 9}
    alone = predict(inputs)
    output, parts = tmp_path / "all.jsonl.gz", tmp_path / "all.jsonl.gz.parts"
    for module, name in ((files, "rename_synced"), (tf.io.gfile, "rmtree")):
        assert not output.exists()
        with monkeypatch.context() as context:
            context.setattr(module, name, mock.Mock(side_effect=Killed))
            with pytest.raises(Killed):
                to_file(output.name, inputs)
    next(parts.glob("predictions-*")).unlink()
    to_file(output.name, inputs)
    lines = gzip.decompress(output.read_bytes()).decode().split("\n")
    assert [json.loads(line) for line in lines if line] == alone
    assert not parts.exists()
    with pytest.raises(UserError, match=r"all.jsonl.gz already exists. Remove it, or"):
        to_file(output.name, inputs)
    assert to_file("none.jsonl", {"blank.jsonl": b"\n \n"}).read_bytes() == b""


@pytest.mark.full
def test_vectors_are_files_of_their_own(predict, tmp_path):
    inputs = {"a.jsonl": to_lines([{"text": text} for text in TEXTS])}
    predict_vectors = functools.partial(predict, inputs, kind="sentence_embedding")
    alone = predict_vectors()
    expected = np.array([row.pop("embedding") for row in alone])
    assert predict_vectors("npy", vectors=True) == alone
    blocks = sorted((tmp_path / "npy").glob("*.npy"))
    assert [path.stem for path in blocks] == ["predictions-00000-00000", "predictions-00000-00001"]
    arrays = np.concatenate([np.load(path) for path in blocks])
    assert arrays.dtype == np.float32
    np.testing.assert_allclose(arrays, expected, atol=1e-6)
    for name, vectors in (("npy", False), ("out", True)):
        with pytest.raises(UserError, match="holds work with vectors="):
            predict_vectors(name, vectors=vectors)


def test_vectors_are_of_embeddings_alone_and_a_folder_without_any_is_no_claim(predict):
    with pytest.raises(UserError, match="--vectors is for sentence_embedding models"):
        predict({"a.txt": b"good"}, vectors=True)
    assert len(predict({"a.txt": b"good"})) == 1


def test_processes_share_a_file(predict, tmp_path, monkeypatch):
    """Here one after the other, in one process."""
    inputs = {"a.txt": b"good day\n" * 11}
    alone = predict(inputs)
    monkeypatch.setattr(
        worker_processes,
        "run",
        lambda make, arguments, jobs, _: itertools.chain(*map(make(*arguments), jobs)),
    )
    assert predict(inputs, "shared", Workers(num_processes=2)) == alone
    left = sorted(path.name for path in (tmp_path / "shared").iterdir())
    assert left == sorted(path.name for path in (tmp_path / "out").iterdir())
    # Another number of processes resumes it.
    (tmp_path / "shared" / "predictions-00000-00001.jsonl").unlink()
    assert predict(inputs, "shared", Workers(num_processes=3)) == alone


def test_half_a_character_is_replaced_in_a_text_and_kept_in_an_id(predict):
    """Python reads the escape of a surrogate, which TensorFlow does not take."""
    [answer] = predict({"a.jsonl": b'{"id": "\\ud800", "text": "good \\ud800"}\n'})
    [same] = predict({"a.txt": "good \ufffd\n".encode()}, "b")
    assert answer.pop("id") == "\ud800"
    assert answer == {name: value for name, value in same.items() if name != "row"}


def test_a_model_is_a_folder_of_versions_or_one_of_them(export, tmp_path):
    model = Path(export())
    assert predictor.find_version(str(model)) == str(model / "1")
    assert predictor.find_version(str(model / "1")) == str(model / "1")
    assert predictor.find_version(str(tmp_path)) is None


def test_a_table_gets_the_predictions_beside_its_columns(predict, to_file):
    texts = ['a "good", day', "so\nso\r\nday", "a\u2028b", "it"]
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(["review", "label", "id"])
    writer.writerows([text, f"l{k}", f"n{k}"] for k, text in enumerate(texts))
    content = table.getvalue().encode("utf-8-sig")
    columns = {"text_column": "review", "choice_columns": []}
    rows = read_table(to_file("out.csv", {"a.csv": content}, columns))
    rows_of_json = [{"id": f"n{k}", "text": text} for k, text in enumerate(texts)]
    answers = predict({"a.jsonl": to_lines(rows_of_json)})
    assert [row.pop("review") for row in rows] == texts
    for k, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        assert row.pop("id") == answer.pop("id") == f"n{k}"
        assert row.pop("label") == f"l{k}"
        answer["predicted_label"] = answer.pop("label")
        scores = answer.pop("probabilities").items()
        answer |= {f"probability_{label}": x for label, x in scores}
        assert row == {k: x if isinstance(x, str) else json.dumps(x) for k, x in answer.items()}
    assert to_file("none.csv", {"none.in.csv": b"text,label\n"}).read_text() == "text,label\n"


def test_tsv_has_no_quotes_and_choices_are_columns(to_file, monkeypatch):
    asked = []

    def answer(rows):
        asked.extend(rows)
        values = dict(zip("ABCDE", (0.1, 0.3, 0.2, 0.15, 0.25), strict=True))
        return [{"choice": "B", "probabilities": values}] * len(rows)

    inputs = ["passage", "question", "options"]
    model = predictor.Predictor(inputs, False, answer, None)
    monkeypatch.setattr(bulk_prediction, "load", lambda *_: model)
    content = b'story\task\ta\tb\tc\td\te\na "day"\tis it _ ?\tgood\tso\tit\ta\tb\n'
    columns = {"text_column": "story", "second_text_column": "ask", "choice_columns": [*"abcde"]}
    [row] = read_table(to_file("out.tsv", {"a.tsv": content}, columns))
    options = ["good", "so", "it", "a", "b"]
    assert asked == [{"passage": 'a "day"', "question": "is it _ ?", "options": options}]
    assert (row["story"], row["choice"], row["probability_E"]) == ('a "day"', "B", "0.25")


def test_a_label_with_a_tab_is_refused_in_tsv(to_file, monkeypatch):
    monkeypatch.setattr(output_files, "_flatten", lambda answer, row: {"label": "a\tb"})
    inputs = {"a.tsv": b"text\ngood\n"}
    [row] = read_table(to_file("out.csv", inputs))
    assert row["label"] == "a\tb"
    with pytest.raises(UserError, match=r"has a tab .*out.tsv cannot hold. Use an output"):
        to_file("out.tsv", inputs)


def test_blank_lines_spaces_capitals_and_json(to_file, predict):
    """A blank line of a text is a row, and one of a table is none."""
    lines = {"a.txt": b" good \n\n\nday\r\n"}
    assert [x["text"] for x in read_table(to_file("a.csv", lines))] == [" good ", "", "", "day"]
    assert [answer["row"] for answer in predict(lines)] == [1, 2, 3, 4]
    rows = read_table(to_file("B.csv", {"b.csv": b'text\ngood\n""\n\nday\n'}))
    assert [row["text"] for row in rows] == ["good", "", "day"]
    inputs = {
        "A.CSV": b"n,text\n1,good\n2,it\n",
        "a.json": b'\xef\xbb\xbf[{"n": 1, "text": "good"},\n {"n": 2, "text": "it"}]',
        "c.ndjson": b'{"n": 1, "text": "good"}\n{"n": 2, "text": "it"}\n',
    }
    answers = predict({**inputs, "d.json": inputs["c.ndjson"]}, "all")
    for answer in answers:
        answer.pop("row")
    assert answers == answers[:2] * 4
    rows = read_table(to_file("c.csv", {"a.json": inputs["a.json"]}))
    assert [(row["n"], row["text"]) for row in rows] == [("1", "good"), ("2", "it")]


JSONL, CSV = "o.jsonl", "o.csv"
A, AB = b'{"text": "a"}\n', b"text,b\na,b\n"


@pytest.mark.parametrize(
    ("output", "inputs", "columns", "message"),
    [
        (
            JSONL,
            {"a.jsonl": A + b'{"txt": "a"}\n'},
            {},
            "a.jsonl, row 2 has .* --text_column. It has",
        ),
        (JSONL, {"a.jsonl": A + b'{"text": 3}\n'}, {}, "row 2 has no text 'text', which"),
        (JSONL, {"a.jsonl": A + b'["text"]\n'}, {}, "row 2 has no text 'text', which"),
        (JSONL, {"a.jsonl": A + b'{"text": '}, {}, "a.jsonl, row 2 is not JSON"),
        (JSONL, {"a.jsonl": A + to_lines([{"text": "a" * 100_001}])}, {}, "2: .*at most 100000 by"),
        (JSONL, {"a.jsonl": b""}, {}, "has no text. Remove it from --input"),
        (JSONL, {"a.txt": "ä\n".encode("utf-16")}, {}, "a.txt is UTF-16: convert it"),
        (JSONL, {"a.xlsx": b"PK\3\4abc"}, {}, "a.xlsx is a zip archive or a spreadsheet"),
        (
            JSONL,
            {"a.csv.gz": gzip.compress(AB)},
            {},
            "a.csv.gz: compressed .csv files cannot be read",
        ),
        (JSONL, {"a.csv": AB}, {"id_column": "nr"}, "row 2 has no id 'nr'. .* It has text, b."),
        (JSONL, {"a.csv": AB}, {"second_text_column": "b"}, "--second_text_column: the model only"),
        (
            JSONL,
            {"a.csv": AB},
            {"choice_columns": ["b"]},
            "--choice_columns: the model only has the inputs text",
        ),
        ("o.txt", {"a.csv": AB}, {}, "must end with .jsonl, .jsonl.gz, .csv or .tsv"),
        (
            CSV,
            {"a.csv": b"x,y\ngood,b\n"},
            {},
            "which column is the text.* Choose one with --text_c",
        ),
        (
            CSV,
            {"a.csv": b"text\na,b\n"},
            {},
            "line 2: 2 fields, .* has 1. In .csv, quote fields with",
        ),
        (CSV, {"a.csv": b"x;y\na b c;d\n"}, {}, "no column 'text'. .* Save it with commas"),
        (CSV, {"a.jsonl": A}, {}, "o.csv needs the columns of the input, but .*a.jsonl is not"),
        ("o.tsv", {"a.csv": AB}, {}, "a.csv is not a table of its kind"),
        (CSV, {"a.csv": AB, "b.tsv": b"text\tx\na\tb\n"}, {}, "have different columns"),
        (CSV, {"a.json": A + b'{"text": "b", "x": 1}'}, {}, "entry 2 has other fields"),
    ],
)
def test_what_cannot_be_predicted_is_named(to_file, tmp_path, output, inputs, columns, message):
    with pytest.raises(UserError, match=message):
        to_file(output, inputs, columns)
    parts = tmp_path / f"{output}.parts"
    assert not list(parts.glob("*.jsonl")) + list(parts.glob("d*.json"))
