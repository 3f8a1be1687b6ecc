"""bin/create_finetuning_data: from flags to task datasets, for every family of tasks."""

import json

import input_files
import pytest
from repository import ROOT

from albert_tf.data_prep.task_data import task_dataset
from albert_tf.errors import UserError
from albert_tf.records import manifest
from albert_tf.train import trainer


@pytest.fixture
def run(run_program, vocabulary_dir, tmp_path):
    """Runs the program; returns the folders in its cache by (task, split), or its error."""
    cache = tmp_path / "cache"

    def run(*arguments):
        directories = (f"--vocabulary={vocabulary_dir}", f"--cache_dir={cache}")
        if error := run_program(ROOT / "bin/create_finetuning_data", *directories, *arguments):
            return error
        folders = {}
        for folder in cache.iterdir():
            settings = manifest.read(str(folder))["settings"]
            folders[settings["task"], settings["split"]] = folder
        return folders

    return run


def labels(folder):
    lines = (folder / task_dataset.EXAMPLES).read_text().splitlines()
    return [json.loads(line)["label"] for line in lines]


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


@pytest.fixture
def sentiment(tmp_path):
    write(tmp_path / "SST-2" / "train.tsv", "sentence\tlabel\na bright lamp\t1\na dull bay\t0\n")
    write(tmp_path / "SST-2" / "dev.tsv", "sentence\tlabel\nsalt\t0\n")
    write(tmp_path / "SST-2" / "test.tsv", "index\tsentence\n0\twinter\n")
    return f"--data_dir={tmp_path}"


def test_glue_as_a_run_finds_it(
    run, run_program, vocabulary_dir, sentiment, tmp_path, capsys, monkeypatch
):
    def train(_):
        raise UserError("it trains")

    monkeypatch.setattr(trainer.Trainer, "run", train)
    lengths = "--set=max_seq_length=9"
    folders = run("--task=sst-2", sentiment, "--split=train,dev,test", lengths)
    assert {key: labels(folder) for key, folder in folders.items()} == {
        ("sst-2", "train"): ["1", "0"],
        ("sst-2", "dev"): ["0"],
        ("sst-2", "test"): [None],
    }
    for folder in folders.values():
        assert manifest.read(str(folder))["settings"]["max_seq_length"] == 9
    capsys.readouterr()
    flags = (f"--cache_dir={tmp_path}/cache", f"--output_dir={tmp_path}/run", lengths)
    flags += ("--task=sst-2", sentiment, f"--vocabulary={vocabulary_dir}")
    program = ROOT / "bin/run_finetuning"
    assert "it trains" in run_program(program, *flags, "--set=albert.vocab_size=211")
    assert capsys.readouterr().err.splitlines()[:2] == [
        f"sst-2 {split}: {folders['sst-2', split]} already exists." for split in ("train", "dev")
    ]


def test_race(run, tmp_path):
    input_files.write_race(tmp_path)
    files = (f"--input={tmp_path}/dev/*/*.txt", "--split=dev")
    folders = run("--task=race", *files, "--set=max_seq_length=20", "--set=max_qa_length=8")
    assert labels(folders["race", "dev"]) == ["A", "C"]


def test_squad(run, tmp_path):
    input_files.write_squad(tmp_path / "dev-v1.1.json", "The keeper slept.", "keeper")
    lengths = ("--set=max_seq_length=31", "--set=doc_stride=5", "--set=max_query_length=7")
    [folder] = run("--task=squad1", f"--data_dir={tmp_path}", "--split=dev", *lengths).values()
    contents = manifest.read(str(folder))
    assert contents["settings"]["max_query_length"] == 7
    assert contents["files"] == {task_dataset.RECORDS: 1}
    assert json.loads((folder / task_dataset.EXAMPLES).read_text())["answers"] == ["keeper"]
    assert (folder / "windows.npz").exists()


def test_own(run, tmp_path):
    write(tmp_path / "train.csv", "review,stars\nbright,5\ndull,1\n")
    write(tmp_path / "dev.csv", "review,stars\nsalt,1\n")
    folders = run(
        *("--task=own", "--text_column=review", "--label_column=stars"),
        *(f"--data_dir={tmp_path}", "--set=max_seq_length=9"),
    )
    assert manifest.read(str(folders["own", "dev"]))["settings"]["labels"] == ["1", "5"]
    assert labels(folders["own", "train"]) == ["5", "1"]
    assert labels(folders["own", "dev"]) == ["1"]


@pytest.mark.parametrize(
    ("arguments", "length"),
    [((), 512), (("--recipe=none",), 128), (("--recipe=v1", "--set=max_seq_length=9"), 9)],
)
def test_lengths_are_those_of_the_recipe(run, sentiment, arguments, length):
    [folder] = run("--task=sst-2", sentiment, "--split=dev", *arguments).values()
    assert manifest.read(str(folder))["settings"]["max_seq_length"] == length


def test_own_from_one_file(run, tmp_path):
    write(tmp_path / "mine.tsv", "text\tlabel\nbright\tgood\ndull\tbad\n")
    own = ("--task=own", f"--input={tmp_path}/mine.tsv")
    folders = run(*own, "--split=train")
    assert manifest.read(str(folders["own", "train"]))["settings"]["labels"] == ["bad", "good"]
    assert "pass --labels" in run(*own, "--split=dev")
    folders = run(*own, "--split=dev", "--labels=good,bad")
    assert manifest.read(str(folders["own", "dev"]))["settings"]["labels"] == ["good", "bad"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task=mnli-mm"], "there is no task 'mnli-mm'"),
        (["--task=sst-2"], "pass --input or --data_dir."),
        (["--task=sst-2", "--input=a.tsv"], "--input is the file of a single --split"),
        (["--task=sst-2", "--data_dir=none"], "--data_dir: none holds no SST-2/train.tsv"),
        (["--task=squad1", "--data_dir=none"], "there is no file none/train-v1.1.json. Pass the f"),
        (["--task=race", "--data_dir=none"], "--data_dir: none holds no RACE/train/middle/*.txt"),
        (["--task=own", "--data_dir=none"], "none must hold one file train.tsv or train.csv"),
        (["--task=own", "--kind=span", "--data_dir=none"], "there is no kind 'span'"),
    ],
)
def test_mistakes_are_one_line(run, arguments, message, tmp_path):
    error = run(*arguments)
    assert error.startswith("create_finetuning_data: ")
    assert message in error
    assert "\n" not in error
    assert not (tmp_path / "cache").exists()
