"""SavedModels answer what the model answers, wherever they are loaded."""

import concurrent.futures
import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_exports
from tensorflow.core.protobuf import fingerprint_pb2, saved_model_pb2

from albert_tf.errors import UserError
from albert_tf.export import export_source, model_kinds, model_versions, saved_model, serving_api
from albert_tf.export.requests import token_ids

pytestmark = pytest.mark.usefixtures("as_users")

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/goldens/signatures.txt"
EVERY_KIND = pytest.mark.parametrize("kind", model_kinds.KINDS)


@EVERY_KIND
def test_answers_are_the_networks_whatever_batch_and_length(exported, kind):
    model, folder = exported(kind)
    ask = tiny_exports.load(folder).signatures["token_ids"]
    for batch, length in ((3, 7), (1, 16), (5, 2)):
        ids = tiny_exports.ids(model, batch, length)
        tiny_exports.assert_same(ask(**ids), tiny_exports.expected(model, ids))


@EVERY_KIND
def test_a_session_answers_the_same_to_every_signature(exported, kind):
    model, folder = exported(kind)
    ids = tiny_exports.ids(model)
    whole = {**ids, "input_mask": tf.ones_like(ids["input_mask"])}
    wanted = tiny_exports.expected(model, whole)
    name = model_kinds.KINDS[kind].reply or serving_api.EXAMPLES
    answers = tiny_exports.ask_session(
        folder,
        {
            "serving_default": whole,
            "token_ids": whole,
            name: {"inputs": tiny_exports.examples(model, whole)},
        },
    )
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
        exits=[{"patience": 1, "layers": 2.25, "accuracy": 70.5}],
    )
    model = export_source.load(dataclasses.replace(checkpoint, weights=weights), options)
    folder = model_versions.write(model, str(tmp_path / "export"))
    ids = tiny_exports.ids(model, 8)
    answers = tiny_exports.ask_session(folder, {"token_ids": ids})["token_ids"]
    tiny_exports.assert_same(answers, tiny_exports.expected(model, ids))
    assert min(answers["num_layers"]) == 2
    card = Path(folder, "MODEL.md").read_text()
    assert "Patience is 1:" in card and "| 1 | 2.25 | 70.5 |" in card and "| `num_layers` |" in card
    for bad, message in (
        (checkpoint.weights, "was trained without early_exit: leave it out"),
        (weights | {"exits/output_bias": np.zeros(4)}, r"exits/output_bias \[4\] instead of \[6\]"),
    ):
        with pytest.raises(UserError, match=message):
            export_source.load(dataclasses.replace(checkpoint, weights=bad), options)


def test_examples_may_differ_in_length_and_leave_features_out(exported):
    model, folder = exported("encoder")
    ids = tiny_exports.ids(model, 2, 6)
    ids["input_mask"] = tf.constant([[1] * 6, [1, 1, 1, 0, 0, 0]])
    ids = {name: value * ids["input_mask"] for name, value in ids.items()}
    ids["segment_ids"] *= tf.constant([[1], [0]])
    short = {"input_ids": ids["input_ids"][1:, :3]}
    serialized = tf.concat(
        [
            tiny_exports.examples(model, {name: value[:1] for name, value in ids.items()}),
            tiny_exports.examples(model, short),
        ],
        0,
    )
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


def test_a_row_of_padding_alone_gives_numbers(exported):
    for kind in model_kinds.KINDS:
        model, folder = exported(kind)
        ids = {name: tf.zeros_like(value) for name, value in tiny_exports.ids(model).items()}
        for name, value in tiny_exports.load(folder).signatures["token_ids"](**ids).items():
            if value.dtype == tf.float32:
                assert np.isfinite(value).all(), f"{kind}: {name}"


@EVERY_KIND
def test_an_empty_batch_has_an_empty_answer(exported, kind):
    model, folder = exported(kind)
    ids = {name: value[:0] for name, value in tiny_exports.ids(model).items()}
    loaded = tiny_exports.load(folder)
    answers = loaded.signatures["token_ids"](**ids)
    assert {len(value) for value in answers.values()} == {0}


REFUSED = {
    "no token": ({"length": 0}, {}, "at least one token"),
    "too long": ({"length": 17}, {}, "at most 16 tokens"),
    "a batch of another size": ({}, {"input_mask": lambda x: x[:2]}, "input_mask must have the sh"),
    "another length": ({}, {"segment_ids": lambda x: x[:, :3]}, "segment_ids must have the shape"),
    "no such piece": ({}, {"input_ids": lambda x: x + 61}, "input_ids must be from 0 to 60"),
    "negative": ({}, {"input_ids": lambda x: x - 61}, "input_ids must be from 0 to 60"),
    "no mask": ({}, {"input_mask": lambda x: x + 2}, "input_mask must be from 0 to 1"),
    "padding first": (
        {},
        {"input_mask": lambda x: 1 - tf.eye(*x.shape, dtype=x.dtype)},
        "begins w",
    ),
    "no such segment": ({}, {"segment_ids": lambda x: x + 2}, "segment_ids must be from 0 to 1"),
    "outside": ({}, {"masked_lm_positions": lambda x: x + 7}, "inside the sequence"),
    "other rows": ({}, {"masked_lm_positions": lambda x: x[:1]}, "a row for each row"),
}


@pytest.mark.parametrize(("sizes", "changes", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_with_a_sentence(exported, sizes, changes, sentence):
    model, folder = exported("fill_mask")
    ids = tiny_exports.ids(model)
    if sizes:
        shape = [3, sizes["length"]]
        ids |= {name: tf.zeros(shape, tf.int32) for name in token_ids.NAMES}
        ids["masked_lm_positions"] *= 0
    ids |= {name: change(ids[name]) for name, change in changes.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        tiny_exports.load(folder).signatures["token_ids"](**ids)
    with pytest.raises(tf.errors.InvalidArgumentError, match=sentence):
        tiny_exports.ask_session(folder, {"token_ids": ids})


def test_choices_and_examples_that_do_not_fit_are_refused(exported):
    model, folder = exported("multiple_choice")
    ids = tiny_exports.ids(model)
    loaded = tiny_exports.load(folder)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have 5 choices"):
        loaded.signatures["token_ids"](**{name: value[:, :4] for name, value in ids.items()})
    uneven = {"input_ids": tf.zeros([1, 9], tf.int32)}
    with pytest.raises(tf.errors.InvalidArgumentError, match="5 choices of one length"):
        loaded.signatures["classify"](inputs=tiny_exports.examples(model, uneven))
    ids["input_mask"] = ids["input_mask"][:, :4]
    with pytest.raises(tf.errors.InvalidArgumentError, match="input_mask must have as many"):
        loaded.signatures["classify"](inputs=tiny_exports.examples(model, ids))
    for content in ("no example", b"\xff\xfe", tiny_exports.examples(model, ids).numpy()[0][:-1]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid protocol message input"):
            loaded.signatures["classify"](inputs=tf.constant([content]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid protocol message input"):
            tiny_exports.ask_session(folder, {"classify": {"inputs": [content]}})


@pytest.mark.full
@pytest.mark.parametrize("kind", ["multiple_choice", "span"])
def test_long_texts_are_refused_and_the_card_says_so(kind, vocabulary, tmp_path):
    model = tiny_exports.source(kind, vocabulary, max_text_bytes=50)
    folder = model_versions.write(model, str(tmp_path / "model"))
    assert "more than 50 bytes in UTF-8 is refused" in Path(folder, "MODEL.md").read_text()
    ask = tiny_exports.load(folder).signatures["serving_default"]
    names = ask.structured_input_signature[1]
    shapes = {name: [1, 5] if name == "options" else [1] for name in names}
    ask(**{name: tf.fill(shape, "ab" * 25) for name, shape in shapes.items()})
    for name in shapes:
        texts = {key: tf.fill(shape, "ab" * 25) for key, shape in shapes.items()}
        texts[name] = tf.fill(shapes[name], "é" * 25 + "a")
        message = f"{name} must have at most 50 bytes: cut longer texts up"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            ask(**texts)


def describe(folder):
    """Every signature of a SavedModel, a line each."""
    content = Path(folder, "saved_model.pb").read_bytes()
    (meta,) = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    lines = []
    for name, signature in sorted(meta.signature_def.items()):
        if name != "__saved_model_init_op":
            sides = []
            for infos in (signature.inputs, signature.outputs):
                rows = (f"{key} {_shape(info)}" for key, info in sorted(infos.items()))
                sides.append(", ".join(rows))
            method = signature.method_name.rpartition("/")[-1]
            lines.append(f"{name} ({method}): {' -> '.join(sides)}")
    return lines


def _shape(info):
    sizes = ",".join(str(dim.size) for dim in info.tensor_shape.dim)
    return f"{tf.as_dtype(info.dtype).name}[{sizes}]"


def test_the_signatures_are_these(exported):
    lines = []
    for kind in model_kinds.KINDS:
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
    with pytest.raises(UserError, match=r"2 exists\. Take another --version"):
        model_versions.write(model, str(folder), 2)
    assert model_versions.choose_folder(str(folder), 2**63 - 1).endswith("/9223372036854775807")
    with pytest.raises(UserError, match=r"version 9223372036854775808 is over .* lower --version"):
        model_versions.choose_folder(str(folder), 2**63)
    (folder / str(2**63 - 1)).mkdir()
    with pytest.raises(UserError, match="version 9223372036854775808 is over"):
        model_versions.choose_folder(str(folder))


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(serving_api, "write_warmup", fail)
    with pytest.raises(OSError, match="space"):
        model_versions.write(tiny_exports.source("encoder"), str(tmp_path / "models" / "encoder"))
    assert os.listdir(tmp_path) == []


def test_a_version_that_another_export_made_meanwhile_is_left_alone(tmp_path, monkeypatch):
    def write(model, folder):
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "theirs").touch()

    monkeypatch.setattr(serving_api, "write_warmup", write)
    with pytest.raises(UserError, match="1 was written by another export meanwhile: export again"):
        model_versions.write(tiny_exports.source("encoder"), str(tmp_path))
    assert os.listdir(tmp_path) == ["1"]
    assert os.listdir(tmp_path / "1") == ["theirs"]


def test_a_fingerprint_has_no_random_number(tmp_path):
    folder = model_versions.write(tiny_exports.source("encoder"), str(tmp_path))
    content = Path(folder, "fingerprint.pb").read_bytes()
    fingerprint = fingerprint_pb2.FingerprintDef.FromString(content)
    assert fingerprint.uuid == ""
    assert fingerprint.saved_model_checksum


def test_a_fingerprint_of_unread_variables_is_an_error(tmp_path):
    """TensorFlow writes one if the disk fails while it reads them back, and says nothing."""
    content = fingerprint_pb2.FingerprintDef(saved_model_checksum=1).SerializeToString()
    (tmp_path / "fingerprint.pb").write_bytes(content)
    with pytest.raises(UserError, match=r"the variables cannot be read. Check the disk"):
        saved_model.remove_uuid(str(tmp_path))


def test_a_killed_process_is_the_programs_to_tell(tmp_path, monkeypatch):
    """A library that sets handlers of signals cannot run in a thread."""
    monkeypatch.setattr(serving_api, "write_warmup", lambda *_: None)
    model = tiny_exports.source("encoder")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(model_versions.write, model, str(tmp_path)).result() == f"{tmp_path}/1"
