"""bin/run_finetuning: what it refuses, in one line."""

import json

import pytest
from tiny_program import OWN, write, write_own


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task=mrcp"], "there is no task 'mrcp'. Take one of cola"),
        (["--mode=learn"], "--mode: 'learn' is not one of train, eval, predict"),
        (["--mode="], "--mode is empty: give it a value, or leave it out"),
        (["--label_column=review"], "labels are 'review'. Name a column of its own"),
        (["--recipe=v3"], "there is no recipe 'v3'. Take one of v1, v2, simcse, none"),
        (["--set=sop=1"], "unknown key 'sop'"),
        (["--epochs=2", "--set=num_train_steps=9"], "--epochs and --set num_train_steps say the"),
        (["--batch_size=0"], "batch_size must be at least 1"),
        (["--checkpoint=run"], "--checkpoint is for --mode=eval and --mode=predict"),
        (["--init_checkpoint=nowhere"], "there is nothing at 'nowhere'"),
        (["--labels=good,bad"], "line 2: 'yes' is not a label of own, which has good, bad"),
        (["--dev_file=nowhere.tsv"], "--dev_file: no file matches 'nowhere.tsv'"),
        (["--set=train_batch_size=3", "--set=num_micro_batches=2"], "train_batch_size 3 is not"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(arguments, message, run, tmp_path):
    write_own(tmp_path)
    error = run(*OWN, f"--data_dir={tmp_path}", *arguments)
    assert message in error
    assert "\n" not in error
    assert not (tmp_path / "run").exists()


def test_an_empty_dev_set(run, tmp_path):
    write_own(tmp_path)
    write(tmp_path / "dev.tsv", ["review", "stars"])
    message = run(*OWN, f"--data_dir={tmp_path}")
    assert "dev.tsv has no examples. Give a file with at least one." in message
    assert not (tmp_path / "run").exists()


def test_a_dev_set_without_labels(run, tmp_path):
    question = {"id": "q", "question": "was it good", "answers": []}
    answer = {"text": "good", "answer_start": 2}
    for split, answers in (("train", [answer]), ("dev", [])):
        paragraph = {"context": "a good day", "qas": [{**question, "answers": answers}]}
        content = {"data": [{"title": "t", "paragraphs": [paragraph]}]}
        (tmp_path / f"{split}.json").write_text(json.dumps(content))
    paths = [f"--{split}_file={tmp_path}/{split}.json" for split in ("train", "dev")]
    assert "the file of dev has examples without labels" in run("--task=squad2", *paths)
    assert not (tmp_path / "run").exists()


def test_a_dev_set_that_is_the_train_set(run, tmp_path, capsys):
    write_own(tmp_path)
    files = (f"--{split}_file={tmp_path}/train.tsv" for split in ("train", "dev"))
    assert "nowhere" in run(*OWN, *files, f"--vocabulary={tmp_path}/nowhere")
    assert "warning: --dev_file is --train_file" in capsys.readouterr().err


def test_files_that_are_missing_are_missed_before_the_training(run, tmp_path):
    write_own(tmp_path)
    assert "there is no file of train: give --train_file or --data_dir" in run(*OWN)
    train = f"--train_file={tmp_path}/train.tsv"
    assert "no file of test: give --test_file" in run(*OWN, train, "--mode=train,predict")
    (tmp_path / "test.tsv").unlink()
    message = run(*OWN, f"--data_dir={tmp_path}", "--mode=train,predict")
    assert "must hold one file test.tsv or test.csv or test.jsonl" in message
    assert not (tmp_path / "run").exists()


def test_what_was_never_trained(run, tmp_path):
    write_own(tmp_path)
    for mode in ("eval", "predict"):
        message = run(*OWN, f"--data_dir={tmp_path}", f"--mode={mode}", start=None)
        assert f"there is nothing at '{tmp_path}/run'" in message
