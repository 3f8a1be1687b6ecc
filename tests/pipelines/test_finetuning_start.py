"""What a run of fine-tuning starts from."""

import dataclasses

import numpy as np
import pytest
import tiny_checkpoints
import tiny_finetuning
from refusals import one_line
from tiny_finetuning import METRICS, predict

from albert_tf.checkpoints import formats, native
from albert_tf.kinds import task_table
from albert_tf.records import manifest
from albert_tf.tasks import predictions

pytestmark = pytest.mark.usefixtures("eagerly")
folders = tiny_finetuning.folders
run = tiny_finetuning.run_task
STILL = {"learning_rate": 0.0, "num_train_steps": 1, "num_warmup_steps": 0}


@pytest.fixture
def initial(vocabulary, tmp_path):
    def write(**changes):
        made = tiny_checkpoints.make(vocabulary, **changes)
        return {"init_checkpoint": tiny_checkpoints.write(tmp_path / "initial", made, "albert_tf")}

    return write


def test_a_run_starts_from_the_encoder_of_a_checkpoint(run, initial, tmp_path, capsys):
    start = initial()
    run(options=start, **STILL)
    log = capsys.readouterr().err.splitlines()
    assert "left out: the head masked_lm, 5 weights" in log
    assert "left out: the head sentence_order, 2 weights" in log
    assert "new: the task's head, output_bias, output_weights" in log
    assert "loaded 25, missing 0, unexpected 0, mismatched 0" in log
    assert not any("step 0" in line for line in log)
    weights, read = native.read_weights(f"{tmp_path}/run"), formats.read(start["init_checkpoint"])
    for name in weights.keys() & read.weights.keys():
        np.testing.assert_array_equal(weights[name], read.weights[name])
    assert weights["output_weights"].shape == (3, 8)


@pytest.mark.full
def test_a_run_starts_from_another_task(run, vocabulary, tmp_path, capsys):
    """With its head if asked for, which must then fit."""
    run(name="mnli", num_train_steps=2, num_warmup_steps=0, eval_steps=2)
    checkpoint = formats.read(f"{tmp_path}/mnli")
    options = {"init_checkpoint": f"{tmp_path}/mnli", "init_head": True}
    run(name="with", options=options, **STILL)
    assert "evaluation at step 0" in capsys.readouterr().err
    weights = native.read_weights(f"{tmp_path}/with")
    np.testing.assert_array_equal(weights["output_weights"], checkpoint.weights["output_weights"])
    run(name="without", options={"init_checkpoint": f"{tmp_path}/mnli"}, **STILL)
    assert "left out: the head classifier, 2 weights" in capsys.readouterr().err
    weights = native.read_weights(f"{tmp_path}/without")
    assert np.abs(weights["output_weights"] - checkpoint.weights["output_weights"]).max() > 1e-3
    with one_line(r"has output_bias \[3\] instead of \[1\] .*init_head"):
        run("regression", name="no", options=options, **STILL)
    assert not (tmp_path / "no").exists()


def test_a_run_starts_from_a_regression_of_transformers(run, vocabulary, tmp_path):
    made = tiny_checkpoints.make_one_output(vocabulary, is_regression=True)
    theirs = tiny_checkpoints.write(tmp_path / "theirs", made, "hugging_face")
    options = {"init_checkpoint": theirs, "init_head": True}
    run("regression", options=options, **STILL)
    again = formats.read(f"{tmp_path}/run")
    assert again.is_regression
    np.testing.assert_array_equal(again.weights["output_weights"], made.weights["output_weights"])
    with one_line(r"theirs has a regression head, .*init_head"):
        run("multiple_choice", name="no", options=options, **STILL)
    assert not (tmp_path / "no").exists()


def test_a_head_of_tokens_needs_no_pooler(run, initial, tmp_path, capsys):
    run("span", options=initial(model="masked_lm"), num_train_steps=1, num_warmup_steps=0)
    assert "loaded 23, missing 2, unexpected 0, mismatched 0" in capsys.readouterr().err
    with one_line("2 missing: bert/pooler/dense/bias"):
        run(name="other", options=initial(model="masked_lm"))


def test_all_else_is_strict(run, initial, tmp_path):
    for changes, message in (
        ({"num_attention_heads": 4}, "was trained with num_attention_heads=4, the config has 2"),
        ({"more": {"some/weight": (2,)}}, "1 unexpected: some/weight"),
    ):
        with one_line(message):
            run(options=initial(**changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", ["classifier", "squad2"])
def test_a_checkpoint_of_others_is_evaluated(model, folders, vocabulary, tmp_path):
    kind = {"classifier": "classification", "squad2": "span_or_none"}[model]
    made = tiny_checkpoints.make(vocabulary, model=model)
    if model == "classifier":
        rows = {name: made.weights[name][:3] for name in ("output_weights", "output_bias")}
        made = dataclasses.replace(made, weights=made.weights | rows)
    tiny_checkpoints.write(tmp_path / "theirs", made)
    folder = folders[kind][1]
    task = task_table.from_header(manifest.read(folder)["settings"])
    sizes = {"max_seq_length": 14, "doc_stride": 5, "max_query_length": 2, "eval_batch_size": 4}
    sizes["dtype"] = "float32"
    scores = predict(tmp_path / "theirs", folder, tmp_path / "out", task=task, **sizes)
    assert METRICS[kind] in scores
    content = predictions.read(f"{tmp_path}/out/predictions-dev.json")
    assert content["checkpoint"] == f"{tmp_path}/theirs/model.ckpt-best"
