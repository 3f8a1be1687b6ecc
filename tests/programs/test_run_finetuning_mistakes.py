"""bin/run_finetuning: what it refuses, in one line."""

import pytest
from input_files import write_squad
from tiny_program import OWN, PROGRAM, write, write_own

DATA, TRAIN = "--data_dir={0}", "--train_file={0}/train.tsv"
SQUAD = ["--task=squad2", "--train_file={0}/answers.json", "--dev_file={0}/questions.json"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([DATA, "--task=mrcp"], "there is no task 'mrcp'. Use one of cola"),
        ([DATA, "--mode=learn"], "--mode: 'learn' is not one of train, eval, predict"),
        ([DATA, "--mode="], "--mode is empty: give it a value, or leave it out"),
        ([DATA, "--label_column=review"], "label columns are 'review'. Pass a different column"),
        (
            [DATA, "--recipe=v3"],
            "there is no recipe 'v3'. Use one of v1, v2, simcse, vectors, none",
        ),
        ([DATA, "--set=sop=1"], "unknown key 'sop'"),
        (
            [DATA, "--epochs=2", "--set=num_train_steps=9"],
            "--epochs and num_train_steps set the same thing. Leave one out",
        ),
        ([DATA, "--batch_size=0"], "batch_size must be at least 1"),
        ([DATA, "--checkpoint=run"], "--checkpoint is only for --mode=eval and predict"),
        ([DATA, "--init_checkpoint=nowhere"], "there is nothing at 'nowhere'"),
        ([DATA, "--labels=good,bad"], "line 2: 'yes' is not a label of own, which has good, bad"),
        ([DATA, "--dev_file=nowhere.tsv"], "--dev_file: no file matches 'nowhere.tsv'"),
        ([DATA, "--dev_file={0}/empty.tsv"], "empty.tsv has no examples. Use a file with at lea"),
        ([DATA, "--set=train_batch_size=3", "--set=num_micro_batches=2"], "train_batch_size 3 is"),
        (SQUAD, "the file of dev has examples without labels"),
        ([], "there is no train file: pass --train_file or --data_dir"),
        ([TRAIN, "--mode=train,predict"], "there is no test file: pass --test_file or --data_dir"),
        ([DATA, "--mode=train,predict"], "must hold one file test.tsv or test.csv or test.jsonl"),
        ([DATA, "--mode=eval", "--init_checkpoint="], "there is nothing at '{0}/run'"),
        ([DATA, "--mode=predict", "--init_checkpoint="], "there is nothing at '{0}/run'"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(arguments, message, run, tmp_path):
    write_own(tmp_path)
    write(tmp_path / "empty.tsv", ["review", "stars"])
    write_squad(tmp_path / "answers.json", "a good day", "good")
    write_squad(tmp_path / "questions.json", "a good day", None, is_labelled=False)
    (tmp_path / "test.tsv").unlink()
    needs_model = "--init_checkpoint=" not in arguments
    given = [x.format(tmp_path) for x in arguments if x != "--init_checkpoint="]
    own = () if arguments is SQUAD else OWN
    error = run(*own, *given, **({} if needs_model else {"start": None}))
    assert message.format(tmp_path) in error
    assert "\n" not in error
    assert not (tmp_path / "run").exists()


def test_no_flags_at_all(run_program):
    message = "run_finetuning: pass your table with --train_file, or a task with --task"
    assert run_program(PROGRAM).startswith(message)


def test_a_dev_set_that_is_the_train_set(run, tmp_path, capsys):
    write_own(tmp_path)
    files = (f"--{split}_file={tmp_path}/train.tsv" for split in ("train", "dev"))
    assert "nowhere" in run(*OWN, *files, f"--vocabulary={tmp_path}/nowhere")
    assert "warning: --dev_file is --train_file" in capsys.readouterr().err
