"""Tests of converting: no weight is lost, differences are logged, failures leave no files."""

import dataclasses
import importlib.util
import json
import os
import re
import signal

import pytest
import tiny_checkpoints
import tiny_run
from refusals import one_line
from repository import ROOT

from albert_tf.checkpoints import formats, hugging_face, model_checkpoint
from albert_tf.model import weight_names

WRITTEN = [name for name, format in formats.FORMATS.items() if format.write]
# Other models go through `test_answers.py`.
CASES = {
    "groups": tiny_checkpoints.GROUPED,
    "E=H": tiny_checkpoints.SQUARE,
    "masked_lm": {"model": "masked_lm"},
    "bare": {"model": "bare", **tiny_checkpoints.GROUPED, **tiny_checkpoints.SQUARE},
}


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
    path = tiny_checkpoints.write(tmp_path / "start", made, route[0])
    for number, name in enumerate(route):
        lines = convert(path, tmp_path / str(number), name)
        path = str(tmp_path / str(number))
        numbers = f"loaded {len(made.weights)}, missing 0, unexpected 0, mismatched 0"
        assert numbers in lines
        assert formats.detect_format(path) == name
        tiny_checkpoints.assert_same(formats.read(path), made)


def save_published(folder, made, prefix=""):
    """A checkpoint as the published code leaves it, with the optimizer's slots."""
    slots = {f"{name}/adam_m": array for name, array in made.weights.items()}
    arrays = {f"{prefix}{name}": array for name, array in (made.weights | slots).items()}
    tiny_checkpoints.save_v1(f"{folder}/model.ckpt-best", arrays)
    tiny_checkpoints.write_config(str(folder), made.config, cross_layer_sharing=None)


def test_the_report(tmp_path, vocabulary, convert):
    made = tiny_checkpoints.make(vocabulary)
    save_published(tmp_path / "in", made)
    first = f"read {tmp_path}/in/model.ckpt-best: 32 weights, no vocabulary, skipped 32 "
    assert convert(f"{tmp_path}/in", f"{tmp_path}/a/out/") == [
        f"{first}(the optimizer's)",
        "loaded 32, missing 0, unexpected 0, mismatched 0",
        f"written to {tmp_path}/a/out/: 32 weights (albert_tf)",
    ]
    tiny_checkpoints.write(tmp_path / "own", made, "albert_tf")
    lines = convert(tmp_path / "own", tmp_path / "hf", "hugging_face")
    assert lines[0].endswith("32 weights, a vocabulary of 61")


def changed(made, arrays):
    """The contents with some weights replaced, or left out (None)."""
    weights = {n: a for n, a in {**made.weights, **arrays}.items() if a is not None}
    return model_checkpoint.ModelCheckpoint(source="made", config=made.config, weights=weights)


def test_a_difference_that_is_not_allowed_is_an_error(tmp_path, capsys, convert):
    made, lost = tiny_checkpoints.make(), "cls/seq_relationship/output_bias"
    source = tiny_checkpoints.write(tmp_path / "in", changed(made, {lost: None}), "albert_tf")
    with one_line(rf"does not fit the model \(1 missing: {lost}\)"):
        convert(source, tmp_path / "a" / "out")
    lines = capsys.readouterr().err.splitlines()
    assert os.listdir(tmp_path) == ["in"]
    assert lines[-1] == f"missing: {lost}"
    assert convert(source, tmp_path / "out", allow_partial="cls/.*_bias")[: len(lines)] == lines
    assert {*formats.read(str(tmp_path / "out")).weights} == made.weights.keys() - {lost}


HEADS = weight_names.parts(tiny_run.albert())
HEADS["race"] = {"output_weights": (1, 8), "output_bias": (1,)}
POOLER = {"bert/pooler/dense/kernel", "bert/pooler/dense/bias"}


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
    """With a pooler, whatever the task; in names that a module of TF Hub had, too."""
    made = tiny_checkpoints.make(model="bare", more=HEADS[task])
    save_published(tmp_path / "in", made, "module/" if task == "classifier" else "")
    for source, name in (("in", "albert_tf"), ("albert_tf", "google")):
        lines = convert(tmp_path / source, tmp_path / name, name)
        assert f"loaded {len(made.weights)}, missing 0, unexpected 0, mismatched 0" in lines
        assert any("is read as multiple choice" in line for line in lines) is (task == "race")
        tiny_checkpoints.assert_same(formats.read(str(tmp_path / name)), made)
    allowed = "|".join(left_out) if task == "squad2" else None
    if allowed:
        with one_line(f"hugging_face cannot store {len(left_out)} weights of the head"):
            convert(tmp_path / "in", tmp_path / "hf", "hugging_face")
        assert not (tmp_path / "hf").exists()
    lines = convert(tmp_path / "in", tmp_path / "hf", "hugging_face", allow_partial=allowed)
    part = f"{'squad2' if allowed else 'pooler'} ({len(left_out)})"
    line = f"left out, because hugging_face cannot store them: {part}"
    assert (line in lines) is bool(left_out)
    assert json.loads((tmp_path / "hf" / "config.json").read_text())["architectures"] == [kind]
    kept = changed(made, dict.fromkeys(left_out))
    tiny_checkpoints.assert_same(formats.read(str(tmp_path / "hf")), kept)


def test_a_classifier_of_a_kind_that_no_class_has_is_left_out():
    made = tiny_checkpoints.make(model="bare", more=HEADS["race"])
    for kind, name in (("multiple_choice", "ForMultipleChoice"), ("counts", "Model")):
        of_kind = dataclasses.replace(made, run={"task": {"kind": kind}})
        assert hugging_face.choose_class(of_kind)[0] == name


def test_a_fine_tuned_model_needs_no_sentence_head_but_all_of_its_own(tmp_path, convert):
    made = tiny_checkpoints.make(more=HEADS["classifier"])
    lost = dict.fromkeys(name for name in made.weights if "seq_relationship" in name)
    convert(tiny_checkpoints.write(tmp_path / "in", changed(made, lost)), tmp_path / "out")
    tiny_checkpoints.assert_same(formats.read(str(tmp_path / "out")), changed(made, lost))
    half = changed(tiny_checkpoints.make(model="squad2"), {"end_logits/LayerNorm/beta": None})
    source = tiny_checkpoints.write(tmp_path / "half", half)
    with one_line("1 missing: end_logits/LayerNorm/beta"):
        convert(source, tmp_path / "x")


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("bert/pooler/dense/bias", "no transformers class has exactly these 24 weights"),
        (".*", "has no weights that fit the model"),
    ],
)
def test_weights_that_are_no_model_are_refused(tmp_path, convert, lost, message):
    made = tiny_checkpoints.make(model="bare", more={"other": (2,)})
    without = {name: None for name in made.weights if re.fullmatch(lost, name) and name != "other"}
    source = tiny_checkpoints.write(tmp_path / "in", changed(made, without))
    with one_line(message):
        convert(source, tmp_path / "out", "hugging_face", allow_partial=f"{lost}|other")
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("google", {"cross_layer_sharing": "attention"}, "cross_layer_sharing 'attention'"),
        ("google", {"num_hidden_layers": 22, "num_hidden_groups": 22}, "22 groups to 22 layers"),
        ("google", {"hidden_act": "gelu_erf"}, "'gelu_erf', which the published code lacks"),
        ("hugging_face", {"cross_layer_sharing": "ffn"}, "cross_layer_sharing 'ffn'"),
        ("hugging_face", {"num_hidden_layers": 18, "num_hidden_groups": 14}, "14 groups to 18 la"),
    ],
)
def test_a_model_that_a_format_has_no_place_for_is_not_written(tmp_path, name, changes, message):
    with one_line(message):
        formats.get_writer(name)(tiny_checkpoints.make(**changes), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_sigterm_leaves_nothing(tmp_path, monkeypatch, convert):
    source = tiny_checkpoints.write(tmp_path / "in", tiny_checkpoints.make())
    signals = []
    before = signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    stop = formats.FORMATS[name := "hugging_face"]._replace(
        write=lambda checkpoint, folder: signal.raise_signal(signal.SIGTERM)
    )
    monkeypatch.setitem(formats.FORMATS, name, stop)
    try:
        with pytest.raises(SystemExit) as caught:
            convert(source, tmp_path / "out", "hugging_face")
        assert caught.value.code == 128 + signal.SIGTERM
        assert os.listdir(tmp_path) == ["in"]
        signal.raise_signal(signal.SIGTERM)
        assert signals == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_program(tmp_path, monkeypatch, run_program, capsys):
    tiny_checkpoints.write(tmp_path / "in", tiny_checkpoints.make())
    monkeypatch.chdir(tmp_path)
    flags = ["--checkpoint=in", "--output_dir=out", "--to_format=hugging_face"]
    assert not run_program(ROOT / "bin/convert_checkpoint", *flags)
    assert "loaded 32, missing 0, unexpected 0, mismatched 0" in capsys.readouterr().err
    tiny_checkpoints.assert_same(formats.read("out"), tiny_checkpoints.make())
    again = run_program(ROOT / "bin/convert_checkpoint", *flags)
    assert again.startswith("convert_checkpoint: --output_dir: out already exists. Remove it")
