"""Tests of converting: no weight is lost, differences are logged, failures leave no files."""

import importlib.util
import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_checkpoints
import tiny_run

from albert_tf import config_io
from albert_tf.checkpoints import formats, model_checkpoint, training_checkpoint
from albert_tf.errors import UserError

ROOT = Path(__file__).parents[2]
WRITTEN = [name for name, format in formats.FORMATS.items() if format.write]
CASES = {
    "": {},
    "groups": tiny_checkpoints.GROUPED,
    "E=H": tiny_checkpoints.SQUARE,
    **{name: {"model": name} for name in ("classifier", "squad1", "masked_lm", "bare")},
    "bare groups": {"model": "bare", **tiny_checkpoints.GROUPED},
    "bare E=H": {"model": "bare", **tiny_checkpoints.SQUARE},
}


def write(folder, made, name):
    folder.mkdir()
    formats.get_writer(name)(made, str(folder))
    return str(folder)


@pytest.fixture
def convert(capsys):
    """Converts, and returns the logged lines."""

    def run(source, target, name="albert_tf", **options):
        capsys.readouterr()
        formats.convert(str(source), str(target), to_format=name, **options)
        return capsys.readouterr().err.splitlines()

    return run


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_there_and_back_through_every_format(tmp_path, vocabulary, changes, convert):
    """Each is detected, and read to the bit. No format knows another."""
    made = tiny_checkpoints.make(vocabulary, **changes)
    # StyleTTS2's file is PyTorch's, which `bin/test` does without.
    has_torch = importlib.util.find_spec("torch") is not None
    names = [x for x in WRITTEN if has_torch or x != "styletts2"]
    have_place = [x for x in names if made.weights.keys() <= formats.FORMATS[x].list_places(made)]
    # Two have no heads.
    assert len(have_place) == (4 + has_torch if changes.get("model") == "bare" else 3)
    route = [*have_place, have_place[0]]
    path = write(tmp_path / "start", made, route[0])
    for number, name in enumerate(route):
        lines = convert(path, tmp_path / str(number), name)
        path = str(tmp_path / str(number))
        numbers = f"loaded {len(made.weights)}, missing 0, unexpected 0, mismatched 0"
        assert numbers in lines
        assert formats.detect_format(path) == name
        tiny_checkpoints.assert_same(formats.read(path), made)


def test_the_report(tmp_path, vocabulary, convert):
    made = tiny_checkpoints.make(vocabulary)
    prefix = f"{tmp_path}/in/model.ckpt-best"
    slots = {f"{name}/adam_m": array for name, array in made.weights.items()}
    tiny_checkpoints.save_v1(prefix, made.weights | slots)
    tiny_checkpoints.write_config(f"{tmp_path}/in", made.config, cross_layer_sharing=None)
    assert convert(f"{tmp_path}/in", f"{tmp_path}/out/") == [
        f"read {prefix}: 32 weights, no vocabulary, skipped 32 (the optimizer's)",
        "loaded 32, missing 0, unexpected 0, mismatched 0",
        f"written to {tmp_path}/out/: 32 weights (albert_tf)",
    ]
    write(tmp_path / "own", made, "albert_tf")
    assert convert(tmp_path / "own", tmp_path / "hf", "hugging_face")[0].endswith(
        "32 weights, a vocabulary of 61"
    )


def test_an_existing_target_is_not_overwritten(tmp_path, convert):
    with pytest.raises(UserError, match=r"--output_dir: .* exists\. Remove it"):
        convert(tmp_path, tmp_path)


def changed(made, **arrays):
    """The contents with some weights replaced, or left out (None); `__` stands for /."""
    named = {name.replace("__", "/"): array for name, array in arrays.items()}
    weights = {n: a for n, a in {**made.weights, **named}.items() if a is not None}
    return model_checkpoint.ModelCheckpoint(source="made", config=made.config, weights=weights)


@pytest.mark.parametrize(
    ("arrays", "listed", "allowed"),
    [
        (
            {"cls__seq_relationship__output_bias": None},
            "1 missing: cls/seq_relationship/output_bias",
            "cls/.*_bias",
        ),
        ({"other": np.ones(3, "f")}, "1 unexpected: other", "other"),
        (
            {"bert__pooler__dense__bias": np.ones(9, "f")},
            r"1 mismatched: bert/pooler/dense/bias \[9\] instead of \[8\]",
            "bert/pooler.*",
        ),
    ],
)
def test_a_difference_that_is_not_allowed_is_an_error(
    tmp_path, capsys, convert, arrays, listed, allowed
):
    made = changed(tiny_checkpoints.make(), **arrays)
    source = write(tmp_path / "in", made, "albert_tf")
    with pytest.raises(UserError, match=rf"does not fit the model \({listed}\)"):
        convert(source, tmp_path / "out")
    lines = capsys.readouterr().err.splitlines()
    assert os.listdir(tmp_path) == ["in"]
    assert re.fullmatch(listed[2:], lines[-1])
    assert convert(source, tmp_path / "out", allow_partial=allowed)[: len(lines)] == lines
    weights = formats.read(str(tmp_path / "out")).weights
    assert set(weights) == set(tiny_checkpoints.make().weights) - {
        name.replace("__", "/") for name in arrays
    }


# Top-level names of fine-tuned checkpoints of the published code, and sizes, at D = 8.
HEADS = {
    "classifier": {"output_weights": (3, 8), "output_bias": (3,)},
    "race": {"output_weights": (1, 8), "output_bias": (1,)},
    "squad1": {"cls/squad/output_weights": (2, 8), "cls/squad/output_bias": (2,)},
    "squad2": {
        "start_logits/dense/kernel": (8, 1),
        "start_logits/dense/bias": (1,),
        "end_logits/dense_0/kernel": (16, 8),
        "end_logits/dense_0/bias": (8,),
        "end_logits/LayerNorm/gamma": (8,),
        "end_logits/LayerNorm/beta": (8,),
        "end_logits/dense_1/kernel": (8, 1),
        "end_logits/dense_1/bias": (1,),
        "answer_class/dense_0/kernel": (16, 8),
        "answer_class/dense_0/bias": (8,),
        "answer_class/dense_1/kernel": (8, 1),
    },
}
POOLER = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}


def fine_tuned(folder, task):
    """A checkpoint as the published code leaves it: with a pooler, whatever the task."""
    made = tiny_checkpoints.make(model="bare", more=HEADS[task])
    slots = {f"{name}/adam_m": array for name, array in made.weights.items()}
    tiny_checkpoints.save_v1(f"{folder}/model.ckpt-best", made.weights | slots)
    tiny_checkpoints.write_config(str(folder), made.config, cross_layer_sharing=None)
    return made


@pytest.mark.parametrize(
    ("task", "kind", "left_out"),
    [
        ("classifier", "AlbertForSequenceClassification", set()),
        ("race", "AlbertForMultipleChoice", set()),
        ("squad1", "AlbertForQuestionAnswering", POOLER),
        ("squad2", "AlbertModel", HEADS["squad2"].keys()),
    ],
)
def test_fine_tuned_checkpoints_of_the_published_code(tmp_path, task, kind, left_out, convert):
    made = fine_tuned(tmp_path / "in", task)
    for number, name in enumerate(("albert_tf", "google", "albert_tf")):
        lines = convert(
            tmp_path / (str(number - 1) if number else "in"), tmp_path / str(number), name
        )
        assert f"loaded {len(made.weights)}, missing 0, unexpected 0, mismatched 0" in lines
        tiny_checkpoints.assert_same(formats.read(str(tmp_path / str(number))), made)
    allowed = "|".join(left_out) if task == "squad2" else None
    if allowed:
        message = f"hugging_face has no place for {len(left_out)} weights of the head"
        with pytest.raises(UserError, match=message):
            convert(tmp_path / "in", tmp_path / "hf", "hugging_face")
        assert not (tmp_path / "hf").exists()
    lines = convert(tmp_path / "in", tmp_path / "hf", "hugging_face", allow_partial=allowed)
    part = f"{'squad2' if allowed else 'pooler'} ({len(left_out)})"
    line = f"left out, as hugging_face has no place for the weights: {part}"
    assert (line in lines) is bool(left_out)
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == [kind]
    kept = [name for name in made.weights if name not in left_out]
    tiny_checkpoints.assert_same(
        formats.read(str(tmp_path / "hf")), model_checkpoint.select_weights(made, kept)
    )


@pytest.mark.parametrize("is_regression", [True, False], ids=["regression", "choices"])
def test_a_head_of_one_output_keeps_its_meaning_in_every_format(
    tmp_path, vocabulary, is_regression, convert
):
    made = tiny_checkpoints.make_one_output(vocabulary, is_regression=is_regression)
    path = write(tmp_path / "start", made, "hugging_face")
    for name in ("albert_tf", "google", "albert_tf", "hugging_face"):
        lines = convert(path, target := tmp_path / f"{name}{len(path)}", name)
        assert any("is read as multiple choice" in line for line in lines) is not is_regression
        checkpoint = formats.read(path := str(target))
        tiny_checkpoints.assert_same(checkpoint, made)
        assert checkpoint.is_regression is is_regression
    config = json.loads((target / "config.json").read_text())
    kind = "SequenceClassification" if is_regression else "MultipleChoice"
    assert config["architectures"] == [f"AlbertFor{kind}"]
    assert config.get("problem_type") == ("regression" if is_regression else None)


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("hugging_face", "masked_lm (5), sentence_order (2)"),
        ("sentence_transformers", "masked_lm (5), sentence_order (2), classifier (2)"),
    ],
)
def test_heads_that_a_format_does_not_need_are_left_out_and_named(
    tmp_path, vocabulary, name, left_out, convert
):
    made = tiny_checkpoints.make(vocabulary, more=HEADS["classifier"])
    source = write(tmp_path / "in", made, "albert_tf")
    lines = convert(source, tmp_path / "out", name)
    assert f"left out, as {name} has no place for the weights: {left_out}" in lines
    read = formats.read(str(tmp_path / "out"))
    assert made.weights.keys() - read.weights.keys() == {
        x for x in made.weights if x.startswith(("cls/", "output_")[: 1 + (name[0] == "s")])
    }


def test_half_a_head_is_an_error(tmp_path, convert):
    made = tiny_checkpoints.make(model="squad2")
    for lost in HEADS["squad2"]:
        folder = tmp_path / lost.replace("/", "_")
        source = write(folder, changed(made, **{lost: None}), "google")
        with pytest.raises(UserError, match=f"1 missing: {lost}"):
            convert(source, tmp_path / "out")


def test_a_model_fine_tuned_from_a_hub_module_needs_no_sentence_head(tmp_path, convert):
    made = tiny_checkpoints.make(more=HEADS["classifier"])
    kept = [name for name in made.weights if "seq_relationship" not in name]
    arrays = {f"module/{name}": made.weights[name] for name in kept}
    tiny_checkpoints.save_v1(f"{tmp_path}/in/model.ckpt-best", arrays)
    tiny_checkpoints.write_config(f"{tmp_path}/in", made.config, cross_layer_sharing=None)
    convert(tmp_path / "in", tmp_path / "out")
    tiny_checkpoints.assert_same(
        formats.read(str(tmp_path / "out")), model_checkpoint.select_weights(made, kept)
    )


def test_weights_that_no_class_of_transformers_holds_are_refused(tmp_path, convert):
    for number, lost in enumerate(["bert/embeddings/word_embeddings", "bert/pooler/dense/bias"]):
        made = changed(tiny_checkpoints.make(model="bare"), **{lost: None})
        source = write(tmp_path / f"in{number}", made, "google")
        with pytest.raises(UserError, match="no class of transformers has these 24 weights"):
            convert(source, tmp_path / "out", "hugging_face", allow_partial=lost)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["albert_tf", "hugging_face"])
def test_no_weights_at_all(tmp_path, name, convert):
    made = model_checkpoint.select_weights(tiny_checkpoints.make(more={"other": (2,)}), ["other"])
    source = write(tmp_path / "in", made, "google")
    with pytest.raises(UserError, match="has no weight that fits the model"):
        convert(source, tmp_path / "out", name, allow_partial=".*")
    assert os.listdir(tmp_path) == ["in"]


def test_slots_of_our_own_checkpoints_are_counted_in_the_summary(tmp_path, convert):
    network, optimizer = tiny_run.network(tf.distribute.get_strategy(), tiny_run.albert())
    checkpoint = training_checkpoint.make_checkpoint(
        network, optimizer, tf.Variable(0, dtype=tf.int64)
    )
    training_checkpoint.save(checkpoint, str(tmp_path / "in"), 7)
    config_io.save(tiny_run.albert(), str(tmp_path / "in" / "albert_config.json"))
    lines = convert(tmp_path / "in", tmp_path / "out")
    assert lines[0].endswith("skipped 2 (the step), skipped 64 (the optimizer's)")


def test_a_refusal_leaves_no_folders(tmp_path, convert):
    made = tiny_checkpoints.make(num_hidden_layers=22, num_hidden_groups=22)
    source = write(tmp_path / "in", made, "albert_tf")
    with pytest.raises(UserError, match="22 groups in 22 layers are rounded otherwise"):
        convert(source, tmp_path / "a" / "b" / "out", "google")
    assert os.listdir(tmp_path) == ["in"]
    convert(source, tmp_path / "a" / "b" / "out")
    assert os.listdir(tmp_path / "a" / "b") == ["out"]


def test_a_relative_target(tmp_path, monkeypatch, convert):
    source = write(tmp_path / "in", tiny_checkpoints.make(), "albert_tf")
    monkeypatch.chdir(tmp_path)
    convert(source, "a/out")
    convert(source, "out")
    assert sorted(os.listdir()) == ["a", "in", "out"]
    assert os.listdir("a") == ["out"]


def test_sigterm_leaves_nothing(tmp_path, monkeypatch, convert):
    source = write(tmp_path / "in", tiny_checkpoints.make(), "google")
    signals = []
    before = signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    stopped = formats.FORMATS["hugging_face"]._replace(
        write=lambda checkpoint, folder: signal.raise_signal(signal.SIGTERM)
    )
    monkeypatch.setitem(formats.FORMATS, "hugging_face", stopped)
    try:
        with pytest.raises(SystemExit) as caught:
            convert(source, tmp_path / "out", "hugging_face")
        assert caught.value.code == 128 + signal.SIGTERM
        assert os.listdir(tmp_path) == ["in"]
        signal.raise_signal(signal.SIGTERM)
        assert signals == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_program(tmp_path, run_program, capsys):
    source = write(tmp_path / "in", tiny_checkpoints.make(), "google")
    flags = [f"--checkpoint={source}", f"--output_dir={tmp_path}/out", "--to_format=hugging_face"]
    assert not run_program(ROOT / "bin/convert_checkpoint", *flags)
    assert "loaded 32, missing 0, unexpected 0, mismatched 0" in capsys.readouterr().err
    tiny_checkpoints.assert_same(formats.read(str(tmp_path / "out")), tiny_checkpoints.make())
    again = run_program(ROOT / "bin/convert_checkpoint", *flags)
    assert again.startswith("convert_checkpoint: --output_dir: ")
