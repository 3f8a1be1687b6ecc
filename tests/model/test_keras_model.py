"""The models do what Keras's own verbs expect of a model."""

import keras
import numpy as np
import pytest
import tiny

from albert_tf.model import weight_names
from albert_tf.model.albert_model import Albert, AlbertForPretraining
from albert_tf.model.task_heads import HeadSizes
from albert_tf.model.task_model import AlbertForTask

RATES = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1)
CONFIG = tiny.config(num_hidden_layers=2, classifier_dropout_prob=0.1, **RATES)
MODELS = {
    "encoder": lambda: Albert(CONFIG, seed=3),
    "pretraining": lambda: AlbertForPretraining(CONFIG, seed=3, rematerialize=True),
    "classification": lambda: AlbertForTask(CONFIG, "classification", HeadSizes(3), seed=3),
    "span_or_none": lambda: AlbertForTask(CONFIG, "span_or_none", HeadSizes(), seed=3),
}


def random_inputs(num_examples, length=9):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, CONFIG.vocab_size, (num_examples, length)).astype(np.int32)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": ids % 2}


def make_classifier():
    model = MODELS["classification"]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss={"logits": loss})
    return model


def values(model):
    return {name: w.numpy() for name, w in weight_names.weights_by_name(model).items()}


def assert_same_weights(model, other):
    weights, others = values(model), values(other)
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight, others[name], err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_made_again_from_its_config(name):
    model = MODELS[name]()
    again = type(model).from_config(model.get_config())
    assert again.get_config() == model.get_config()
    assert again.config == CONFIG
    assert_same_weights(model, again)
    assert type(keras.models.clone_model(model)) is type(model)


@pytest.mark.parametrize("name", MODELS)
def test_a_keras_file_gives_the_model_back(name, tmp_path):
    model = MODELS[name]()
    for weight in model.weights:
        weight.assign(weight + 0.01)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again) is type(model)
    assert_same_weights(model, again)


def test_fit_learns_with_dropout_and_goes_on_after_loading(tmp_path):
    keras.utils.set_random_seed(1)
    inputs = random_inputs(24)
    labels = {"logits": inputs["input_ids"][:, 1] % 3}
    model = make_classifier()
    losses = model.fit(inputs, labels, epochs=8, batch_size=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    predictions = model.predict(inputs, verbose=0)["logits"]
    assert predictions.shape == (24, 3)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(inputs, verbose=0)["logits"], predictions)
    resumed = again.fit(inputs, labels, batch_size=8, verbose=0).history["loss"][0]
    assert resumed < losses[0]


def test_dropout_of_fit_follows_the_seed_of_the_model():
    inputs, labels = random_inputs(16), {"logits": np.arange(16) % 3}
    histories = []
    for _ in range(2):
        keras.utils.set_random_seed(1)  # the order of the examples
        histories.append(make_classifier().fit(inputs, labels, batch_size=8, verbose=0).history)
    assert histories[0] == histories[1]


def test_an_encoder_is_a_part_of_a_functional_model(tmp_path):
    inputs = random_inputs(8)
    symbols = {name: keras.Input((9,), dtype="int32", name=name) for name in inputs}
    vectors = Albert(CONFIG)(symbols)["pooled_output"]
    assert vectors.shape == (None, CONFIG.hidden_size)
    model = keras.Model(symbols, keras.layers.Dense(2)(vectors))
    model.compile("adam", loss="mse")
    model.fit(inputs, np.zeros((8, 2)), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        again.predict(inputs, verbose=0), model.predict(inputs, verbose=0)
    )


@pytest.mark.parametrize("name", MODELS)
def test_the_summary_has_the_true_counts(name):
    model, lines = MODELS[name](), []
    model.summary(print_fn=lambda line: lines.append(line))
    count = sum(weight.size for weight in values(model).values())
    assert f"Total params: {count:,}" in "\n".join(lines)
