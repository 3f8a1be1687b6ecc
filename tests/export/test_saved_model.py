"""SavedModels answer what the model answers, wherever they are loaded."""

import dataclasses
import functools
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_exports
from refusals import one_line
from repository import ROOT
from tensorflow.core.protobuf import fingerprint_pb2, saved_model_pb2

from albert_tf.errors import UserError
from albert_tf.export import export_source, model_kinds, model_versions, saved_model, serving_api
from albert_tf.export.requests import token_ids
from albert_tf.kinds import task_table
from albert_tf.records import features

pytestmark = pytest.mark.usefixtures("as_users")
FULL = pytest.mark.full

GOLDEN = ROOT / "tests/goldens/signatures.txt"
# Each other kind has the inputs and outputs of one of these.
DISTINCT = {"classification", "fill_mask", "multiple_choice", "span_or_none"}
DISTINCT |= {"token_classification"}
EVERY_KIND = pytest.mark.parametrize(
    "kind", [x if x in DISTINCT else pytest.param(x, marks=FULL) for x in task_table.MODELS]
)


@EVERY_KIND
def test_answers_are_the_networks_whatever_batch_and_length(exported, kind):
    model, folder = exported(kind)
    ask = tiny_exports.load(folder).signatures["token_ids"]
    for batch, length in ((3, 7), (1, 16), (5, 2)):
        ids = tiny_exports.ids(model, batch, length)
        tiny_exports.assert_same(ask(**ids), tiny_exports.expected(model, ids))
    for name, value in ask(**{name: tf.zeros_like(value) for name, value in ids.items()}).items():
        assert value.dtype != tf.float32 or np.isfinite(value).all(), name  # padding alone
    empty = ask(**{name: value[:0] for name, value in ids.items()})
    assert {len(value) for value in empty.values()} == {0}


@EVERY_KIND
def test_a_session_answers_the_same_to_every_signature(exported, kind):
    model, folder = exported(kind)
    ids = tiny_exports.ids(model)
    whole = {**ids, "input_mask": tf.ones_like(ids["input_mask"])}
    wanted = tiny_exports.expected(model, whole)
    name = task_table.MODELS[kind].answer.method or serving_api.EXAMPLES
    requests = {name: {"inputs": tiny_exports.examples(model, whole)}}
    requests |= {"serving_default": whole, "token_ids": whole}
    answers = tiny_exports.ask_session(folder, requests)
    tiny_exports.assert_same(answers["token_ids"], wanted)
    tiny_exports.assert_same(answers["serving_default"], wanted)
    if name == "classify":
        np.testing.assert_allclose(answers[name]["scores"], wanted["probabilities"], 1e-5)
        assert answers[name]["classes"].tolist() == [[x.encode() for x in model.options.labels]] * 3
    elif name == "regress":
        np.testing.assert_allclose(answers[name]["outputs"], wanted["value"], 1e-5)
    else:
        tiny_exports.assert_same(answers[name], wanted)


@pytest.mark.full
def test_a_model_with_a_head_after_each_layer_says_how_many_ran(tmp_path, vocabulary):
    checkpoint = tiny_exports.contents("classification", vocabulary, num_hidden_layers=3)
    head = {name: checkpoint.weights[name] for name in ("output_weights", "output_bias")}
    weights = checkpoint.weights | {f"exits/{k}": np.concatenate([x] * 2) for k, x in head.items()}
    settings = tiny_exports.settings(checkpoint.config)
    options = model_kinds.Options(
        kind="classification",
        run_config=dataclasses.replace(settings, early_exit=True, exit_patience=1),
        labels=tiny_exports.LABELS["classification"],
    )
    model = export_source.load(dataclasses.replace(checkpoint, weights=weights), options)
    folder = model_versions.write(model, str(tmp_path / "export"))
    ids = tiny_exports.ids(model, 8)
    answers = tiny_exports.ask_session(folder, {"token_ids": ids})["token_ids"]
    tiny_exports.assert_same(answers, tiny_exports.expected(model, ids))
    assert min(answers["num_layers"]) == 2
    card = Path(folder, "MODEL.md").read_text()
    assert "Patience is 1:" in card and "| `num_layers` |" in card
    for bad, message in (
        (checkpoint.weights, "was trained without early_exit: leave it out"),
        (weights | {"exits/output_bias": np.zeros(4)}, r"exits/output_bias \[4\] instead of \[6\]"),
    ):
        with one_line(message):
            export_source.load(dataclasses.replace(checkpoint, weights=bad), options)


def test_examples_may_differ_in_length_and_leave_features_out(exported):
    model, folder = exported("encoder")
    ids = tiny_exports.ids(model, 2, 6)
    ids["input_mask"] = tf.constant([[1] * 6, [1, 1, 1, 0, 0, 0]])
    ids = {name: value * ids["input_mask"] for name, value in ids.items()}
    ids["segment_ids"] *= tf.constant([[1], [0]])
    short = {"input_ids": ids["input_ids"][1:, :3]}
    first = {name: value[:1] for name, value in ids.items()}
    serialized = tf.concat([tiny_exports.examples(model, x) for x in (first, short)], 0)
    answers = tiny_exports.load(folder).signatures["examples"](inputs=serialized)
    tiny_exports.assert_same(answers, tiny_exports.expected(model, ids))


def stored(folder):
    """The variables of a SavedModel, {published name: array}."""
    reader = tf.train.load_checkpoint(f"{folder}/variables/variables")
    keys = [key for key in reader.get_variable_to_shape_map() if key.startswith("weights/")]
    assert len(keys) + 1 == len(reader.get_variable_to_shape_map())  # and the table of objects
    ending = "/.ATTRIBUTES/VARIABLE_VALUE"
    names = {key: key[len("weights/") : -len(ending)].replace(".S", "/") for key in keys}
    return {name: reader.get_tensor(key) for key, name in names.items()}


@EVERY_KIND
def test_weights_are_stored_once(exported, kind):
    _, folder = exported(kind)
    checkpoint, trained = stored(folder), tiny_exports.contents(kind).weights
    assert set(checkpoint) == set(trained)
    for name, array in trained.items():
        np.testing.assert_array_equal(checkpoint[name], array, err_msg=name)
    size = sum(array.nbytes for array in checkpoint.values())
    data = Path(folder, "variables/variables.data-00000-of-00001").stat().st_size
    assert size <= data < size + 20_000  # the table of objects


@pytest.mark.full
@pytest.mark.parametrize("kind", ["classification", "fill_mask", "span_or_none"])
def test_bfloat16_matrices_take_half_and_answer_nearly_the_same(exported, kind):
    model, folder = exported(kind, dtype="bfloat16")
    for name, array in stored(folder).items():
        assert array.dtype.name == ("float32" if array.ndim == 1 else "bfloat16"), name
    ids = tiny_exports.ids(model)
    answers = tiny_exports.load(folder).signatures["token_ids"](**ids)
    compared = [name for name in answers if answers[name].dtype == tf.float32 and "top" not in name]
    for name in compared:
        wanted = tiny_exports.expected(exported(kind)[0], ids)[name]
        np.testing.assert_allclose(answers[name], wanted, 0.1, 0.1, err_msg=name)
    assert compared
    # A session reads the same numbers; the kernels round theirs to 8 bits.
    outputs = tiny_exports.ask_session(folder, {"token_ids": ids})["token_ids"]
    for name in compared:
        np.testing.assert_allclose(outputs[name], answers[name], 0.02, 0.02, err_msg=name)


NONE, LONG = (tf.zeros([3, length], tf.int32) for length in (0, 17))


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("", lambda _: NONE, "at least one token"),
        ("", lambda _: LONG, "at most 16 tokens"),
        ("input_mask", lambda x: x[:2], "input_mask must have the sh"),
        ("segment_ids", lambda x: x[:, :3], "segment_ids must have the shape"),
        ("input_ids", lambda x: x + 61, "input_ids must be from 0 to 60"),
        ("input_ids", lambda x: x - 61, "input_ids must be from 0 to 60"),
        ("input_mask", lambda x: x + 2, "input_mask must be from 0 to 1"),
        ("input_mask", lambda x: 1 - tf.eye(*x.shape, dtype=x.dtype), "starts w"),
        ("segment_ids", lambda x: x + 2, "segment_ids must be from 0 to 1"),
        ("masked_lm_positions", lambda x: x + 7, "inside the sequence"),
        ("masked_lm_positions", lambda x: x[:1], "one row per row"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(exported, name, change, sentence):
    model, folder = exported("fill_mask")
    ids = tiny_exports.ids(model)
    ids |= {name: change(ids[name]) for name in ([name] if name else token_ids.NAMES)}
    ids["masked_lm_positions"] *= int(bool(name))
    with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        tiny_exports.load(folder).signatures["token_ids"](**ids)
    with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        tiny_exports.ask_session(folder, {"token_ids": ids})


def test_choices_and_examples_that_do_not_fit_are_refused(exported):
    model, folder = exported("multiple_choice")
    ids = tiny_exports.ids(model)
    refused = functools.partial(pytest.raises, tf.errors.InvalidArgumentError)
    ask, classify = (tiny_exports.load(folder).signatures[x] for x in ("token_ids", "classify"))
    with refused(match="must have 5 choices"):
        ask(**{name: value[:, :4] for name, value in ids.items()})
    uneven = {"input_ids": tf.zeros([1, 9], tf.int32)}
    with refused(match="5 choices, padded to"):
        classify(inputs=tiny_exports.examples(model, uneven))
    ids["input_mask"] = ids["input_mask"][:, :4]
    with refused(match="input_mask must have as many"):
        classify(inputs=tiny_exports.examples(model, ids))
    example = features.to_example({"input_ids": [2**32 + 1] * 5})
    with refused(match="input_ids must be from 0 to"):
        classify(inputs=tf.constant([example]))  # not cut to 1
    for content in ("no example", b"\xff\xfe", tiny_exports.examples(model, ids).numpy()[0][:-1]):
        with refused(match="Invalid protocol message input"):
            classify(inputs=tf.constant([content]))
        with refused(match="Invalid protocol message input"):
            tiny_exports.ask_session(folder, {"classify": {"inputs": [content]}})


def describe(folder):
    """Every signature of a SavedModel, a line each."""
    content = Path(folder, "saved_model.pb").read_bytes()
    (meta,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    lines = []
    for name, signature in sorted(meta.signature_def.items()):
        if name != "__saved_model_init_op":
            sides = (
                ", ".join(f"{key} {_shape(info)}" for key, info in sorted(infos.items()))
                for infos in (signature.inputs, signature.outputs)
            )
            method = signature.method_name.rpartition("/")[-1]
            lines.append(f"{name} ({method}): {' -> '.join(sides)}")
    return lines


def _shape(info):
    sizes = ",".join(str(dim.size) for dim in info.tensor_shape.dim)
    return f"{tf.as_dtype(info.dtype).name}[{sizes}]"


def test_the_signatures_are_these(exported):
    lines = []
    for kind in task_table.MODELS:
        lines += [f"# {kind}", *describe(exported(kind)[1])]
    assert lines == GOLDEN.read_text().splitlines()


def test_versions_follow_each_other_and_are_never_overwritten(tmp_path):
    model = tiny_exports.source("encoder")
    folder = tmp_path / "models" / "encoder"
    for version in (1, 2):
        assert model_versions.write(model, str(folder)) == f"{folder}/{version}"
    (folder / "7").mkdir()
    (folder / "notes").mkdir()
    assert model_versions.choose_folder(str(folder)) == f"{folder}/8"
    with one_line(r"2 already exists\. Use another --version"):
        model_versions.write(model, str(folder), 2)


@pytest.mark.parametrize("fails", [True, False])
def test_a_failure_leaves_nothing_behind_and_another_export_alone(tmp_path, monkeypatch, fails):
    def write(*_):
        if fails:
            raise OSError("No space left on device")
        (tmp_path / "1").mkdir()

    monkeypatch.setattr(serving_api, "write_warmup", write)
    error, message = (OSError, "space") if fails else (UserError, "another export has written")
    with pytest.raises(error, match=message):
        model_versions.write(tiny_exports.source("encoder"), str(tmp_path))
    assert os.listdir(tmp_path) == ([] if fails else ["1"])


def test_a_fingerprint_of_unread_variables_is_an_error(tmp_path):
    """TensorFlow writes one if the disk fails while it reads them back, and says nothing."""
    content = fingerprint_pb2.FingerprintDef(saved_model_checksum=1).SerializeToString()
    (tmp_path / "fingerprint.pb").write_bytes(content)
    with one_line(r"the variables cannot be read. Check the disk"):
        saved_model.remove_uuid(str(tmp_path))
