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

from albert_tf import config_io, files
from albert_tf.checkpoints import formats, native
from albert_tf.errors import UserError
from albert_tf.inference import loaded_model
from albert_tf.pipelines import pretraining_evaluation, pretraining_records
from albert_tf.train import train_state
from albert_tf.train_config import PretrainConfig

pytestmark = pytest.mark.usefixtures("eagerly")
ONE = tf.distribute.get_strategy()


@pytest.mark.usefixtures("branches")
def test_a_run_writes_all_it_promises(data, tmp_path, capsys):
    config = tiny_run.settings(eval_steps=6, keep_checkpoint_max=2)
    tiny_run.run(data, tmp_path, config, evaluate=True)
    log = capsys.readouterr().err
    assert "step 12/12" in log
    assert "seq/s" in log
    assert "left" in log
    assert "is not below that of piece frequencies" in log
    names = set(os.listdir(tmp_path))
    assert {"config.json", "vocabulary", "metrics.jsonl", "best", "checkpoint"} <= names
    kept = sorted(name for name in names if name.endswith(".index"))
    assert kept == ["model.ckpt-12.index", "model.ckpt-8.index"]
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert config_io.load(PretrainConfig, f"{tmp_path}/config.json") == config
    metrics = tiny_run.metrics(tmp_path)
    steps = [record["step"] for record in metrics if "loss" in record]
    assert steps == [2, 4, 6, 8, 10, 12]
    assert metrics[0]["learning_rate"] == pytest.approx(0.05 / 2)  # of the second update
    assert metrics[-2].keys() == {
        "step", "loss", "masked_lm_loss", "masked_lm_accuracy", "sentence_order_loss",
        "sentence_order_accuracy", "learning_rate", "gradient_norm", "weight_norm",
    }  # fmt: skip
    evaluated = [record for record in metrics if "eval_loss" in record]
    assert [record["step"] for record in evaluated] == [6, 12]
    assert evaluated[0]["eval_num_sentence_order"] == 10
    best = json.loads((tmp_path / "best" / "metrics.json").read_text())
    accuracies = {r["step"]: r["eval_masked_lm_accuracy"] for r in evaluated}
    assert best["masked_lm_accuracy"] == max(accuracies.values())
    assert os.path.exists(f"{tmp_path}/best/model.ckpt-{best['step']}.index")


def test_a_loss_far_above_its_lowest_is_named(data, caplog):
    run_data = pretraining_records.read(
        tiny_run.settings(), [f"{data}/train-*"], [f"{data}/eval-*"]
    )
    earlier = [{"step": 1, "loss": 0.1}, *({"step": 2, "eval_masked_lm_loss": x} for x in (3, 1))]
    run_data.warn({"masked_lm_loss": 1.4}, earlier)
    assert not caplog.text
    run_data.warn({"masked_lm_loss": 1.6}, earlier)
    assert "masked_lm_loss 1.60 was 1.00 before: the run has diverged" in caplog.text


def test_a_run_warns_with_the_metrics_of_its_file(data, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(pretraining_records, "_DIVERGED_NATS", -9.0)  # so the second has risen
    tiny_run.run(data, tmp_path, tiny_run.settings(num_train_steps=6, eval_steps=3), evaluate=True)
    [first, _] = [x for x in tiny_run.metrics(tmp_path) if "eval_masked_lm_loss" in x]
    assert f"was {first['eval_masked_lm_loss']:.2f} before" in caplog.text


def test_evaluate_and_fill_mask_read_the_run(data, tmp_path):
    tiny_run.run(data, tmp_path, tiny_run.settings(num_train_steps=2), evaluate=True)
    last = tiny_run.metrics(tmp_path)[-1]
    eval_files = pretraining_evaluation.recall_files(f"{tmp_path}/best/model.ckpt-2")
    assert eval_files == sorted(glob.glob(f"{data}/eval-*"))
    results = pretraining_evaluation.evaluate(str(tmp_path), eval_files, measures_layers=True)
    assert results["checkpoint"] == f"{tmp_path}/best/model.ckpt-2"
    depth = tiny_run.settings().albert.num_hidden_layers
    assert [len(x) for x in results["layer_distances"].values()] == [depth, depth]
    assert "by_layer" not in results["sop"]
    assert results["sop"]["masked_lm_loss"] == pytest.approx(last["eval_masked_lm_loss"], rel=1e-6)
    assert results["sop"]["num_sentence_order"] == 10
    model = loaded_model.load(str(tmp_path))
    [guesses] = model.fill_mask(["[MASK] abc [MASK]"], top_k=3)
    assert [len(best) for best in guesses] == [3, 3]
    assert guesses[0][0].probability >= guesses[0][1].probability > 0
    with pytest.raises(UserError, match=r"no \[MASK\]"):
        model.fill_mask(["nothing here"])
    with pytest.raises(UserError, match=r"^a text of 123 tokens is over 16\. Shorten it\.$"):
        model.fill_mask(["[MASK] " + "abc " * 30])


def test_a_checkpoint_of_another_format_is_evaluated_on_several_devices(
    data, trained, tmp_path, use_graphs
):
    formats.convert(trained, f"{tmp_path}/google", to_format="google")
    use_graphs()
    two = replicas.two_replicas()
    [one, other] = (
        pretraining_evaluation.evaluate(path, [f"{data}/eval-*"], strategy, overrides=changes)[
            "sop"
        ]
        for path, strategy, changes in (
            (trained, ONE, ()),
            # Neither batch can be shared by two; without a run it is in float32, as the run was.
            (f"{tmp_path}/google", two, ("train_batch_size=9", "eval_batch_size=7")),
        )
    )
    for name in ("masked_lm_loss", "sentence_order_loss", "num_sentence_order"):
        assert other[name] == pytest.approx(one[name], rel=1e-5), name


@pytest.mark.full
def test_after_each_layer_the_heads_read_what_a_network_of_fewer_layers_gives(
    data, tmp_path, use_graphs
):
    for depth in (1, 2, 3):
        config = tiny_run.settings(
            num_train_steps=1, albert=tiny_run.albert(num_hidden_layers=depth), learning_rate=0.0
        )
        tiny_run.run(data, tmp_path / f"{depth}", config)
    use_graphs()
    found = [
        pretraining_evaluation.evaluate(
            f"{tmp_path}/{depth}", [f"{data}/eval-*"], by_layer=depth == 3
        )["sop"]
        for depth in (1, 2, 3)
    ]
    for name in ("masked_lm_loss", "sentence_order_accuracy"):
        expected = [values[name] for values in found]
        assert found[2]["by_layer"][name] == pytest.approx(expected, rel=1e-6)
    assert len(set(found[2]["by_layer"]["masked_lm_loss"])) == 3


def test_held_out_records_that_are_trained_on_are_named(data, caplog):
    paths = [f"{data}/{name}" for name in tiny_run.TRAIN]
    pretraining_records.check(tiny_run.settings(), paths, paths[:1])
    assert f"1 of --eval_files ({paths[0]}) are in --train_files" in caplog.text


def test_nsp_records_of_the_same_text_give_the_cross_evaluation(data, trained, tmp_path):
    nsp = tiny_run.write_data(tmp_path / "nsp", like=data, sentence_task="nsp")
    results = pretraining_evaluation.evaluate(trained, [f"{data}/eval-*", f"{nsp}/eval-*"])
    assert "sentence_order_accuracy" in results["sop"]
    # The same random records under the other name: the same hits.
    assert results["nsp"]["next_sentence_accuracy"] == results["sop"]["sentence_order_accuracy"]
    other = tiny_run.write_data(
        tmp_path / "other", like=data, sentence_task="nsp", random_from="other_file"
    )
    both = [f"{nsp}/eval-*", f"{other}/eval-*"]
    results = pretraining_evaluation.evaluate(trained, both)
    assert results.keys() == {"checkpoint", "nsp", "nsp_other_file"}


def test_a_second_start_of_a_finished_run_changes_nothing(data, tmp_path):
    config = tiny_run.settings(num_train_steps=2)
    tiny_run.run(data, tmp_path, config)
    before = tiny_run.metrics(tmp_path)
    tiny_run.run(data, tmp_path, config)
    assert tiny_run.metrics(tmp_path) == before


def test_init_checkpoint_starts_from_the_weights_of_another_run(data, trained, tmp_path):
    config = tiny_run.settings(num_train_steps=1, learning_rate=1e-9, seed=6)
    tiny_run.run(data, tmp_path / "second", config, init_checkpoint=trained)
    first = native.read_weights(trained)
    second = native.read_weights(f"{tmp_path}/second")
    for name, value in first.items():
        np.testing.assert_allclose(second[name], value, atol=1e-6, err_msg=name)


def test_a_loss_that_is_not_finite_stops_the_run(data, tmp_path):
    # LAMB scales every update to the weight: only an absurd rate overflows.
    config = tiny_run.settings(learning_rate=1e30, num_warmup_steps=0)
    message = r"^loss, .*, weight_norm: not finite any more in the updates 1 to 2\. .*\(none yet\)"
    with pytest.raises(UserError, match=message):
        tiny_run.run(data, tmp_path, config)
    [record] = tiny_run.metrics(tmp_path)  # written before the end
    assert np.isnan(record["loss"])
    assert tf.train.latest_checkpoint(str(tmp_path)) is None


def poisoned(number, seed=0):
    values = tiny_run.examples(number, seed)
    if seed == 0:
        values["masked_lm_weights"][-1, 0] = np.nan  # not in the first batch
    return values


def test_a_rollback_leaves_out_the_data_that_did_it(tmp_path, capsys):
    data = tiny_run.write_data(tmp_path / "data", examples_of=poisoned)
    config = tiny_run.settings(
        num_train_steps=6, save_checkpoints_steps=1, steps_per_loop=1, max_rollbacks=3
    )
    tiny_run.run(data, tmp_path / "run", config)
    log = capsys.readouterr().err
    assert "masked_lm_loss, masked_lm_accuracy, gradient_norm, weight_norm: not finite any" in log
    assert log.index("mlm nan") < log.index(": back to ")
    assert [record["step"] for record in tiny_run.metrics(tmp_path / "run")] == [1, 2, 3, 4, 5, 6]
    assert tiny_run.all_tensors(tmp_path / "run")["position/.ATTRIBUTES/VARIABLE_VALUE"] == 7


@pytest.mark.usefixtures("as_users")
def test_the_operation_that_is_not_finite_is_named(data, tmp_path):
    config = tiny_run.settings(learning_rate=1e16, num_warmup_steps=0)
    message = (
        r"^step [12]: the result of MatMul of \S+/self_attention(_\d+)? \(layers\.py, line \d+\)"
    )
    with pytest.raises(UserError, match=message):
        tiny_run.run(data, tmp_path / "run", config, debug_nans=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_seq_length": 13}, "max_seq_length=14, the config has 13"),
        ({"max_predictions_per_seq": 4}, "max_predictions_per_seq=3, the config has 4"),
        ({"sentence_task": "nsp"}, "sentence_task='sop', the config has 'nsp'"),
        ({"albert": tiny_run.albert(vocab_size=60)}, "vocab_size=61, the config has 60"),
        (
            {"train_batch_size": 9, "num_micro_batches": 2},
            "train_batch_size 9 is not a multiple of 2",
        ),
        ({"optimizer": "sgd"}, "not one of lamb, adamw"),
    ],
)
def test_mistakes_leave_no_folder_behind(data, tmp_path, changes, message):
    with pytest.raises(UserError, match=message) as caught:
        tiny_run.run(data, tmp_path / "run", tiny_run.settings(**changes))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_second_run_in_the_folder_is_refused(data, tmp_path):
    place = tmp_path / "run"
    with files.locking_folder(str(place)):
        with pytest.raises(UserError, match="run is in use by another process"):
            tiny_run.run(data, place, tiny_run.settings())
        assert os.listdir(place) == [files.LOCK]


def test_a_run_goes_on_with_its_own_records_alone(data, trained):
    config = tiny_run.settings(num_train_steps=1)
    with pytest.raises(
        UserError, match=r"holds work with --train_files\.2=\[.train-1.tfrecord., 16\], not None"
    ):
        tiny_run.run_files([f"{data}/train-0*"], [], trained, config)


def test_weights_of_another_vocabulary_are_refused(trained, tmp_path):
    other = tiny_run.write_data(tmp_path / "other")
    with pytest.raises(UserError, match="are different vocabularies"):
        tiny_run.run(other, tmp_path / "second", tiny_run.settings(), init_checkpoint=trained)
    assert not (tmp_path / "second").exists()


def test_records_that_cannot_be_evaluated_are_refused(data, trained, tmp_path):
    longer = tiny_run.write_data(tmp_path / "longer", like=data, max_seq_length=17)
    for patterns, message in {
        f"{longer}/eval-*": "max_seq_length=17, over the model's max_position_embeddings 16",
        f"{data}/eval-*,{tiny_run.write_data(tmp_path / 'same', like=data)}/eval-*": "a second",
        f"{tiny_run.write_data(tmp_path / 'foreign')}/eval-*": "of another vocabulary",
        f"{data}/*.json": "Name record files alone",
    }.items():
        with pytest.raises(UserError, match=message) as caught:
            pretraining_evaluation.evaluate(trained, patterns.split(","))
        assert "\n" not in str(caught.value)


def test_a_folder_that_is_no_run_is_named(data, tmp_path):
    with pytest.raises(UserError, match=r"there is nothing at .*\. Name a folder, a prefix"):
        pretraining_evaluation.evaluate(str(tmp_path), [f"{data}/eval-*"])


def forget_sizes(folder):
    """Leaves the sizes out of a manifest, as in those of Google's records."""
    content = sealed_files.read(folder / "manifest.json")
    del content["bytes"]
    sealed_files.write(folder / "manifest.json", content)


def test_records_cut_between_two_of_them_are_noticed(data, trained, tmp_path):
    cut = tiny_run.write_data(tmp_path / "cut", like=data)
    [path] = (tmp_path / "cut").glob("eval-*")
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records[:-1]:
            writer.write(record)
    with pytest.raises(UserError, match=r"eval-0.tfrecord has .* bytes, which is not what its"):
        pretraining_evaluation.evaluate(trained, [f"{cut}/eval-*"])
    forget_sizes(tmp_path / "cut")
    with pytest.raises(UserError, match=r"eval-0.* \(9 examples where its .* says 10\)"):
        pretraining_evaluation.evaluate(trained, [f"{cut}/eval-*"])


@pytest.mark.parametrize("counted", [20, 22])
def test_a_manifest_that_counts_wrongly_is_noticed(data, tmp_path, counted):
    path = shutil.copytree(data, tmp_path / "data") / "manifest.json"
    content = sealed_files.read(path)
    content["files"]["train-0.tfrecord"] = counted
    sealed_files.write(path, content)
    with pytest.raises(UserError, match=rf"\(21 examples where its .* says {counted}\)") as caught:
        tiny_run.run(path.parent, tmp_path / "run", tiny_run.settings())
    assert "\n" not in str(caught.value)


def test_records_of_a_task_are_no_pretraining_records(data, trained, tmp_path):
    path = shutil.copytree(data, tmp_path / "data") / "manifest.json"
    for settings in ({"task": "mrpc"}, {"sentence_task": "sop", "max_seq_length": "14"}):
        sealed_files.write(path, {**sealed_files.read(path), "settings": settings})
        with pytest.raises(UserError, match="does not describe pre-training records"):
            pretraining_evaluation.evaluate(trained, [f"{path.parent}/eval-*"])


def test_a_damaged_line_of_the_metrics_stops_a_run_before_it_starts(
    data, trained, tmp_path, monkeypatch
):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write("{\n")
    monkeypatch.setattr(train_state, "make_train_state", None)
    with pytest.raises(UserError, match=r"metrics\.jsonl: line \d is damaged"):
        tiny_run.run(data, tmp_path, tiny_run.settings(num_train_steps=1))


def test_a_workdir_of_another_config_is_refused_but_not_for_what_is_only_kept_or_told(
    data, trained, tmp_path
):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    with pytest.raises(UserError, match=r"holds work with albert\.hidden_size=8, not 10"):
        albert = tiny_run.albert(hidden_size=10)
        tiny_run.run(data, tmp_path, tiny_run.settings(num_train_steps=1, albert=albert))
    tiny_run.run(data, tmp_path, tiny_run.settings(num_train_steps=1, keep_checkpoint_max=9))


def test_missing_data_and_other_vocabularies_are_refused(data, tmp_path):
    config = tiny_run.settings()
    with pytest.raises(UserError, match="no file matches"):
        tiny_run.run_files([f"{data}/nothing-*"], [], tmp_path, config)
    with pytest.raises(UserError, match="so unfinished or not made here"):
        (tmp_path / "train-0.tfrecord").touch()
        tiny_run.run_files([f"{tmp_path}/train-*"], [], tmp_path / "run", config)
    other = tiny_run.write_records(
        str(tmp_path / "other"), tiny_run.TRAIN, vocabulary_sha256="other"
    )
    with pytest.raises(UserError, match="different vocabularies"):
        files = [f"{data}/train-*", f"{other}/train-*"]
        tiny_run.run_files(files, [], tmp_path / "run", config)
    assert not (tmp_path / "run").exists()


def test_truncated_records_are_named(tmp_path):
    data = tiny_run.write_data(tmp_path / "data")
    bad = tmp_path / "data" / "train-1.tfrecord"
    bad.write_bytes(bad.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"train-1\.tfrecord has .* bytes, which is not what its"):
        tiny_run.run(data, tmp_path / "run", tiny_run.settings())
    assert not (tmp_path / "run").exists()
    forget_sizes(tmp_path / "data")
    with pytest.raises(UserError, match=r"train-1\.tfrecord is truncated or corrupt"):
        tiny_run.run(data, tmp_path / "run", tiny_run.settings())


def test_keep_every_keeps_checkpoints_beside_the_newest(data, tmp_path):
    steps = {"num_train_steps": 6, "keep_checkpoint_max": 1, "save_checkpoints_steps": 4}
    config = tiny_run.settings(keep_every=5, **steps)
    tiny_run.run(data, tmp_path, config)
    kept = {path.name for path in (tmp_path / "kept").glob("*.index")}
    assert kept == {"model.ckpt-5.index"}
    assert [path.name for path in tmp_path.glob("*.index")] == ["model.ckpt-6.index"]
    # The run's folder is found, so that programs take it as they take the others.
    model = formats.read(f"{tmp_path}/kept/model.ckpt-5")
    assert model.run["config"]["keep_every"] == 5
    # What is kept changes no weights, and may change when the run goes on.
    plain = tiny_run.settings(**steps)
    tiny_run.run(data, tmp_path / "plain", plain)
    expected, actual = (tiny_run.all_tensors(path) for path in (tmp_path / "plain", tmp_path))
    assert all((actual[name] == value).all() for name, value in expected.items())
    tiny_run.run(data, tmp_path, plain)
