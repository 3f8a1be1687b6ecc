"""What a run of fine-tuning refuses."""

import shutil

import pytest
import tiny_checkpoints
import tiny_finetuning
import tiny_run
from refusals import one_line
from tiny_finetuning import write_folder

from albert_tf.data_prep.task_data import task_dataset
from albert_tf.kinds import task_table

pytestmark = pytest.mark.usefixtures("eagerly")
folders = tiny_finetuning.folders
run = tiny_finetuning.run_task


def refused(run, message, **options):
    with one_line(message):
        run(**options)


def test_a_checkpoint_of_another_vocabulary(run, tmp_path):
    other = tmp_path / "other"
    tiny_run.write_vocabulary(str(other))
    (other / "cleaning.json").write_text('{"lower_case": false}')
    initial = tiny_checkpoints.write(
        tmp_path / "initial", tiny_checkpoints.make(other), "albert_tf"
    )
    refused(run, "have different vocabularies", options={"init_checkpoint": initial})
    assert not (tmp_path / "run").exists()


def test_folders_that_are_none_or_empty(run, vocabulary, tmp_path):
    refused(run, "there are no complete records in .*nothing'", train=f"{tmp_path}/nothing")
    empty = write_folder(tmp_path / "empty", "classification", vocabulary, split="dev", number=0)
    refused(run, r"empty has no examples\. Use a file with at least one", dev=empty)
    refused(run, "pre holds no task records", train=tiny_run.write_data(tmp_path / "pre"))


def test_data_of_another_task():
    model = task_table.make_own("classification", tuple("xyz"))
    mnli, ax = task_table.get("mnli"), task_table.get("ax")
    task_dataset.check_task(ax, mnli)  # it has no training data
    two = task_table.make_own("classification", ("x", "y"))
    same = task_table.make_own("classification", mnli.labels)
    for data, task, message in (
        (
            task_table.make_own("regression"),
            model,
            "are for own .regression., the model is for own",
        ),
        (two, model, r"2 labels \(x, y\), the model is for own .* with 3 labels"),
        (same, mnli, "are for own .* the model is for mnli"),
        (mnli, ax, "are for mnli .* the model is for ax"),  # with the same labels
    ):
        with one_line(message):
            task_dataset.check_task(data, task)


def test_a_workdir_of_another_run(run, trained, vocabulary, tmp_path):
    short = {"num_train_steps": 2, "num_warmup_steps": 0, "eval_steps": 2}
    run(**short)
    refused(run, "holds work with learning_rate=0.01, not 0.5", learning_rate=0.5, **short)
    refused(run, "holds work with task.kind=", kind="regression", **short)
    other = write_folder(tmp_path / "o", "classification", vocabulary)
    refused(run, "holds work with training data.folder=", train=other, **short)
    run(patience=3, n_best_size=5, **short)  # means nothing to what is learnt
    shutil.copytree(trained, tmp_path / "pre")
    refused(run, "pre holds work with ", name="pre")


@pytest.mark.full
def test_damaged_records(run, folders, vocabulary, tmp_path):
    folder = write_folder(tmp_path / "cut", "classification", vocabulary, split="dev")
    path = tmp_path / "cut/records.tfrecord"
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    refused(run, r"cut/records\.tfrecord has .* bytes, .* Remove .*cut: it will be", dev=folder)
    path.write_bytes(whole[:-3] + bytes(3))
    refused(run, "truncated or corrupt", train=folder, name="third", shuffle_buffer_size=30)
