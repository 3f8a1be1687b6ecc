"""bin/run_finetuning --task=glue: all tasks of a folder, each once, and their table."""

import json
import os
from pathlib import Path

import pytest
import sealed_files
import tiny_checkpoints
from tiny_program import TEXTS, read, write, write_mnli

from albert_tf import config_io
from albert_tf.checkpoints import formats
from albert_tf.tasks import predictions

pytestmark = pytest.mark.usefixtures("eagerly")


def write_sts_b(folder, number=6):
    rows = [[text, "a day", f"{k}.5"] for k, text in enumerate(TEXTS)][:number]
    for split in ("train", "dev"):
        write(folder / f"STS-B/{split}.tsv", ["sentence1", "sentence2", "score"], *rows)


@pytest.mark.full
def test_tasks_run_once_and_end_with_a_table(run, tmp_path, capsys, checkpoint):
    write_mnli(tmp_path / "glue")
    write(tmp_path / "glue/RTE/test.tsv", ["index", "sentence1", "sentence2"], ["0", "a", "b"])
    command = ("--task=glue", f"--data_dir={tmp_path}/glue", "--mode=train,eval,predict")
    assert not run(*command)
    captured = capsys.readouterr()
    assert "without cola: --data_dir has no CoLA/dev.tsv\n" in captured.err
    assert captured.err.count("\nwithout ") + captured.err.startswith("without ") == 7
    assert "left out: the head classifier, 2 weights" in captured.err  # that of MNLI
    scores = read(tmp_path / "run/glue.json")["tasks"]
    assert list(scores) == ["mnli", "rte"]
    mnli, rte = [read(tmp_path / f"run/{x}/metrics-dev.json")["metrics"] for x in scores]
    assert scores["rte"]["medians"] == {"dev accuracy": rte["accuracy"]}
    lines = captured.out.splitlines()
    assert f"| rte | {tmp_path}/run/mnli | 1 | dev accuracy {rte['accuracy']:.4g} |" in lines
    start = f"| mnli | {checkpoint}/google | 1 | dev accuracy {mnli['accuracy']:.4g}, dev_mism"
    assert start in captured.out
    assert lines[-1].startswith("average of 2 tasks without cola, sst-2, mrpc, sts-b, qqp, qnli, w")
    assert predictions.read(f"{tmp_path}/run/mnli/predictions-test-ax.json")["task"] == "ax"
    # The same command has nothing to do.
    assert not run(*command)
    again = capsys.readouterr()
    assert "done: step" not in again.err
    assert again.err.count("is finished: ") == 2
    assert again.out.splitlines() == lines[-6:]


@pytest.fixture
def jobs(monkeypatch):
    """Replaces training and evaluation: notes (task, start), and writes the scores of a run."""
    done = []

    def train(trainer):
        folder = trainer.folder
        os.makedirs(folder, exist_ok=True)
        task = folder.removesuffix("/").split("/run/")[-1].split("/other/")[-1].split("/")[0]
        if not folder.endswith(("seed-12346", "seed-12347")):
            done.append((task, trainer.start.name))
        formats.get_writer("albert_tf")(formats.read(trainer.start.init_checkpoint), folder)
        sealed_files.write(Path(folder, "beginning.json"), {"checkpoint": trainer.start.name})
        sealed_files.write(Path(folder, "task.json"), trainer.data.files["task.json"])
        config_io.save(trainer.config, f"{folder}/config.json")
        return True

    def evaluate(model, strategy, dataset, folder, *, scored):
        score = {"seed-12346": 0.7, "seed-12347": 0.6}.get(os.path.basename(folder), 0.5)
        split = dataset.manifest["settings"]["split"]
        scores = dict.fromkeys(dataset.task.metrics, score)
        content = {"task": dataset.task.name, "split": split, "metrics": scores}
        Path(folder, f"metrics-{split}.json").write_text(json.dumps(content))
        return scores, ""

    monkeypatch.setattr("albert_tf.train.trainer.Trainer.run", train)
    monkeypatch.setattr("albert_tf.pipelines.finetuning.evaluate", evaluate)
    monkeypatch.setattr("albert_tf.tasks.run_report.write", lambda folder, evaluated: None)
    return done


def test_medians_of_several_seeds_and_the_best_model_of_mnli(run, jobs, tmp_path, capsys):
    write_mnli(tmp_path / "glue")
    write_sts_b(tmp_path / "glue")
    command = ("--task=glue", f"--data_dir={tmp_path}/glue", "--num_seeds=3")
    assert not run(*command)
    start = f"{tmp_path}/run/mnli/seed-12346"
    assert [name for name, _ in jobs] == ["mnli", "sts-b", "rte"]
    assert [place for _, place in jobs[1:]] == [start, start]
    output = capsys.readouterr().out
    assert f"| sts-b | {start} | 3 | dev pearson 0.6, dev spearman 0.6 |" in output
    assert "3 | dev accuracy 0.6, dev_mismatched accuracy 0.6 |" in output
    assert "average of 3 tasks without cola, sst-2, mrpc, qqp, qnli, wnli: 60.0" in output


def test_a_task_runs_again_if_it_is_another_one(run, jobs, tmp_path, capsys):
    write_mnli(tmp_path / "glue")
    command = ("--task=glue", f"--data_dir={tmp_path}/glue")
    assert not run(*command)
    write_sts_b(tmp_path / "glue")  # a task more
    assert not run(*command)
    assert [name for name, _ in jobs] == ["mnli", "rte", "sts-b"]
    write_sts_b(tmp_path / "glue", number=5)  # other data
    assert not run(*command)
    assert [name for name, _ in jobs[3:]] == ["sts-b"]
    (tmp_path / "run/rte/metrics-dev.json").unlink()  # lost results
    assert not run(*command)
    assert [name for name, _ in jobs[4:]] == ["rte"]
    path = tmp_path / "run/rte/glue_task.json"
    content = sealed_files.read(path)
    sealed_files.write(path, content | {"is_finished": False})  # as after a kill -9
    assert not run(*command, "--set=eval_batch_size=3")  # another setting
    assert [name for name, _ in jobs[5:]] == ["mnli", "sts-b", "rte"]
    capsys.readouterr()
    assert not run(*command, "--mode=eval", start=None)  # without training
    assert not jobs[8:]
    assert f"| rte | {tmp_path}/run/mnli | 1 |" in capsys.readouterr().out


def test_a_model_of_mnli_that_is_there_already(run, jobs, tmp_path, capsys, checkpoint):
    write_sts_b(tmp_path / "glue")
    made = tiny_checkpoints.make(f"{checkpoint}/vocabulary", model="classifier")
    (tmp_path / "mnli").mkdir()
    formats.get_writer("albert_tf")(made, str(tmp_path / "mnli"))
    command = ("--task=glue", f"--data_dir={tmp_path}/glue")
    assert not run(*command, f"--mnli_checkpoint={tmp_path}/mnli")
    assert f"| sts-b | {tmp_path}/mnli | 1 | dev pearson 0.5" in capsys.readouterr().out
    assert not run(*command, f"--output_dir={tmp_path}/other")
    assert "sts-b starts as other tasks do" in capsys.readouterr().err
    assert jobs == [("sts-b", f"{tmp_path}/mnli"), ("sts-b", f"{checkpoint}/google")]


def test_mistakes_are_told_before_any_task_is_trained(run, tmp_path):
    write_mnli(tmp_path / "glue")
    command = ("--task=glue", f"--data_dir={tmp_path}/glue")
    (tmp_path / "glue/RTE/dev.tsv").write_text("")
    message = run(*command)
    assert "RTE/dev.tsv" in message
    assert "\n" not in message
    write_sts_b(tmp_path / "glue", number=0)
    write(tmp_path / "glue/RTE/dev.tsv", ["sentence1", "sentence2", "label"], ["a", "b", "maybe"])
    message = run(*command)
    assert "STS-B/train.tsv has no examples" in message
    write_sts_b(tmp_path / "glue")
    message = run(*command)
    assert "RTE/dev.tsv, line 2: 'maybe' is not a label of rte" in message
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").glob("*/model*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--task=glue needs --data_dir"),
        (("--data_dir={}/none",), "holds no task of GLUE as a whole (mnli: --data_dir has no MNLI"),
        (("--data_dir={}", "--train_file=x"), "--train_file is for one task, not for --task=glue"),
        (("--data_dir={}", "--init_head"), "--init_head is for one task, not for --task=glue"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(run, tmp_path, arguments, message):
    assert message in run("--task=glue", *(text.format(tmp_path) for text in arguments))
    assert not (tmp_path / "run").exists()


def test_the_checkpoint_of_mnli_is_for_glue_alone(run, tmp_path):
    message = run("--task=rte", f"--data_dir={tmp_path}", "--mnli_checkpoint=x")
    assert "--mnli_checkpoint is for --task=glue" in message
    assert json.loads((tmp_path / "config.json").read_text())  # the only file
