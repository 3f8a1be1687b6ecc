"""A run as a whole: what it writes, what it refuses."""

import glob
import json
import os
import shutil

import numpy as np
import pytest
import replicas
import sealed_files
import tensorflow as tf
import tiny_run
from refusals import one_line

from albert_tf import config_io, folders
from albert_tf.checkpoints import formats, native
from albert_tf.pipelines import pretraining_evaluation, pretraining_records
from albert_tf.train_config import PretrainConfig

pytestmark = pytest.mark.usefixtures("eagerly")


def test_a_run_writes_all_it_promises_and_is_evaluated(data, tmp_path, capsys):
    config = tiny_run.settings(eval_steps=6, keep_checkpoint_max=2, keep_every=5)
    tiny_run.run(data, tmp_path, config, evaluate=True)
    log = capsys.readouterr().err
    for part in (
        "step 12/12",
        "seq/s",
        "left",
        "is hardly below what token frequencies alone give",
    ):
        assert part in log
    names = set(os.listdir(tmp_path))
    assert {"run.json", "vocabulary", "metrics.jsonl", "best", "checkpoint"} <= names
    for folder, steps in ((".", [8, 12]), ("kept", [5, 10])):
        kept = sorted(path.name for path in (tmp_path / folder).glob("*.index"))
        assert kept == sorted(f"model.ckpt-{step}.index" for step in steps)
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert config_io.load(PretrainConfig, f"{tmp_path}/run.json") == config
    assert formats.read(f"{tmp_path}/kept/model.ckpt-5").run["config"]["keep_every"] == 5
    metrics = tiny_run.metrics(tmp_path)
    steps = [record["step"] for record in metrics if "loss" in record]
    assert steps == [2, 4, 5, 6, 8, 10, 12]
    assert metrics[0]["learning_rate"] == pytest.approx(0.05 / 2)  # of the second update
    assert metrics[-2].keys() == {
        "step", "loss", "masked_lm_loss", "masked_lm_accuracy", "sentence_order_loss",
        "sentence_order_accuracy", "learning_rate", "gradient_norm", "weight_norm",
    }  # fmt: skip
    evaluated = {record["step"]: record for record in metrics if "eval_loss" in record}
    assert [*evaluated] == [6, 12]
    best = json.loads((tmp_path / "best" / "metrics.json").read_text())
    accuracies = [record["eval_masked_lm_accuracy"] for record in evaluated.values()]
    assert best["masked_lm_accuracy"] == max(accuracies)
    prefix = f"{tmp_path}/best/model.ckpt-{best['step']}"
    eval_files = pretraining_evaluation.recall_files(prefix)
    assert eval_files == sorted(glob.glob(f"{data}/eval-*"))
    results = pretraining_evaluation.evaluate(str(tmp_path), eval_files, measures_layers=True)
    assert results["checkpoint"] == prefix
    assert [len(x) for x in results["layer_distances"].values()] == [1, 1]
    assert "by_layer" not in results["sop"]
    for name in ("masked_lm_loss", "num_sentence_order"):
        expected = evaluated[best["step"]][f"eval_{name}"]
        assert results["sop"][name] == pytest.approx(expected, rel=1e-6)
    tiny_run.run(data, tmp_path, tiny_run.settings(eval_steps=6), evaluate=True)  # is finished
    assert tiny_run.metrics(tmp_path) == metrics


def test_a_loss_far_above_its_lowest_is_named(data, caplog):
    files = [f"{data}/train-*"], [f"{data}/eval-*"]
    run_data = pretraining_records.read(tiny_run.settings(), *files)
    earlier = [{"step": 1, "loss": 0.1}, *({"step": 2, "eval_masked_lm_loss": x} for x in (3, 1))]
    run_data.warn({"masked_lm_loss": 1.4}, earlier)
    assert not caplog.text
    run_data.warn({"masked_lm_loss": 1.6}, earlier)
    assert "masked_lm_loss 1.60 was 1.00 before: the run has diverged" in caplog.text


def test_a_checkpoint_of_another_format_is_evaluated_on_several_devices(
    data, trained, tmp_path, use_graphs
):
    formats.convert(trained, f"{tmp_path}/google", to_format="google")
    use_graphs()
    # Neither batch can be shared by two; without a run it is in float32, as the run was.
    sizes = ("train_batch_size=9", "eval_batch_size=7")
    two, held_out = replicas.two_replicas(), [f"{data}/eval-*"]
    evaluate = pretraining_evaluation.evaluate
    one = evaluate(trained, held_out)
    other = evaluate(f"{tmp_path}/google", held_out, two, overrides=sizes)
    for name in ("masked_lm_loss", "sentence_order_loss", "num_sentence_order"):
        assert other["sop"][name] == pytest.approx(one["sop"][name], rel=1e-5), name


@pytest.mark.full
def test_after_each_layer_the_heads_read_what_a_network_of_fewer_layers_gives(
    data, tmp_path, use_graphs
):
    runs, held_out = [f"{tmp_path}/{depth}" for depth in (1, 2, 3)], [f"{data}/eval-*"]
    for depth, run in enumerate(runs, 1):
        albert = tiny_run.albert(num_hidden_layers=depth)
        config = tiny_run.settings(num_train_steps=1, albert=albert, learning_rate=0.0)
        tiny_run.run(data, run, config)
    use_graphs()
    evaluate = pretraining_evaluation.evaluate
    found = [evaluate(run, held_out, by_layer=run is runs[2])["sop"] for run in runs]
    for name in ("masked_lm_loss", "sentence_order_accuracy"):
        expected = [values[name] for values in found]
        assert found[2]["by_layer"][name] == pytest.approx(expected, rel=1e-6)
    assert len(set(found[2]["by_layer"]["masked_lm_loss"])) == 3


def test_nsp_records_of_the_same_text_give_the_cross_evaluation(data, trained, tmp_path):
    nsp = tiny_run.write_data(tmp_path / "nsp", like=data, sentence_task="nsp")
    results = pretraining_evaluation.evaluate(trained, [f"{data}/eval-*", f"{nsp}/eval-*"])
    assert "sentence_order_accuracy" in results["sop"]
    # The same random records under the other name: the same hits.
    assert results["nsp"]["next_sentence_accuracy"] == results["sop"]["sentence_order_accuracy"]
    changes = {"sentence_task": "nsp", "random_from": "other_file"}
    other = tiny_run.write_data(tmp_path / "other", like=data, **changes)
    results = pretraining_evaluation.evaluate(trained, [f"{nsp}/eval-*", f"{other}/eval-*"])
    assert results.keys() == {"checkpoint", "nsp", "nsp_other_file"}


def test_a_loss_that_is_not_finite_stops_the_run(data, tmp_path):
    # LAMB scales every update to the weight: only an absurd rate overflows.
    config = tiny_run.settings(learning_rate=1e30, num_warmup_steps=0)
    message = r"^loss, .*, weight_norm: no longer finite in the updates 1 to 2\. .*\(none yet\)"
    with one_line(message):
        tiny_run.run(data, tmp_path, config)
    [record] = tiny_run.metrics(tmp_path)  # written before the end
    assert np.isnan(record["loss"])
    assert tf.train.latest_checkpoint(str(tmp_path)) is None


def poisoned(number, seed=0):
    values = tiny_run.examples(number, seed)
    if seed == 0:
        values["masked_lm_weights"][-1, 0] = np.nan  # not in the first batch
    return values


@pytest.mark.usefixtures("branches")
def test_a_rollback_leaves_out_the_data_that_did_it(tmp_path, capsys):
    data = tiny_run.write_data(tmp_path / "data", examples_of=poisoned)
    steps = {"num_train_steps": 6, "save_checkpoints_steps": 1, "steps_per_loop": 1}
    tiny_run.run(data, tmp_path / "run", tiny_run.settings(**steps, max_rollbacks=3))
    log = capsys.readouterr().err
    assert "masked_lm_loss, masked_lm_accuracy, gradient_norm, weight_norm: no longer finite" in log
    assert log.index("mlm nan") < log.index(": back to ")
    assert [record["step"] for record in tiny_run.metrics(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]
    assert tiny_run.all_tensors(tmp_path / "run")["position/.ATTRIBUTES/VARIABLE_VALUE"] == 7


@pytest.mark.full
@pytest.mark.usefixtures("as_users", "in_graphs")
def test_the_operation_that_is_not_finite_is_named(data, tmp_path):
    config = tiny_run.settings(learning_rate=1e16, num_warmup_steps=0)
    with one_line(
        r"^step [12]: the result of MatMul, created at model/layers\.py \(L\d+\), is not"
    ):
        tiny_run.run(data, tmp_path / "run", config, debug_nans=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 13}, "max_seq_length=14, the config has 13"),
        ({"sentence_task": "nsp"}, "sentence_task='sop', the config has 'nsp'"),
        ({"albert": tiny_run.albert(vocab_size=60)}, "vocab_size=61, the config has 60"),
        ({"train_batch_size": 9, "num_micro_batches": 2}, "train_batch_size 9 is not a multiple"),
        ({"optimizer": "sgd"}, "not one of lamb, adamw"),
    ],
)
def test_configs_that_do_not_fit_leave_no_folder_behind(data, tmp_path, changes, message):
    with one_line(message):
        tiny_run.run(data, tmp_path / "run", tiny_run.settings(**changes))
    assert not (tmp_path / "run").exists()


def test_records_that_do_not_fit_are_refused(data, tmp_path):
    cut = shutil.copytree(data, tmp_path / "cut") / "train-1.tfrecord"
    cut.write_bytes(cut.read_bytes()[:-9])
    unfinished = tmp_path / "train-0.tfrecord"
    unfinished.touch()
    other = tiny_run.write_records(f"{tmp_path}/other", tiny_run.TRAIN, vocabulary_sha256="other")
    for patterns, message in {
        (f"{data}/nothing-*",): "no file matches",
        (str(unfinished),): "there are no complete records in",
        (f"{data}/train-*", f"{other}/train-*"): "different vocabularies",
        (f"{cut.parent}/train-*",): r"train-1\.tfrecord has .* bytes, which differs from its",
    }.items():
        with one_line(message):
            pretraining_records.read(tiny_run.settings(), patterns, [])


def test_a_folder_of_another_run_is_refused(data, trained, tmp_path):
    """But not for what is only kept or told."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    steps = {"num_train_steps": 1}
    with one_line(r"holds work with albert\.hidden_size=8, not 10"):
        albert = tiny_run.albert(hidden_size=10)
        tiny_run.run(data, tmp_path, tiny_run.settings(**steps, albert=albert))
    with one_line(r"with --train_files\.2=\[.train-1.tfrecord., 16\], not"):
        tiny_run.run_files([f"{data}/train-0*"], [], tmp_path, tiny_run.settings(**steps))
    with folders.locking(str(tmp_path)), one_line("is in use by another process"):
        tiny_run.run(data, tmp_path, tiny_run.settings(**steps))
    tiny_run.run(data, tmp_path, tiny_run.settings(**steps, keep_checkpoint_max=9))


def test_weights_of_another_vocabulary_are_refused(trained, tmp_path):
    other = tiny_run.write_data(tmp_path / "other")
    with one_line("have different vocabularies"):
        tiny_run.run(other, tmp_path / "second", tiny_run.settings(), init_checkpoint=trained)
    assert not (tmp_path / "second").exists()


def test_records_that_cannot_be_evaluated_are_refused(data, trained, tmp_path):
    longer = tiny_run.write_data(tmp_path / "longer", like=data, max_seq_length=17)
    for patterns, message in {
        f"{longer}/eval-*": "max_seq_length=17, more than the model's max_position_embeddings 16",
        f"{data}/eval-*,{tiny_run.write_data(tmp_path / 'same', like=data)}/eval-*": "a second",
        f"{tiny_run.write_data(tmp_path / 'foreign')}/eval-*": "have another vocabulary",
        f"{data}/*.json": "Pass only record files",
    }.items():
        with one_line(message):
            pretraining_evaluation.evaluate(trained, patterns.split(","))


def test_init_checkpoint_starts_from_the_weights_of_another_run(data, trained, tmp_path):
    config = tiny_run.settings(num_train_steps=1, learning_rate=1e-9, seed=6)
    tiny_run.run(data, tmp_path, config, init_checkpoint=trained)
    second = native.read_weights(str(tmp_path))
    for name, value in native.read_weights(trained).items():
        np.testing.assert_allclose(second[name], value, atol=1e-6, err_msg=name)


def test_a_manifest_that_counts_wrongly_is_noticed(data, tmp_path):
    path = shutil.copytree(data, tmp_path / "data") / "manifest.json"
    content = sealed_files.read(path)
    content["files"]["train-0.tfrecord"] = 20
    sealed_files.write(path, content)
    with one_line(r"\(21 examples where its .* says 20\)"):
        tiny_run.run(path.parent, tmp_path / "run", tiny_run.settings())
