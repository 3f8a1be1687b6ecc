"""What is exported: the right weights for what is asked, or one line that says what is missing."""

import dataclasses
import json

import numpy as np
import pytest
import tiny_checkpoints
import tiny_exports
import tiny_finetuning
import tiny_run
from refusals import one_line
from repository import ROOT
from tiny_exports import write_checkpoint, write_run

from albert_tf import config_io
from albert_tf.checkpoints import formats
from albert_tf.export import export_source, model_kinds, signatures
from albert_tf.run_record import RunRecord
from albert_tf.tokenizers import tokenization


@pytest.mark.parametrize("kind", tiny_finetuning.KINDS)
def test_a_run_knows_what_it_is_for(tmp_path, vocabulary, kind):
    model = tiny_exports.read(write_run(tmp_path / "run", kind, vocabulary))
    assert model.options.kind == kind
    assert model.options.labels == tiny_exports.LABELS.get(kind, ())
    assert model.options.run_config.max_seq_length == 9
    assert formats.read(model.source).vectors.max_seq_length == 9
    assert (model.options.null_threshold is not None) == (kind == "span_or_none")
    assert model.tokenizer.sha256 == tokenization.load(vocabulary).sha256
    trained = tiny_exports.contents(kind).weights
    weights = {w.path: w.value.numpy() for w in model.network.trainable_weights}
    assert model.loaded == set(trained) <= set(weights)
    for name, array in trained.items():
        np.testing.assert_array_equal(weights[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("more", "has_pairs", "names"),
    [
        ({"has_pairs": True}, True, ["text_pair"]),
        ({"has_pairs": False}, False, ["text"]),
        ({}, None, ["text", "text_pair"]),
    ],
)
def test_texts_are_asked_as_they_were_trained_on(tmp_path, vocabulary, more, has_pairs, names):
    model = tiny_exports.read(write_run(tmp_path / "run", "regression", vocabulary, more=more))
    assert model.options.has_pairs is has_pairs
    made = signatures.make_text_signatures(model, lambda batch: {"value": batch["input_ids"]})
    assert list(made) == names


def test_a_regression_needs_no_run(tmp_path, vocabulary):
    made = tiny_checkpoints.make_one_output(vocabulary, is_regression=True)
    path = tiny_checkpoints.write(tmp_path, made, "hugging_face")
    assert tiny_exports.read(path).options.kind == "regression"


def test_settings_can_be_overridden(tmp_path, vocabulary):
    path = write_run(tmp_path / "run", "classification", vocabulary)
    model = tiny_exports.read(path, overrides=["max_seq_length=7"], labels=["x", "y", "z"])
    assert model.options.run_config.max_seq_length == 7
    assert model.options.labels == ("x", "y", "z")
    dropped = tiny_exports.read(path, overrides=["albert.hidden_dropout_prob=0.2"])
    assert dropped.config.hidden_dropout_prob == dropped.network.config.hidden_dropout_prob == 0.2
    with one_line(r"intermediate/dense/bias \[10\] instead of \[999\]"):
        tiny_exports.read(path, overrides=["albert.intermediate_size=999"])


def test_lengths_that_are_not_named_follow(tmp_path, vocabulary):
    path = write_run(tmp_path / "run", "span", vocabulary)
    own, short = (tiny_exports.read(path, overrides=x) for x in ([], ["max_seq_length=7"]))
    names = ("max_query_length", "doc_stride")
    assert [getattr(own.options.run_config, name) for name in names] == [2, 5]  # of the run
    assert [getattr(short.options.run_config, name) for name in names] == [2, 1]
    for lengths in (["doc_stride=4"], ["max_seq_length=8", "doc_stride=4"]):
        with one_line(r"doc_stride=4: windows of max_seq_length=. would not"):
            tiny_exports.read(path, overrides=lengths)


def test_a_null_score_is_of_the_head_of_squad1(tmp_path, vocabulary):
    path = write_run(tmp_path / "run", "span_or_none", vocabulary, null_answer="null_score")
    tiny_checkpoints.write(f"{path}/best", tiny_exports.contents("span"), "albert_tf")
    (tmp_path / "run" / "best" / "albert_config.json").unlink()
    model = tiny_exports.read(path)
    assert model.options.kind == "span"
    assert model.options.null_threshold == 0


def test_the_threshold_is_that_of_the_run(tmp_path, vocabulary):
    path = write_run(tmp_path / "run", "span_or_none", vocabulary)
    assert tiny_exports.read(path).options.null_threshold == 0
    more = {"metrics": {"best_f1_thresh": -1.75}, "thresholds": {"null_odds": -1.5}}
    more |= {"task": "squad2", "split": "dev", "num_examples": 8}
    for name, threshold in (("7", 0), ("0", -1.5)):  # of another checkpoint there is none
        dev = {"checkpoint": f"run/best/model.ckpt-{name}", **more}
        (tmp_path / "run" / "metrics-dev.json").write_text(json.dumps(dev))
        assert tiny_exports.read(path).options.null_threshold == threshold
        assert tiny_exports.read(path).options.thresholds == {}
    assert tiny_exports.read(path, null_threshold=None).options.null_threshold == -1.5
    assert tiny_exports.read(path, null_threshold=0.0).options.null_threshold == 0


def test_a_checkpoint_of_no_run(tmp_path):
    """It reads all its positions; classes are numbered, thresholds given."""

    def read(kind, **choices):
        return tiny_exports.read(write_checkpoint(tmp_path / kind, kind), kind, **choices)

    words = read("fill_mask", top_k=3)
    assert words.options.run_config.max_seq_length == words.config.max_position_embeddings
    assert words.options.top_k == 3
    assert read("classification").options.labels == ("0", "1", "2")
    questions = read("span_or_none", overrides=["max_query_length=5"], null_threshold=2.5)
    assert questions.options.null_threshold == 2.5


@pytest.mark.parametrize("best", ["", "best"])
def test_a_run_of_pretraining_reads_all_its_positions(tmp_path, best):
    """As fill_mask in Python does; its records may be of shorter sequences."""
    write_checkpoint(tmp_path / "run" / best, "fill_mask")
    config = tiny_run.settings(max_seq_length=11)
    RunRecord(config=config_io.to_dict(config), train_files=[]).write(str(tmp_path / "run"))
    model = tiny_exports.read(str(tmp_path / "run"), "fill_mask")
    assert model.options.run_config.max_seq_length == model.config.max_position_embeddings > 11
    assert formats.read(model.source).vectors.max_seq_length is None  # in folders of others, too
    longer = tiny_exports.read(str(tmp_path / "run"), "fill_mask", overrides=["max_seq_length=13"])
    assert longer.options.run_config.max_seq_length == 13


def test_any_format_is_read_and_a_module_needs_a_pooler(tmp_path):
    formats.write_folder(tiny_checkpoints.make(), str(tmp_path / "theirs"), "google")
    assert tiny_exports.read(str(tmp_path / "theirs"), "encoder").has_part("pooler")
    masked = tiny_checkpoints.make(model="masked_lm")
    formats.write_folder(masked, str(tmp_path / "masked"), "google")
    with one_line("has no pooler"):
        export_source.read_pretrained(str(tmp_path / "masked"))


@pytest.mark.parametrize(
    ("added", "message"),
    [
        (
            "bert/encoder/lora_a",
            "has 1 weights that are not an ALBERT's, such as bert/encoder/lora_a",
        ),
        ("bert/pooler/dense/bias", r"has bert/pooler/dense/bias \[2\] instead of \[8\], which"),
    ],
)
def test_weights_that_are_not_understood_are_refused(added, message):
    checkpoint = tiny_exports.contents("encoder")
    weights = {**checkpoint.weights, added: np.zeros(2, np.float32)}
    checkpoint, config = dataclasses.replace(checkpoint, weights=weights), checkpoint.config
    chosen = {"kind": "sentence_embedding", "pooling": "pooler"}
    options = model_kinds.Options(run_config=tiny_exports.settings(config), **chosen)
    with one_line(message):
        export_source.load(checkpoint, options)


LENGTHS = {"overrides": ["max_seq_length=14", "max_query_length=5"]}
SHORT = {"overrides": ["max_query_length=5", "max_seq_length=8"]}
EMBEDDING = {"kind": "sentence_embedding", "labels": ["a"]}


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        ("encoder", {}, "does not say what it is for: pass --kind, encoder, "),
        ("encoder", {"kind": "fill_mask"}, "has no cls/predictions/.* another --kind"),
        ("classification", {"kind": "span", "text": False}, "has no cls/squad/output_bias"),
        ("classification", {"labels": ["a"]}, "has 3 classes, not 1"),
        ("classification", {"kind": "regression"}, "has 3 classes, not 1"),
        (
            "classification",
            {"labels": ["a", "", "c"]},
            "--labels: give each label a different name",
        ),
        (
            "classification",
            {"labels": ["a", "b", "a"]},
            "--labels: give each label a different name",
        ),
        ("classification", {"labels": ["a", "b\nc", "d"]}, "in one line: 'a, b.*nc, d'"),
        ("multiple_choice", {"overrides": ["max_qa_length=6"]}, "pass --labels=A,B,C,D"),
        ("encoder", EMBEDDING, "--labels is for classification, .*_choice, .*, multi_label, not"),
        (
            "encoder",
            {"kind": "encoder", "pooling": "cls"},
            "--pooling is for sentence_embedding",
        ),
        ("encoder", {"kind": "encoder", "top_k": 5}, "--top_k is for fill_mask, not for encoder"),
        (
            "span",
            {"null_threshold": 1.0, **LENGTHS},
            "--null_threshold is only for .* have no answer",
        ),
        ("encoder", {"kind": "encoder", "overrides": ["max_seq_length=99"]}, "99 is more than"),
        ("span", SHORT, "leaves no room for the context"),
        ("fill_mask", {"overrides": ["max_seq_length=4"]}, "must be at least 5, not 4"),
    ],
)
def test_mistakes_are_one_line(tmp_path, kind, options, sentence):
    path = write_checkpoint(tmp_path / "checkpoint", kind)
    options = options if kind == "encoder" else {"kind": kind, **options}
    with one_line(sentence):
        tiny_exports.read(path, **options)


def test_ids_are_cut_into_windows_by_whoever_makes_them(tmp_path):
    path = write_checkpoint(tmp_path / "checkpoint", "span")
    assert tiny_exports.read(path, "span", text=False, **SHORT)


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--kind=span_or_none", "--null_threshold=0", "--text=false"], "--null_threshold is for"),
        (["--checkpoint=nowhere", "--output_dir=README.md"], "--output_dir: 'README.md' is not a"),
    ],
)
def test_mistakes_in_flags_write_nothing(run_program, tmp_path, flags, sentence):
    """A file as the folder is refused before the checkpoint is read."""
    made = tiny_checkpoints.make()
    checkpoint = tiny_checkpoints.write(tmp_path / "checkpoint", made, "albert_tf")
    about = [f"--checkpoint={checkpoint}", f"--output_dir={tmp_path}/models", *flags]
    message = run_program(ROOT / "bin/export_saved_model", *about)
    assert message.startswith(f"export_saved_model: {sentence}")
    assert not (tmp_path / "models").exists()
