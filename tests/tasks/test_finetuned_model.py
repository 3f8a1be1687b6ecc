"""What a run takes from a checkpoint and from what the user says, without training one."""

import dataclasses
import json

import pytest
import tiny_checkpoints

from albert_tf import config
from albert_tf.data_prep.task_data.task_dataset import TaskDataset
from albert_tf.kinds import task_table
from albert_tf.tasks import finetuned_model, recipes


def settings(*overrides, task="rte", recipe="v1", path=None, initial=None):
    return recipes.resolve_config(
        task_table.get(task), initial, recipes.ConfigOverrides(recipe, path, overrides)
    )


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ((), (800, 200)),
        (("num_train_epochs=2",), (20, 2)),  # 320 examples, 32 a step
        (("num_train_steps=0", "num_train_epochs=1"), (10, 1)),
        (("num_train_steps=0",), (30, 3)),
        (("num_train_steps=20",), (20, 5)),
        (("num_train_steps=400", "num_warmup_steps=200"), (400, 200)),
        (("num_train_epochs=2", "num_warmup_steps=7"), (20, 7)),
        (("num_train_epochs=2", "num_train_steps=400"), (400, 100)),
        (("warmup_proportion=0.5",), (800, 400)),
        (("warmup_proportion=0",), (800, 0)),
        (("warmup_proportion=0.5", "num_warmup_steps=9"), (800, 9)),
        (("warmup_proportion=0.5", "num_train_epochs=2"), (20, 10)),
    ],
)
def test_passes_replace_the_steps_of_a_recipe(overrides, expected, tmp_path):
    values = {key: json.loads(text) for key, text in (one.split("=") for one in overrides)}
    (tmp_path / "config.json").write_text(json.dumps(values))
    for actual in (settings(*overrides), settings(path=str(tmp_path / "config.json"))):
        actual = actual.with_steps(320)
        assert (actual.num_train_steps, actual.num_warmup_steps) == expected
        assert actual.learning_rate == 3e-5  # the rest of the recipe stays


def fit(task, num_examples, *overrides):
    changes = recipes.ConfigOverrides(None, None, overrides)
    manifest = {"files": {"records.tfrecord": num_examples}, "settings": {}}
    train = TaskDataset("", manifest, task_table.get(task), [{}] * num_examples)
    config = recipes.resolve_config(train.task, None, changes)
    return recipes.fit_to_data(config, changes, train)


@pytest.mark.parametrize(
    ("task", "num_examples", "overrides", "steps", "epochs"),
    [
        ("squad1", 87_599, (), (3649, 365), 1.9995),
        ("squad1", 4380, (), (182, 18), 2.0),
        ("squad1", 4380, ("num_train_steps=3649",), (3649, 365), 39.989),
        ("squad1", 4380, ("num_train_epochs=3",), (273, 27), 3.0),
        ("squad1", 4380, ("num_warmup_steps=5",), (182, 5), 2.0),
        ("squad1", 87_599, ("train_batch_size=24",), (7299, 729), 2.0),
        ("rte", 2400, (), (800, 200), 10.6667),  # another release
        ("rte", 320, (), (103, 25), 10.3),
        ("mrpc", 3_000_000, (), (656_250, 164_062), 7.0),
    ],
)
def test_the_steps_of_a_recipe_are_for_the_published_data(
    task, num_examples, overrides, steps, epochs, capsys
):
    config = fit(task, num_examples, *overrides)
    assert (config.num_train_steps, config.num_warmup_steps) == steps
    assert config.num_train_epochs == epochs
    assert config.warmup_proportion == pytest.approx(steps[1] / steps[0], abs=0.01)
    assert ("as in the recipe, whose" in capsys.readouterr().err) == (epochs in (2, 7, 10.3))


def test_a_run_evaluates_and_saves_once_in_a_pass(capsys):
    assert fit("rte", 320).eval_steps == 10
    assert "eval_steps is 10 (one epoch) instead of 100." in capsys.readouterr().err
    assert fit("rte", 320, "eval_steps=300").eval_steps == 300
    assert fit("rte", 320, "eval_steps=0").eval_steps == 0
    assert fit("rte", 3).eval_steps == fit("rte", 3).save_checkpoints_steps == 1
    assert fit("rte", 320, "save_checkpoints_steps=70").save_checkpoints_steps == 70
    assert fit("squad2", 130_319).eval_steps == 1000


V1, TINY = config.PRESETS["albert_base_v1"], config.PRESETS["albert_tiny"]
ODD = {"num_attention_heads": 4, "hidden_dropout_prob": 0.7}


@pytest.mark.parametrize(
    ("in_file", "overrides", "model", "hidden_dropout"),
    [
        (None, ["albert=albert_base_v1"], V1, 0.0),
        ("albert_base_v1", [], V1, 0.0),
        ("albert_base_v1", ["albert=albert_tiny"], TINY, 0.0),
        ("albert_base_v1", ["albert.hidden_dropout_prob=0.3"], V1, 0.3),
        (None, ["albert=albert_base_v1", "albert.hidden_dropout_prob=0.3"], V1, 0.3),
        (None, ["albert.hidden_dropout_prob=0.3", "albert=albert_base_v1"], V1, 0.0),
        (None, [f"albert={json.dumps(ODD)}"], config.AlbertConfig(**ODD), 0.7),
        (ODD, [], config.AlbertConfig(**ODD), 0.7),
    ],
)
def test_a_recipe_sets_the_dropout_of_any_model(
    in_file, overrides, model, hidden_dropout, tmp_path
):
    (tmp_path / "config.json").write_text(json.dumps({"albert": in_file} if in_file else {}))
    path = str(tmp_path / "config.json")
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob")
    expected_dropouts = dict(zip(names, (hidden_dropout, 0.0, 0.1), strict=True))
    for start in (None, tiny_checkpoints.make().config):
        expected = dataclasses.replace(start, **ODD) if start and in_file == ODD else model
        given = {"task": "mrpc", "path": path, "initial": start}
        actual = settings("max_seq_length=7", *overrides, **given).albert
        assert actual == dataclasses.replace(expected, **expected_dropouts)


def test_a_model_of_fewer_positions_shortens_the_recipe_and_says_so(capsys):
    overrides = ("albert.max_position_embeddings=128",)
    assert settings(*overrides).max_seq_length == 128
    message = "max_seq_length is 128 instead of 512: the model has no more positions.\n"
    assert message in capsys.readouterr().err
    assert settings(*overrides, "max_seq_length=64").max_seq_length == 64
    squad = settings(*overrides, task="squad1")
    assert (squad.max_seq_length, squad.max_query_length, squad.doc_stride) == (128, 42, 41)
    assert "doc_stride is 41 instead of 128, because max_seq_length=128." in capsys.readouterr().err
    assert settings(*overrides, "doc_stride=82", task="squad1").doc_stride == 82
    assert settings(*overrides, recipe="none").max_seq_length == 128
    capsys.readouterr()
    assert settings().max_seq_length == 512
    assert "max_seq_length" not in capsys.readouterr().err


_SMALL = ("albert.hidden_size=256", "albert.num_attention_heads=4")


@pytest.mark.parametrize(
    ("overrides", "rate"),
    [
        (["albert.hidden_size=128", "albert.num_attention_heads=2"], 5e-5),
        ([*_SMALL, "albert.num_hidden_layers=6"], 1e-4),
        ([*_SMALL, "albert.num_hidden_layers=7"], 5e-5),
        (["albert=albert_base_v2"], 2e-5),
        (["albert.hidden_size=128", "albert.num_attention_heads=2", "learning_rate=0.25"], 0.25),
    ],
)
def test_without_a_recipe_the_learning_rate_is_that_of_the_models_size(overrides, rate, capsys):
    assert settings(*overrides, recipe="none").learning_rate == rate
    assert (f"learning_rate is {rate} by default for " in capsys.readouterr().err) == (rate != 0.25)


def test_a_checkpoint_without_a_run_is_evaluated_in_float32(vocabulary, tmp_path):
    made = tiny_checkpoints.make(vocabulary, model="classifier")
    tiny_checkpoints.write(tmp_path, made, "albert_tf")
    task = task_table.make_own("classification", ("a", "b", "c"))
    for overrides, dtype in (((), "float32"), (("dtype=mixed_bfloat16",), "mixed_bfloat16")):
        changes = recipes.ConfigOverrides(overrides=overrides)
        assert finetuned_model.read_finetuned(str(tmp_path), task, changes).config.dtype == dtype
