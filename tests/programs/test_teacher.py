"""Learning from a teacher: from its answers in columns, and from the model itself."""

import json

import numpy as np
import pytest
import tiny_exports
import tiny_tasks
from scipy import special
from tiny_program import OWN, TEXTS, read, write

import albert_tf
from albert_tf.data_prep.task_data import teaching
from albert_tf.errors import UserError
from albert_tf.kinds import task_table

pytestmark = pytest.mark.usefixtures("eagerly")
LABELS = ["yes", "no", "yes", "", "no", ""]
ANSWERS = [["0.9", "0.1"], ["0.2", "0.8"], ["", ""], ["0.5", "0.5"], ["1", "0"], ["0.3", "0.7"]]
ROWS = [*zip(TEXTS, LABELS, ANSWERS, strict=True)]
COLUMNS = ["review", "stars", "probability_yes", "probability_no"]
TAUGHT = "--teacher_columns=probability_yes,probability_no"


def divergence(logits, answers):
    teacher = special.log_softmax(np.log(np.maximum(answers, 1e-7)) / 3, -1)
    student = special.log_softmax(logits / 3, -1)
    return 9 * (np.exp(teacher) * (teacher - student)).sum(-1)


def entropy(logits, answers):
    return -(answers * special.log_expit(logits) + (1 - answers) * special.log_expit(-logits)).mean(
        -1
    )


ERRORS = {
    "classification": divergence,
    "multiple_choice": divergence,
    "multi_label": entropy,
    "regression": lambda logits, answers: (logits - answers)[:, 0] ** 2,
}


@pytest.mark.parametrize("kind", ERRORS)
def test_the_loss_has_a_part_of_the_labels_and_one_of_the_teacher(kind):
    batch, rng = tiny_tasks.batch(kind), np.random.default_rng(3)
    size = 1 if kind == "regression" else tiny_tasks.CLASSES
    logits = rng.normal(size=(3, size)).astype(np.float32)
    answers = rng.dirichlet(np.ones(4), 3)[:, :size].astype(np.float32)
    loss = tiny_tasks.make_objective(kind, teacher_weight=0.4, teacher_temperature=3)
    sums = [
        float(loss.sums({"logits": logits}, {**batch, "is_real_example": mask})[f"{kind}_loss"])
        for mask in np.eye(3, dtype=np.float32)
    ]
    weights = np.array([[1, 1], [0, 1], [1, 0]], np.float32)
    taught = {**batch, "teacher_outputs": answers, "target_weights": weights}
    errors = ERRORS[kind](logits, answers)
    expected = 0.6 * (sums[0] + sums[2]) + 0.4 * (errors[0] + errors[1])
    found = loss.sums({"logits": logits}, taught)
    assert {*found} == {f"{kind}_loss"}
    assert float(found[f"{kind}_loss"]) == pytest.approx(expected, rel=1e-5)


def write_table(folder, rows=ROWS):
    write(folder / "train.tsv", COLUMNS, *([text, x, *y] for text, x, y in rows))
    write(folder / "dev.tsv", COLUMNS[:2], ["so good", "yes"], ["so bad", "no"])
    return [*OWN, f"--data_dir={folder}"]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory, vocabulary):
    """A model whose labels are x, y and z, and one that has the labels of the table."""
    found = {}
    for name, labels in (("other", ["x", "y", "z"]), ("same", ["yes", "maybe", "no"])):
        folder = tmp_path_factory.mktemp(name)
        more = {"has_pairs": False, "labels": labels}
        found[name] = tiny_exports.write_run(folder, "classification", vocabulary, more=more)
    return found


@pytest.mark.full
def test_columns_of_probabilities(run, tmp_path):
    table = write_table(tmp_path)
    assert not run(*table, TAUGHT, "--set=stop_at_step=2", "--set=save_checkpoints_steps=2")
    assert not run(*table, TAUGHT)
    [folder] = (tmp_path / "cache").glob("own-train-*")
    rows = [json.loads(line) for line in (folder / "examples.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == [x or None for x in LABELS]
    assert rows[0]["teacher"] == [0.1, 0.9]  # in the order of the labels, no and yes
    assert rows[2]["teacher"] is None
    losses = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    assert not run(*table, TAUGHT, f"--output_dir={tmp_path}/again")
    again = [json.loads(x) for x in (tmp_path / "again/metrics.jsonl").read_text().splitlines()]
    assert [x["loss"] for x in again if "loss" in x] == [x["loss"] for x in losses if "loss" in x]


def test_a_model_answers_once_and_its_labels_are_those_of_the_task(run, tuned, tmp_path, capsys):
    table, teacher = write_table(tmp_path), f"--teacher={tuned['same']}"
    assert not run(*table, teacher)
    shown = capsys.readouterr().err
    assert "6 of 6 examples answered" in shown
    assert not run(*table, teacher, "--set=max_seq_length=15", f"--output_dir={tmp_path}/again")
    assert "answered" not in capsys.readouterr().err  # though the records are others
    told = read(tmp_path / "run/metrics-dev.json")["teacher"]
    expected = albert_tf.load(tuned["same"]).evaluate(["so good", "so bad"], ["yes", "no"])
    assert told["accuracy"] == expected["accuracy"]
    assert told["agreement"] in (0, 0.5, 1)
    page = (tmp_path / "run/report.html").read_text()
    assert f"agreement with it: {told['agreement']:.4g}" in page


def test_unlabelled_rows_are_not_held_out(run, tuned, tmp_path, capsys):
    rows = [(f"{text} {k}", label, cells) for k in range(6) for text, label, cells in ROWS]
    write_table(tmp_path, rows)
    table = [*OWN, f"--train_file={tmp_path}/train.tsv", f"--teacher={tuned['same']}"]
    assert not run(*table, "--set=class_weights=balanced")
    assert "2 examples are held out as dev" in capsys.readouterr().err
    assert read(tmp_path / "run/metrics-dev.json")["num_examples"] == 2


@pytest.mark.parametrize("kind", ["multi_label", "regression"])
def test_a_model_in_memory_teaches_fit(kind, vocabulary, tmp_path):
    made = tiny_exports.write_run(tmp_path / "teacher", kind, vocabulary, more={"has_pairs": False})
    model, teacher = albert_tf.load(made), albert_tf.load(made)
    labels = {"multi_label": [["x"], ["y", "z"]], "regression": [0.25, 1.5]}[kind]
    dev = (TEXTS, labels * 3)
    options = {"dev": dev, "epochs": 1, "output_dir": str(tmp_path / "run")}
    model.fit(TEXTS, [*labels, None, None, *labels], teacher=teacher, **options)
    model.fit(TEXTS, teacher=made, kind=kind, **{**options, "output_dir": str(tmp_path / "none")})
    told = read(tmp_path / "run/run/metrics-dev.json")["teacher"]
    assert -1 <= told["agreement"] <= 1


@pytest.mark.parametrize(
    ("column", "row", "message"),
    [
        (TAUGHT, ["a day", "", "", ""], "line 2: the row has neither a label nor a teacher's answ"),
        (TAUGHT, ["a day", "", "nan", "1"], "line 2: probability_no, probability_yes are 1, nan: "),
        (TAUGHT, ["a day", "", "-0.5", "1.5"], "use probabilities that add up to 1, or leave the"),
        (TAUGHT, ["a day", "", "0.5", ""], "line 2: probability_no, probability_yes are , 0.5: us"),
        (TAUGHT, ["a day", "no", "0.5", "0.9"], "are 0.9, 0.5: use probabilities that add up to"),
        ("--teacher_columns=a,b", ["a day", "no", "1", "0"], "there is no column 'a'. It has revi"),
        (
            "--teacher_columns=probability_no",
            ["a day", "no", "1", "0"],
            "must be 2, one for each la",
        ),
        (
            "--teacher={other}",
            ["a day", "no", "", ""],
            "line 2: 'no' is not a label of the teacher",
        ),
        (
            "--teacher={other} --labels=no,yes",
            ["a", "no", "", ""],
            "has the labels x, y, z, but the",
        ),
        (
            "--teacher={other} --kind=regression",
            ["a", "1", "", ""],
            "is for classification, but the",
        ),
        (
            "--teacher={start}",
            ["a day", "no", "1", "0"],
            "model.ckpt-best is not fine-tuned. Fine-",
        ),
        ("--teacher={other} " + TAUGHT, ["a day", "no", "1", "0"], "not both"),
    ],
)
def test_mistakes_are_one_line(column, row, message, run, tuned, checkpoint, tmp_path):
    table = write_table(tmp_path, [(row[0], row[1], row[2:])])
    flags = column.format(**tuned, start=f"{checkpoint}/google").split()
    labels = [] if "{" in column else ["--labels=no,yes"]
    error = run(*table, *flags, *labels)
    assert message in error
    assert "\n" not in error
    assert not (tmp_path / "run").exists()


def test_kinds_of_tokens_have_no_teacher(vocabulary, tmp_path):
    kind = "token_classification"
    made = tiny_exports.write_run(tmp_path, kind, vocabulary)
    with pytest.raises(UserError, match="is not for token_classification: a model's outputs"):
        teaching.check(albert_tf.load(made).as_teacher(), task_table.make_own(kind, ["O", "B-A"]))
