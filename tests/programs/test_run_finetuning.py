"""bin/run_finetuning: from files to scores and predictions, for every family of tasks."""

import dataclasses
import json
import os
import signal
import subprocess
import sys

import input_files
import pytest
import tiny_checkpoints
import tiny_program
import tiny_run
from tiny_program import OWN, read, write, write_mnli, write_own

from albert_tf import config_io
from albert_tf.checkpoints import formats
from albert_tf.tasks import predictions
from albert_tf.train_config import FinetuneConfig

pytestmark = pytest.mark.usefixtures("eagerly")


def test_a_task_of_ones_own(run, tmp_path, capsys):
    write_own(tmp_path)
    assert not run(*OWN, f"--data_dir={tmp_path}", "--mode=train,eval,predict")
    output = "".join(capsys.readouterr())
    assert "loaded 25, missing 0, unexpected 0, mismatched 0" in output
    assert "own dev | accuracy " in output
    best = read(tmp_path / "run/best/metrics.json")
    prefix = f"{tmp_path}/run/best/model.ckpt-{best['step']}"
    scores_file = read(tmp_path / "run/metrics-dev.json")
    assert scores_file["checkpoint"] == prefix
    assert scores_file["metrics"]["accuracy"] == best["accuracy"]
    [command] = map(json.loads, (tmp_path / "run/commands.jsonl").read_text().splitlines())
    assert command["command"].startswith("bin/run_finetuning --config=")
    assert f"Predicted by {prefix}." in (tmp_path / "run/report.html").read_text()
    test = predictions.read(f"{tmp_path}/run/predictions-test.json")
    assert (test["labels"], test["split"], test["checkpoint"]) == (["no", "yes"], "test", prefix)
    assert list(test["predictions"]) == ["0", "1"]
    other = (f"--test_file={tmp_path}/test.tsv", "--mode=predict", "--labels=yes,no")
    assert "--labels: the model has no,yes." in run(*OWN, *other, start=None)
    # Other files with the same run, whose labels need not be named again; elsewhere.
    write(tmp_path / "new.tsv", ["review"], ["good"], ["bad"], ["so so"])
    more = (f"--test_file={tmp_path}/new.tsv", f"--checkpoint={tmp_path}/run/model.ckpt-4")
    assert not run(*OWN, *more, "--mode=predict", f"--output_dir={tmp_path}/other", start=None)
    content = predictions.read(f"{tmp_path}/other/predictions-test.json")
    assert content["checkpoint"] == f"{tmp_path}/run/model.ckpt-4"
    assert len(content["predictions"]) == 3


@pytest.fixture
def reviews(run_program, checkpoint, tmp_path, monkeypatch, capsys):  # which has its output
    """A run on a csv file alone, runs/reviews of the current folder, and its command."""
    monkeypatch.chdir(tmp_path)
    moods = {"glad": "good", "sad": "bad"}
    rows = [[f"{word} it was day {k}", mood] for k in range(9) for mood, word in moods.items()]
    text = "".join(",".join(row) + "\n" for row in [["review", "mood"], *rows])
    (tmp_path / "reviews.csv").write_text(text)
    (tmp_path / "new.csv").write_text("review\nit was good\n")
    values = {**tiny_program.SETTINGS, "num_warmup_steps": 0}
    del values["eval_steps"]
    (tmp_path / "config.json").write_text(json.dumps(values))
    command = ["--train_file=reviews.csv", "--config=config.json", "--epochs=3", "--batch_size=8"]
    command = [tiny_program.PROGRAM, *command, f"--init_checkpoint={checkpoint}/google"]
    assert not run_program(*command)
    return command


def test_a_csv_file_alone(reviews, run_program, tmp_path, capsys):
    shown = capsys.readouterr()
    assert "text 'review', label 'mood'" in shown.err
    assert "2 examples are held out as dev" in shown.err
    assert "evaluation at step 2 |" in shown.err
    assert "--model=runs/reviews --input=new.csv --output=new_with_labels.csv" in shown.out
    config = read(tmp_path / "runs/reviews/run.json")["config"]
    assert (config["num_train_steps"], config["train_batch_size"]) == (6, 8)
    # Columns and held-out rows are those of the run.
    evaluate = (tiny_program.PROGRAM, "--mode=eval", "--output_dir=runs/reviews")
    assert not run_program(*evaluate)
    assert read(tmp_path / "runs/reviews/metrics-dev.json")["num_examples"] == 2
    warning = "was not trained on the other nine tenths of --train_file"
    (tmp_path / "moved.csv").write_text((tmp_path / "reviews.csv").read_text())
    assert not run_program(*evaluate, "--train_file=moved.csv")
    assert warning not in capsys.readouterr().err
    (tmp_path / "moved.csv").write_text((tmp_path / "reviews.csv").read_text() + "new,glad\n")
    assert not run_program(*evaluate, "--train_file=moved.csv")
    assert warning in capsys.readouterr().err
    message = run_program(*reviews, "--epochs=2")
    assert "runs/reviews holds work with num_train_epochs=3.0, not 2.0." in message


@pytest.mark.full
@pytest.mark.usefixtures("reviews")
def test_a_run_its_conversion_and_its_export_label_a_table_alike(
    run_program, tmp_path, capsys, use_graphs
):
    more = ("--test_file=new.csv", "--mode=predict", "--output_dir=runs/reviews")
    assert not run_program(tiny_program.PROGRAM, *more)
    predicted = predictions.read("runs/reviews/predictions-test.json")["predictions"]
    use_graphs()
    formats.convert("runs/reviews", "converted")
    bin_ = tiny_program.PROGRAM.parent
    about = ("--checkpoint=runs/reviews", "--output_dir=export")
    assert not run_program(bin_ / "export_saved_model", *about)
    for model in ("runs/reviews", "converted", "export"):
        files = ("--input=new.csv", f"--output={model}.csv")
        assert not run_program(bin_ / "predict", f"--model={model}", *files)
    tables = {(tmp_path / f"{x}.csv").read_text() for x in ("runs/reviews", "converted", "export")}
    header, line = tables.pop().splitlines()
    assert not tables
    assert header == "review,label,logits,probability_glad,probability_sad"
    glad, sad = map(float, line.split(",")[-2:])
    assert predicted["0"]["probabilities"] == pytest.approx([glad, sad], abs=1e-6)
    (tmp_path / "long.txt").write_text("good " * 40)
    files = ("--input=long.txt", "--output=long.jsonl")
    assert not run_program(bin_ / "predict", "--model=runs/reviews", *files)
    assert "1 of 1 inputs are truncated: max_seq_length is" in capsys.readouterr().err


def test_a_run_remembers_its_data(run, run_program, tmp_path, capsys):
    write_own(tmp_path)
    tables = [f"--{split}_file={tmp_path}/{split}.tsv" for split in ("train", "dev")]
    assert not run(*OWN, *tables, "--mode=train")
    capsys.readouterr()
    assert not run(*OWN, *tables, "--mode=train")  # nothing is made again
    output = "".join(capsys.readouterr())
    assert "already exists" in output
    assert "done: step 4" in output
    assert "step 4/4" not in output
    names = {path.name.rsplit("-", 1)[0] for path in (tmp_path / "cache").iterdir()}
    assert names == {"own-train", "own-dev", "vocabulary"}
    program = (tiny_program.PROGRAM, "--mode=eval", f"--output_dir={tmp_path}/run")
    assert not run_program(*program)
    metrics = read(tmp_path / "run/metrics-dev.json")
    assert metrics["num_examples"] == 3
    assert "report.html" in os.listdir(tmp_path / "run")
    dev = tmp_path / "dev.tsv"
    score = f"{tiny_program.PROGRAM.parent}/score predictions"
    predicted = f"--predictions={tmp_path}/run/predictions-dev.json"
    capsys.readouterr()
    assert not run_program(score, predicted)
    assert json.loads(capsys.readouterr().out) == metrics["metrics"]
    dev.write_text(dev.read_text() + "a good cat\tyes\n")
    changed = f"{dev}, the model's dev data, has changed. Pass the data with "
    assert run_program(*program).endswith(f"{changed}--dev_file.")
    assert run_program(score, predicted).endswith(f"{changed}--data_file.")
    assert not run_program(*program, tables[1])
    assert read(tmp_path / "run/metrics-dev.json")["num_examples"] == 4
    dev.unlink()
    assert "the model's dev data, is missing." in run_program(*program)
    assert "there is no test file: pass --test_file" in run_program(*program, "--mode=predict")


def test_random_weights_need_a_vocabulary_and_a_model(run, checkpoint, tmp_path, capsys):
    write_own(tmp_path)
    one = ("--set=num_train_steps=1", "--set=num_warmup_steps=0", "--set=eval_steps=0")
    command = (*OWN, f"--data_dir={tmp_path}", "--mode=train", *one)
    assert "pass a pre-trained model with --init_checkpoint, or" in run(*command, start=None)
    albert = json.dumps(config_io.to_dict(tiny_run.albert()))
    vocabulary = f"--vocabulary={checkpoint}/vocabulary"
    assert not run(*command, vocabulary, f"--set=albert={albert}", start=None)
    assert "new weights" in capsys.readouterr().err


def test_a_file_that_is_named_is_all_that_is_evaluated(run, checkpoint, tmp_path):
    write_mnli(tmp_path / "glue")
    made = tiny_checkpoints.make(f"{checkpoint}/vocabulary", model="classifier")
    heads = {name: made.weights[name][:3] for name in ("output_weights", "output_bias")}
    made = dataclasses.replace(made, weights=made.weights | heads)
    theirs = f"--checkpoint={tiny_checkpoints.write(tmp_path / 'theirs', made)}"
    dev = f"--dev_file={tmp_path}/glue/MNLI/dev_mismatched.tsv"
    for number, more in enumerate(((), (f"--data_dir={tmp_path}/glue",))):
        workdir = f"--output_dir={tmp_path}/run{number}"
        assert not run("--task=mnli", "--mode=eval", dev, theirs, workdir, *more, start=None)
        names = {path.name for path in (tmp_path / f"run{number}").iterdir()}
        assert names == {"metrics-dev.json", "predictions-dev.json"}


@pytest.mark.full
def test_mnli_its_diagnostic_and_a_task_that_starts_from_it(run, tmp_path, capsys):
    write_mnli(tmp_path / "glue")
    glue = f"--data_dir={tmp_path}/glue"
    assert not run("--task=mnli", glue, "--mode=train,eval,predict")
    for split in ("dev", "dev_mismatched", "test", "test_mismatched"):
        assert predictions.read(f"{tmp_path}/run/predictions-{split}.json")["split"] == split
    own = predictions.read(f"{tmp_path}/run/predictions-test.json")
    assert not run("--task=ax", glue, "--mode=predict", start=None)
    content = predictions.read(f"{tmp_path}/run/predictions-test-ax.json")
    assert predictions.read(f"{tmp_path}/run/predictions-test.json") == own
    assert (content["task"], len(content["predictions"])) == ("ax", 2)
    rte = ("--task=rte", glue, f"--output_dir={tmp_path}/rte", "--recipe=v1")
    message = run(*rte, "--init_head", start=f"--init_checkpoint={tmp_path}/run")
    assert "has output_bias [3] instead of [2] for the task's head" in message
    capsys.readouterr()
    assert not run(*rte, start=f"--init_checkpoint={tmp_path}/run")
    output = "".join(capsys.readouterr())
    assert "left out: the head classifier, 2 weights" in output
    assert f"| {content['checkpoint']} | output in {tmp_path}/rte" in output  # the best, as for ax
    config = config_io.load(FinetuneConfig, f"{tmp_path}/rte/run.json")
    assert config.albert.hidden_dropout_prob == 0.1  # of the recipe


@pytest.mark.full
def test_race(run, tmp_path, capsys):
    splits, levels = ("train", "dev", "test"), ("middle", "high")
    input_files.write_race(tmp_path / "RACE", splits, levels, article="a good day, a bad one")
    assert not run("--task=race", f"--data_dir={tmp_path}/RACE", "--mode=train,eval,predict")
    dev = read(tmp_path / "run/metrics-dev.json")["metrics"]
    assert set(dev) == {"accuracy", "middle_accuracy", "high_accuracy"}
    # Its test set has labels, too.
    test = read(tmp_path / "run/metrics-test.json")
    assert (test["split"], test["num_examples"], test["metrics"]) == ("test", 4, dev)
    assert "race test | accuracy " in capsys.readouterr().out


@pytest.mark.full
def test_an_interrupted_run_is_not_evaluated(run, tmp_path, monkeypatch, capsys):
    write_own(tmp_path)

    def line(record, num_steps):
        os.kill(os.getpid(), signal.SIGTERM)
        return ""

    with monkeypatch.context() as patch:
        patch.setattr("albert_tf.train.reports.line", line)
        assert run(*OWN, f"--data_dir={tmp_path}") == os.EX_TEMPFAIL
    output = "".join(capsys.readouterr())
    assert "interrupted at step 2" in output
    assert "own dev | accuracy" not in output
    assert not run(*OWN, f"--data_dir={tmp_path}")
    assert "resumed from" in capsys.readouterr().err


KILL = """
import os, runpy, signal, sys
import tensorflow as tf
from albert_tf.train import reports
tf.config.run_functions_eagerly(True)
def line(record, num_steps):
    if record["step"] == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return ""
reports.line = line
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.full
def test_a_run_that_was_killed_ends_as_if_unbroken(run, checkpoint, tmp_path, capsys):
    write_own(tmp_path)
    command = [*OWN, f"--data_dir={tmp_path}", f"--config={tmp_path}/config.json"]
    command += ["--set=albert.hidden_dropout_prob=0.1", "--set=save_checkpoints_steps=2"]
    command += ["--set=class_weights=balanced", f"--init_checkpoint={checkpoint}/google"]
    assert not run(*command, start=None)
    broken = [*command, f"--output_dir={tmp_path}/broken"]
    program = [sys.executable, "-c", KILL, tiny_program.PROGRAM, *broken]
    child = subprocess.run(program, capture_output=True, text=True)
    assert child.returncode == -9, child.stderr
    assert not (tmp_path / "broken/report.html").exists()
    capsys.readouterr()
    assert not run(*broken, start=None)
    assert f"resumed from {tmp_path}/broken/model.ckpt-2" in capsys.readouterr().err
    tiny_run.assert_same_end(tmp_path / "run", tmp_path / "broken")
    ends = [predictions.read(f"{tmp_path}/{x}/predictions-dev.json") for x in ("run", "broken")]
    assert ends[0]["predictions"] == ends[1]["predictions"]
    assert (tmp_path / "broken/report.html").exists()
    # A third run has nothing to do.
    assert not run(*broken, start=None)
    lines = map(json.loads, (tmp_path / "broken/commands.jsonl").read_text().splitlines())
    assert [(x["finished"], bool(x["ended"])) for x in lines] == [(False, False), (True, True)]
