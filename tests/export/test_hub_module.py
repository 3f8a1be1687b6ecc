"""Modules for TF Hub: what they answer, that they learn, and that the Hub's own code takes them."""

import json
from pathlib import Path

import numpy as np
import pytest
import server_ops
import tensorflow as tf
import tiny
import tiny_checkpoints
from refusals import one_line
from tensorflow.python.saved_model import loader_impl

from albert_tf import files
from albert_tf.checkpoints import formats
from albert_tf.export import export_source, hub_module
from albert_tf.model import weight_names

TEXTS = ["The quick brown fox", "a b", ""]


def write_checkpoint(folder, vocabulary=None, **options):
    formats.write_folder(tiny_checkpoints.make(vocabulary, **options), str(folder))
    return str(folder)


@pytest.fixture(scope="module")
def exported(tmp_path_factory, vocabulary):
    """The model, and the folder of its modules."""
    folder = tmp_path_factory.mktemp("hub")
    source = export_source.read_pretrained(write_checkpoint(folder / "checkpoint", vocabulary))
    hub_module.write(source, str(folder / "modules"), seq_length=12)
    server_ops.check(str(folder / "modules" / "preprocessor"))
    return source, str(folder / "modules")


@pytest.fixture(scope="module")
def encoder(exported):
    """For tests that change no weight."""
    return tf.saved_model.load(f"{exported[1]}/{hub_module.ENCODER}")


def batch():
    values = tiny.batch()
    renamed = {theirs: values[ours] for ours, theirs in hub_module.NAMES.items()}
    return renamed, {ours: values[ours] for ours in hub_module.NAMES}


@pytest.mark.full
@pytest.mark.parametrize("training", [False, True])
def test_the_encoder_answers_what_the_model_does(exported, encoder, training):
    inputs, ids = batch()
    network = exported[0].network
    wanted = network.albert(ids)
    answers = encoder(inputs, training=training)
    assert answers.keys() == {*wanted, "default"}
    tiny.assert_close({name: answers[name] for name in wanted}, wanted, 1e-5)
    tiny.assert_close(answers["default"], wanted["pooled_output"], 1e-5)
    positions = tf.constant([[3, 1], [0, 2], [1, 1]])
    answers = encoder.mlm({**inputs, "masked_lm_positions": positions}, training=training)
    vectors = tf.gather(wanted["sequence_output"], positions, batch_dims=1)
    tiny.assert_close(answers["mlm_logits"], network.masked_lm(vectors), 1e-5)
    tiny.assert_close(answers["sequence_output"], wanted["sequence_output"], 1e-5)
    order = network.second_head.scores(wanted["pooled_output"])
    tiny.assert_close(encoder.sop(inputs, training=training)["sop_logits"], order, 1e-5)


def test_it_has_what_the_hub_asks_for_and_the_hashes_of_its_files(exported, encoder):
    for name in (hub_module.ENCODER, hub_module.PREPROCESSOR):
        folder = Path(exported[1], name)
        hashed = json.loads((folder / "sha256.json").read_text()).keys()
        assert {*hashed, "sha256.json"} == set(files.list_files(str(folder)))
        files.check_hashes(str(folder))
    parts = weight_names.parts(exported[0].config)
    shared = len(parts["encoder"]) + len(parts["pooler"])
    sizes = {"masked_lm": encoder.mlm, "sentence_order": encoder.sop}
    assert len(encoder.variables) == len(encoder.trainable_variables) == shared
    for part, module in sizes.items():
        assert len(module.variables) == len(module.trainable_variables) == shared + len(parts[part])
        assert module.regularization_losses == []
    assert encoder.regularization_losses == []
    assert {x.dtype for x in encoder.sop.variables} == {tf.float32}
    assert bool(encoder.do_lower_case.numpy())
    assert encoder.sp_model_file.asset_path.numpy().endswith(b"assets/spiece.model")


@pytest.mark.parametrize("training", [False, True])
def test_ids_that_do_not_fit_are_refused(encoder, training):
    inputs, _ = batch()
    changes = {
        "input_mask starts with 0": {"input_mask": inputs["input_mask"][:, ::-1]},
        "segment_ids must be from 0 to 1": {"input_type_ids": inputs["input_type_ids"] + 3},
    }
    for message, change in changes.items():
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            encoder(inputs | change, training=training)
    positions = {"masked_lm_positions": tf.fill([len(inputs["input_mask"]), 1], 99)}
    with pytest.raises(tf.errors.InvalidArgumentError, match="inside the sequence"):
        encoder.mlm(inputs | positions, training=training)


@pytest.mark.parametrize("training", [False, True])
def test_gradients_are_those_of_the_model(exported, encoder, training):
    """Also through the fast forms of training, whose gradients are written by hand."""
    inputs, ids = batch()
    network = exported[0].network
    weights = weight_names.weights_by_name(network)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder.sop(inputs, training=training)["sop_logits"] ** 2)
    parts = weight_names.parts(exported[0].config)
    names = [*parts["encoder"], *parts["pooler"], *parts["sentence_order"]]
    gradients = dict(zip(names, tape.gradient(loss, encoder.sop.trainable_variables), strict=True))
    with tf.GradientTape() as tape:
        pooled = network.albert(ids, training=training)["pooled_output"]
        loss = tf.reduce_sum(network.second_head.scores(pooled) ** 2)
    wanted = tape.gradient(loss, [weights[name] for name in names])
    for name, gradient in zip(names, wanted, strict=True):
        tiny.assert_close(*map(tf.convert_to_tensor, (gradients[name], gradient)), 1e-4)


@pytest.mark.full
@pytest.mark.usefixtures("as_users")
def test_dropout_is_drawn_anew_in_training_alone_and_needs_no_xla(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "checkpoint", hidden_dropout_prob=0.3)
    source = export_source.read_pretrained(checkpoint)
    hub_module.write(source, str(tmp_path / "modules"), seq_length=None)
    encoder = tf.saved_model.load(str(tmp_path / "modules" / hub_module.ENCODER))
    inputs, _ = batch()
    first, second = (encoder(inputs, training=True)["pooled_output"] for _ in range(2))
    assert np.abs(first - second).max() > 1e-3
    np.testing.assert_array_equal(encoder(inputs)["default"], encoder(inputs)["default"])
    content = loader_impl.parse_saved_model(str(tmp_path / "modules" / hub_module.ENCODER))
    functions = content.meta_graphs[0].graph_def.library.function
    assert functions
    assert not [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]


def test_the_preprocessor_makes_what_the_encoder_reads(exported, encoder):
    tokenizer = exported[0].tokenizer
    preprocessor = tf.saved_model.load(f"{exported[1]}/{hub_module.PREPROCESSOR}")
    made = preprocessor(tf.constant(TEXTS))
    types = {name: (x.dtype, x.shape.as_list()) for name, x in made.items()}
    assert types == dict.fromkeys(hub_module.NAMES.values(), (tf.int32, [3, 12]))
    ids = [tokenizer.encode(text)[:10] for text in TEXTS]
    rows = [[tokenizer.cls_id, *row, tokenizer.sep_id] for row in ids]
    assert made["input_word_ids"].numpy().tolist() == [row + [0] * (12 - len(row)) for row in rows]
    assert made["input_mask"].numpy().sum(1).tolist() == [len(row) for row in rows]
    assert encoder(made)["default"].shape == (3, 8)
    assert [row.tolist()[:10] for row in preprocessor.tokenize(tf.constant(TEXTS)).numpy()] == ids
    special = {k: int(v) for k, v in preprocessor.tokenize.get_special_tokens_dict().items()}
    assert special == {
        "vocab_size": tokenizer.size,
        "padding_id": tokenizer.pad_id,
        "start_of_sequence_id": tokenizer.cls_id,
        "end_of_segment_id": tokenizer.sep_id,
        "mask_id": tokenizer.mask_id,
    }
    # Pairs, to any length.
    first, second = (preprocessor.tokenize(tf.constant(texts)) for texts in (["a b"], ["c"]))
    pieces = first.numpy()[0].tolist(), second.numpy()[0].tolist()
    made = preprocessor.bert_pack_inputs([first, second], seq_length=16)
    used = 3 + len(pieces[0]) + len(pieces[1])
    row = [2, *pieces[0], 3, *pieces[1], 3] + [0] * (16 - used)
    assert made["input_word_ids"].numpy().tolist() == [row]
    types = made["input_type_ids"].numpy()[0]
    assert types.sum() == len(pieces[1]) + 1
    assert preprocessor.bert_pack_inputs([first])["input_mask"].shape == (1, 12)
    short = preprocessor.bert_pack_inputs([first], seq_length=tf.constant(5))
    assert short["input_mask"].shape[1] == 5


def test_a_checkpoint_without_heads_has_the_encoder_alone(tmp_path):
    source = export_source.read_pretrained(write_checkpoint(tmp_path / "checkpoint", model="bare"))
    hub_module.write(source, str(tmp_path / "modules"), seq_length=None)
    encoder = tf.saved_model.load(str(tmp_path / "modules" / hub_module.ENCODER))
    assert not any(hasattr(encoder, name) for name in ("mlm", "sop", "do_lower_case"))
    longest = source.config.max_position_embeddings
    for folder, length, message in (
        ("modules", None, r"--output_dir: .* already exists"),
        ("more", 9, "has no vocabulary"),
        ("more", longest + 1, f"--seq_length={longest + 1}: the model reads at most {longest} "),
    ):
        with one_line(message):
            hub_module.write(source, str(tmp_path / folder), length)
    assert not (tmp_path / "more").exists()


@pytest.mark.full
def test_the_code_of_tf_hub_trains_it(exported, tmp_path):
    """In the environment of environments/tests_tf220.txt: the Hub's layers are of Keras 2."""
    tensorflow_hub = pytest.importorskip("tensorflow_hub", reason="not tests_tf220.txt")
    tf_keras, names = pytest.importorskip("tf_keras"), hub_module.NAMES.values()
    inputs = {name: tf_keras.Input([7], dtype=tf.int32, name=name) for name in names}
    layer = tensorflow_hub.KerasLayer(f"{exported[1]}/{hub_module.ENCODER}", trainable=True)
    # No layer on top: how long one takes to learn depends on how it was drawn.
    network = tf_keras.Model(inputs, layer(inputs)["pooled_output"][:, :1])
    network.compile(tf_keras.optimizers.Adam(0.02), "mse")
    before = [variable.numpy() for variable in layer.trainable_weights]
    labels = tf.constant([[1.0], [0.0], [1.0]])
    history = network.fit(batch()[0], labels, epochs=60, verbose=0).history["loss"]
    assert history[-1] < 0.3 * history[0]
    for old, variable in zip(before, layer.trainable_weights, strict=True):
        assert (old != variable.numpy()).any() or "key/bias" in variable.name, variable.name
    assert len(before) == len(layer.resolved_object.trainable_variables)
    texts = tensorflow_hub.KerasLayer(f"{exported[1]}/{hub_module.PREPROCESSOR}")
    assert texts(tf.constant(TEXTS))["input_word_ids"].shape == (3, 12)
    assert tensorflow_hub.load(f"{exported[1]}/{hub_module.ENCODER}").mlm is not None
