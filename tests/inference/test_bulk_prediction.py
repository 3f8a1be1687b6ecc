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
from tiny_records import Killed

from albert_tf import files
from albert_tf.data_prep.corpus import worker_processes
from albert_tf.data_prep.corpus.shards import Driver
from albert_tf.errors import UserError
from albert_tf.export import saved_model
from albert_tf.inference import bulk_prediction

load_once = functools.cache(saved_model.load)
ALONE = Driver(num_processes=1)
TEXTS = ["a good day", "", "it was so so", "한국어", "good " * 40, "a\u2028b"]
ROWS = {
    "classification": [{"id": f"n{k}", "text": text} for k, text in enumerate(TEXTS)],
    "sentence_embedding": [{"text": text} for text in TEXTS],
    "fill_mask": [{"text": text} for text in ["a [MASK] day", "a day", "[MASK] or [MASK]"]],
    "span_or_none": [
        {"question": "who came?", "context": "ann came late " * count} for count in (1, 30, 2)
    ],
    "token_classification": [{"text": text} for text in TEXTS],
    "multiple_choice": [
        {
            "passage": "a day " * count,
            "question": "is it _ ?",
            "options": ["good", "so", "it", "a", "b"],
        }
        for count in (5, 1)
    ],
}


CHOICES = {"choice_columns": ["a", "b", "c", "d", "e"]}


@pytest.fixture
def export(exported):
    """A function: the folder with the versions of a model of a kind."""
    return lambda kind: os.path.dirname(exported(kind, text=True)[1])


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch):
    monkeypatch.setattr(saved_model, "load", load_once)


@pytest.fixture
def predict(tmp_path, monkeypatch):
    monkeypatch.setattr(bulk_prediction, "_BLOCK_ROWS", 4)

    def predict(model, inputs, name="out", driver=ALONE, batch_size=3, vectors=None):
        """Returns the predictions of all files; inputs are files' names and contents."""
        for path, content in inputs.items():
            (tmp_path / path).write_bytes(content)
        paths = [str(tmp_path / path) for path in inputs]
        num_rows = bulk_prediction.predict(
            model,
            input_files=paths,
            output_dir=str(tmp_path / name),
            batch_size=batch_size,
            driver=driver,
            vectors=vectors,
        )
        rows = read(tmp_path / name)
        assert num_rows in (None, len(rows))
        return rows

    return predict


def read(folder):
    shards = sorted(folder.glob("predictions-*.jsonl"))
    # Not splitlines: texts may hold a line separator of Unicode.
    lines = [line for shard in shards for line in shard.read_text().split("\n")]
    return [json.loads(line) for line in lines if line]


def to_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize(
    "kind",
    [
        "classification",
        pytest.param("fill_mask", marks=pytest.mark.full),
        pytest.param("span_or_none", marks=pytest.mark.full),
        pytest.param("multiple_choice", marks=pytest.mark.full),
        pytest.param("token_classification", marks=pytest.mark.full),
    ],
)
def test_rows_are_answered_in_their_order(export, predict, kind):
    rows = ROWS[kind]
    content = gzip.compress(to_lines(rows[:2]) + b"\n" + to_lines(rows[2:]))
    answers = predict(export(kind), {"rows.jsonl.gz": content})
    function = tiny_exports.load(export(kind) + "/1").signatures["serving_default"]
    assert len(answers) == len(rows)
    for number, (row, answer) in enumerate(zip(rows, answers, strict=True), 1):
        identity = {"id": row["id"]} if "id" in row else {"row": number + (number > 2)}
        assert {name: answer.pop(name) for name in identity} == identity
        outputs = dict(function(**{n: tf.constant([x]) for n, x in row.items() if n != "id"}))
        classes = outputs.pop("classes", None)
        if classes is not None:
            labels, answer["probabilities"] = zip(*answer["probabilities"].items(), strict=True)
            assert [x.encode() for x in labels] == classes.numpy()[0].tolist()
        assert outputs.keys() == answer.keys()
        for name, value in outputs.items():
            value = value[0]
            if value.dtype.is_floating:
                given = np.reshape(answer[name], value.shape)
                np.testing.assert_allclose(given, value.numpy(), atol=1e-5)
            else:
                given = tf.constant(answer[name], value.dtype, value.shape)
                assert tf.reduce_all(tf.equal(given, value))


def test_tasks_a_kill_and_another_run(export, predict, tmp_path, monkeypatch, capsys):
    model = export("classification")
    inputs = {
        "a.txt": "\n".join(f"good day {k}" for k in range(10)).encode(),
        "b.jsonl": to_lines(ROWS["classification"]),
    }
    alone = predict(model, inputs, "alone")
    names = [row.get("row", row.get("id")) for row in alone]
    assert names == [*range(1, 11), *map("n{}".format, range(6))]
    write, calls = files.write_bytes, []

    def write_or_die(path, content):
        calls.append(path)
        if "predictions-00000-00002" in path:
            raise Killed
        write(path, content)

    with monkeypatch.context() as context:
        context.setattr(files, "write_bytes", write_or_die)
        with pytest.raises(Killed):
            predict(model, inputs, "tasks", Driver(num_processes=1, num_tasks=2))
    done = tmp_path / "tasks" / "predictions-00000-00000.jsonl"
    time = done.stat().st_mtime_ns
    tasks = [Driver(num_processes=1, num_tasks=2, task_index=index) for index in range(2)]
    predict(model, inputs, "tasks", tasks[0])
    assert done.stat().st_mtime_ns == time
    assert "tasks: 1 of 2 sources are not done" in capsys.readouterr().out
    assert predict(model, inputs, "tasks", tasks[1]) == alone
    assert predict(model, inputs, "tasks") == alone
    with pytest.raises(UserError, match="holds work with inputs="):
        predict(model, {"a.txt": b"other"}, "tasks")


def test_one_file_for_all(export, predict, tmp_path, monkeypatch, capsys):
    model, rows = export("classification"), ROWS["classification"]
    inputs = {"b.jsonl": to_lines(rows), "a.txt": b"good day\n" * 9}
    alone = predict(model, inputs)
    output = tmp_path / "all.jsonl.gz"
    arguments = {
        "input_files": [str(tmp_path / path) for path in inputs],
        "batch_size": 3,
        "driver": ALONE,
        "vectors": None,
    }

    def predict_to_file():
        bulk_prediction.predict_to_file(model, str(output), **arguments)

    def kill_in(module, name):
        with monkeypatch.context() as context:
            context.setattr(module, name, mock.Mock(side_effect=Killed))
            with pytest.raises(Killed):
                predict_to_file()

    kill_in(files, "rename_synced")
    assert not output.exists()
    kill_in(tf.io.gfile, "rmtree")
    assert f"{output}: 15 rows" not in capsys.readouterr().out
    next((tmp_path / "all.jsonl.gz.parts").glob("predictions-*")).unlink()
    predict_to_file()
    lines = gzip.decompress(output.read_bytes()).decode().split("\n")
    assert [json.loads(line) for line in lines if line] == alone
    assert not (tmp_path / "all.jsonl.gz.parts").exists()
    with pytest.raises(UserError, match=r"all.jsonl.gz is there already. Remove it, or"):
        predict_to_file()
    (tmp_path / "a.jsonl").write_text("\n \n")
    arguments["input_files"] = [str(tmp_path / "a.jsonl")]
    bulk_prediction.predict_to_file(model, str(tmp_path / "none.jsonl"), **arguments)
    assert (tmp_path / "none.jsonl").read_bytes() == b""


@pytest.mark.full
def test_vectors_are_files_of_their_own(export, predict, tmp_path):
    model, inputs = export("sentence_embedding"), {"a.jsonl": to_lines(ROWS["sentence_embedding"])}
    alone = predict(model, inputs)
    expected = np.array([row.pop("embedding") for row in alone])
    assert predict(model, inputs, "npy", vectors=True) == alone
    blocks = sorted((tmp_path / "npy").glob("*.npy"))
    assert [path.stem for path in blocks] == ["predictions-00000-00000", "predictions-00000-00001"]
    arrays = np.concatenate([np.load(path) for path in blocks])
    assert arrays.dtype == np.float32
    np.testing.assert_allclose(arrays, expected, atol=1e-6)
    with pytest.raises(UserError, match="holds work with vectors="):
        predict(model, inputs, "npy")
    with pytest.raises(UserError, match="holds work with vectors="):
        predict(model, inputs, "out", vectors=True)


def test_vectors_are_of_embeddings_alone_and_a_folder_without_any_is_no_claim(export, predict):
    with pytest.raises(UserError, match="--vectors is for models of sentence_embedding"):
        predict(export("classification"), {"a.txt": b"good"}, vectors=True)
    assert len(predict(export("classification"), {"a.txt": b"good"})) == 1


def test_processes_share_a_file(export, predict, tmp_path, monkeypatch):
    """Here one after the other, in one process."""
    model, inputs = export("classification"), {"a.txt": b"good day\n" * 11}
    alone = predict(model, inputs)
    monkeypatch.setattr(
        worker_processes,
        "run",
        lambda make, arguments, jobs, _: itertools.chain(*map(make(*arguments), jobs)),
    )
    assert predict(model, inputs, "shared", Driver(num_processes=2)) == alone
    left = sorted(path.name for path in (tmp_path / "shared").iterdir())
    assert left == sorted(path.name for path in (tmp_path / "out").iterdir())
    # Another number of processes resumes it.
    (tmp_path / "shared" / "predictions-00000-00001.jsonl").unlink()
    assert predict(model, inputs, "shared", Driver(num_processes=3)) == alone


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"text": "a"}\n{"txt": "a"}\n', "a.jsonl, row 2: it has no text 'text', which"),
        (b'{"text": "a"}\n{"text": 3}\n', "a.jsonl, row 2: it has no text 'text', which"),
        (b'{"text": "a"}\n["text"]\n', "a.jsonl, row 2: it has no text 'text', which"),
        (b'{"text": "a"}\n{"text": ', "a.jsonl, row 2 is not JSON"),
        (to_lines([{"text": "a"}, {"text": "a" * 100_001}]), r"row 2: .*at most 100000 bytes"),
        (b'{"text": "a"}\n{"text": "a", "id": NaN}\n', r"row 2: its id nan has no place in JSON"),
        (b"", "has no text. Remove it from --input"),
    ],
)
def test_a_bad_row_is_named(export, predict, tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        predict(export("classification"), {"a.jsonl": content})
    assert not list((tmp_path / "out").glob("*.jsonl")) + list((tmp_path / "out").glob("d*.json"))


def test_half_a_character_is_replaced_in_a_text_and_kept_in_an_id(export, predict):
    """Python reads the escape of a surrogate, which TensorFlow does not take."""
    content = b'{"id": "\\ud800", "text": "good \\ud800"}\n'
    [answer] = predict(export("classification"), {"a.jsonl": content})
    [same] = predict(export("classification"), {"a.txt": "good \ufffd\n".encode()}, name="b")
    assert answer.pop("id") == "\ud800"
    assert answer == {name: value for name, value in same.items() if name != "row"}


def test_a_folder_that_is_no_model(export, predict, tmp_path):
    with pytest.raises(UserError, match=r" is none of: a checkpoint of this project; "):
        predict(str(tmp_path), {"a.txt": b"a"})
    model = Path(export("classification"))
    assert bulk_prediction.find_version(str(model)) == str(model / "1")
    assert bulk_prediction.find_version(str(model / "1")) == str(model / "1")


@pytest.fixture
def fill_table(export, tmp_path):
    """A function: the table of the predictions of files, and what `bulk_prediction` gives alone."""

    def fill_table(kind, output, inputs, columns=None):
        for path, content in inputs.items():
            (tmp_path / path).write_bytes(content)
        bulk_prediction.predict_to_file(
            export(kind),
            str(tmp_path / output),
            input_files=[str(tmp_path / path) for path in inputs],
            batch_size=3,
            driver=ALONE,
            vectors=None,
            columns=columns,
        )
        with open(tmp_path / output, newline="", encoding="utf-8") as file:
            if output.endswith(".tsv"):
                lines = [line.split("\t") for line in file.read().removesuffix("\n").split("\n")]
                return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
            return list(csv.DictReader(file, strict=True))

    return fill_table


def test_a_table_gets_the_predictions_beside_its_columns(export, predict, fill_table):
    texts = ['a "good", day', "so\nso\r\nday", "a\u2028b", "it"]
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(["review", "label", "id"])
    writer.writerows([text, f"l{k}", f"n{k}"] for k, text in enumerate(texts))
    content = table.getvalue().encode("utf-8-sig")
    columns = {"text_column": "review", "choice_columns": []}
    rows = fill_table("classification", "out.csv", {"a.csv": content}, columns)
    rows_of_json = [{"id": f"n{k}", "text": text} for k, text in enumerate(texts)]
    answers = predict(export("classification"), {"a.jsonl": to_lines(rows_of_json)})
    assert [row["review"] for row in rows] == texts
    assert [row["id"] for row in rows] == ["n0", "n1", "n2", "n3"]
    for row, answer in zip(rows, answers, strict=True):
        del row["review"], row["id"], answer["id"]
        assert row.pop("label").startswith("l")
        answer["predicted_label"] = answer.pop("label")
        scores = answer.pop("probabilities").items()
        answer |= {f"probability_{label}": x for label, x in scores}
        assert row == {k: x if isinstance(x, str) else json.dumps(x) for k, x in answer.items()}


def test_tsv_has_no_quotes_and_choices_are_columns(fill_table):
    content = b'story\task\ta\tb\tc\td\te\na "day"\tis it _ ?\tgood\tso\tit\ta\tb\n'
    columns = {"text_column": "story", "second_text_column": "ask", **CHOICES}
    [row] = fill_table("multiple_choice", "out.tsv", {"a.tsv": content}, columns)
    assert row["story"] == 'a "day"'
    scores = [float(x) for name, x in row.items() if name.startswith("probability_")]
    assert sum(scores) == pytest.approx(1, abs=1e-5)
    assert len(scores) == 5


def test_a_label_with_a_tab_is_refused_in_tsv(fill_table, monkeypatch):
    monkeypatch.setattr(bulk_prediction, "_flatten", lambda answer, row: {"label": "a\tb"})
    [row] = fill_table("classification", "out.csv", {"a.tsv": b"text\ngood\n"})
    assert row["label"] == "a\tb"
    with pytest.raises(
        UserError, match=r"has a tab .* which .*out.tsv cannot hold. Name an output"
    ):
        fill_table("classification", "out.tsv", {"a.tsv": b"text\ngood\n"})


def test_blank_lines_and_spaces_keep_their_place(fill_table, export, predict):
    rows = fill_table("classification", "out.csv", {"a.txt": b" good \n\n\nday\r\n"})
    assert [row["text"] for row in rows] == [" good ", "", "", "day"]
    answers = predict(export("classification"), {"a.txt": b" good \n\n\nday"})
    assert [answer["row"] for answer in answers] == [1, 2, 3, 4]
    rows = fill_table("classification", "of_csv.csv", {"a.csv": b'text\ngood\n""\n\nday\n'})
    assert [row["text"] for row in rows] == ["good", "", "day"]


@pytest.mark.parametrize(
    ("output", "inputs", "message"),
    [
        (
            "o.csv",
            {"a.csv": b"x,y\ngood,b\n"},
            r"which column is the text\? It has x, y. Name it with --text_column",
        ),
        ("o.csv", {"a.csv": b"text\na,b\n"}, r"line 2: 2 fields, .* has 1. Quote a field with"),
        ("o.csv", {"a.csv": b"x;y\na, b;c\n"}, r"line 2: 2 fields, .* 1. .* Save it with commas"),
        ("o.csv", {"a.csv": b"x;y\na b c;d\n"}, r"no column 'text'. .* Save it with commas"),
        (
            "o.csv",
            {"a.jsonl": b'{"text": "a"}\n'},
            r"o.csv has the columns of the input, and .*jsonl",
        ),
        ("o.tsv", {"a.csv": b"text\na\n"}, r"a.csv is no table of its kind"),
        ("o.csv", {"a.csv": b"text\na\n", "b.tsv": b"text\tx\na\tb\n"}, "have other columns"),
        ("o.txt", {"a.csv": b"text\na\n"}, r"must end with .jsonl, .jsonl.gz, .csv or .tsv"),
        ("o.csv", {"a.json": b'[{"text": "a"}, {"text": "b", "x": 1}]'}, "entry 2: it has other f"),
        ("o.jsonl", {"a.json": b'[{"text": "a"}, 3]'}, "entry 2: this is not a JSON object"),
        ("o.csv", {"a.csv": "x,t\u0435xt\na,b\n".encode()}, r"It has x, t.xt. Name it"),
        ("o.jsonl", {"a.xlsx": b"PK\3\4abc"}, "a.xlsx is a zip archive or a spreadsheet"),
        ("o.jsonl", {"a.txt": "ä\n".encode("utf-16")}, "a.txt is UTF-16: convert it"),
        (
            "o.jsonl",
            {"a.csv.gz": gzip.compress(b"text\na\n")},
            r"a.csv.gz: no compressed .csv files are read here",
        ),
        ("o.jsonl", {"a.tsv": "text\nä\n".encode("utf-16")}, "a.tsv is UTF-16: convert it"),
    ],
)
def test_tables_that_cannot_be_read_or_written(fill_table, output, inputs, message):
    with pytest.raises(UserError, match=message):
        fill_table("classification", output, inputs)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id_column": "nr"}, r"a.csv, row 2: it has no id 'nr'. Name .* It has text, b."),
        ({"second_text_column": "b"}, "--second_text_column: the model takes text alone. Leave"),
        ({"choice_columns": ["b"]}, "--choice_columns: the model takes text alone"),
    ],
)
def test_a_column_that_is_not_there_or_not_taken_is_refused(fill_table, columns, message):
    with pytest.raises(UserError, match=message):
        fill_table("classification", "o.jsonl", {"a.csv": b"text,b\na,b\n"}, columns)


def test_suffixes_in_capitals_and_json_are_tables_too(fill_table, export, predict):
    wanted = predict(export("classification"), {"a.txt": b"good day\nit"})
    contents = {
        "A.CSV": b'n,text\n1,"good day"\n2,it\n',
        "a.json": b'\xef\xbb\xbf[{"n": 1, "text": "good day"},\n {"n": 2, "text": "it"}]',
        "b.json": b'{"n": 1, "text": "good day"}\n\n{"n": 2, "text": "it"}\n',
        "c.ndjson": b'{"n": 1, "text": "good day"}\n{"n": 2, "text": "it"}\n',
    }
    for name, content in contents.items():
        answers = predict(export("classification"), {name: content}, f"{name}.out")
        assert [x["probabilities"] for x in answers] == [x["probabilities"] for x in wanted]
    rows = fill_table("classification", "out.csv", {"a.json": contents["a.json"]})
    assert [(row["n"], row["text"]) for row in rows] == [("1", "good day"), ("2", "it")]


@pytest.mark.parametrize(
    ("kind", "header", "row", "columns"),
    [
        ("classification", b"text,label\n", b"a,b\n", None),
        ("multiple_choice", b"passage,question,a,b,c,d,e\n", b"a,b,c,d,e,f,g\n", CHOICES),
    ],
)
def test_a_table_without_rows_gets_the_same_columns(
    fill_table, tmp_path, monkeypatch, kind, header, row, columns
):
    load = mock.Mock(wraps=bulk_prediction.load_text_model)
    monkeypatch.setattr(bulk_prediction, "load_text_model", load)
    assert fill_table(kind, "none.csv", {"none.in.csv": header}, columns) == []
    assert load.call_count == 1
    fill_table(kind, "one.csv", {"one.in.csv": header + row}, columns)
    expected, _ = (tmp_path / "one.csv").read_text().splitlines()
    assert (tmp_path / "none.csv").read_text().splitlines() == [expected]
