"""The models do what Keras's own verbs expect of a model."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import replicas
import tensorflow as tf
import tiny
from keras.optimizers.schedules import CosineDecay

from albert_tf.errors import UserError
from albert_tf.model import keras_classes, weight_names
from albert_tf.model.albert_model import Albert, AlbertForPretraining
from albert_tf.model.task_heads import HeadSizes
from albert_tf.model.task_model import AlbertForTask
from albert_tf.optim.lamb import AdamW, Lamb
from albert_tf.optim.optimizers import WarmupDecay

RATES = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.1)
CONFIG = tiny.config(num_hidden_layers=2, classifier_dropout_prob=0.1, **RATES)
MODELS = {
    "encoder": lambda: Albert(CONFIG, seed=3),
    "pretraining": lambda: AlbertForPretraining(CONFIG, seed=3, rematerialize=True),
    "classification": lambda: AlbertForTask(CONFIG, "Classifier", HeadSizes(3), seed=3),
    "span_or_none": lambda: AlbertForTask(CONFIG, "SpanOrNone", HeadSizes(), seed=3),
}


def random_inputs(num_examples, length=9):
    rng = np.random.default_rng(0)
    ids = rng.integers(5, CONFIG.vocab_size, (num_examples, length)).astype(np.int32)
    return {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": ids % 2}


def compiled(optimizer, *, run_eagerly=True, **options):
    """A classifier; a graph takes seconds to trace and XLA more to compile, so few tests do."""
    model = MODELS["classification"]()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss={"logits": loss}, run_eagerly=run_eagerly, **options)
    return model


def values(model):
    return {name: w.numpy() for name, w in weight_names.weights_by_name(model).items()}


def assert_same_weights(model, other):
    weights, others = values(model), values(other)
    assert weights.keys() == others.keys()
    for name, weight in weights.items():
        np.testing.assert_array_equal(weight, others[name], err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_a_keras_file_gives_the_model_back(name, tmp_path):
    model = MODELS[name]()
    for weight in model.weights:
        weight.assign(weight + 0.01)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again) is type(model)
    assert again.get_config() == model.get_config()
    assert again.config == CONFIG
    assert_same_weights(model, again)


def test_an_encoder_is_a_part_of_a_functional_model(tmp_path):
    inputs = random_inputs(8)
    symbols = {name: keras.Input((9,), dtype="int32", name=name) for name in inputs}
    vectors = Albert(CONFIG)(symbols)["pooled_output"]
    assert vectors.shape == (None, CONFIG.hidden_size)
    model = keras.Model(symbols, keras.layers.Dense(2)(vectors))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        again.predict(inputs, verbose=0), model.predict(inputs, verbose=0)
    )


TARGETS = {"logits": np.arange(16) % 3}


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: Lamb(WarmupDecay(1e-2, 20, 2), bias_correction=True),
        pytest.param(lambda: AdamW(CosineDecay(1e-2, 20)), marks=pytest.mark.full),
    ],
    ids=["Lamb, our schedule", "AdamW, theirs"],
)
def test_fit_learns_with_dropout_and_goes_on_in_a_new_process(optimizer, tmp_path):
    keras.utils.set_random_seed(1)
    inputs = random_inputs(16)
    model = compiled(optimizer())
    losses = model.fit(inputs, TARGETS, epochs=4, batch_size=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save(path := tmp_path / "model.keras")
    table, others = keras.saving.get_custom_objects(), {}
    for name in [name for name in table if name.startswith("albert_tf>")]:
        others[name] = table.pop(name)
    try:
        keras_classes.register()  # all that `import albert_tf` does in a new process
        again = keras.models.load_model(path)
    finally:
        table.update(others)
    assert type(again.optimizer) is type(model.optimizer)
    assert again.optimizer.get_config() == model.optimizer.get_config()
    for ours, theirs in zip(model.optimizer.variables, again.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    predictions = [x.predict(inputs, verbose=0)["logits"] for x in (model, again)]
    np.testing.assert_array_equal(*predictions)
    resumed = again.fit(inputs, TARGETS, batch_size=8, verbose=0).history["loss"][0]
    assert resumed < losses[0]


@pytest.mark.full
def test_a_file_loads_after_the_import_alone_in_a_new_process(tmp_path):
    compiled(Lamb(1e-3)).save(path := tmp_path / "model.keras")
    code = (
        "import albert_tf, sys\n"
        "assert not {'tensorflow', 'keras', 'numpy'} & sys.modules.keys()\n"
        "import importlib.util; importlib.util.find_spec('keras')\n"
        "import keras\n"
        f"model = keras.models.load_model({str(path)!r})\n"
        "assert type(model) is albert_tf.AlbertForTask\n"
        "assert type(model.optimizer) is albert_tf.Lamb\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.full
def test_replicas_fit_evaluate_and_predict_as_one():
    inputs = random_inputs(16)
    one = compiled(keras.optimizers.SGD(0.0))
    strategy = replicas.two_replicas()
    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        two = compiled(keras.optimizers.SGD(0.0), run_eagerly=False, jit_compile=False)
    losses = [model.evaluate(inputs, TARGETS, batch_size=8, verbose=0) for model in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    two.fit(inputs, TARGETS, batch_size=8, verbose=0)
    predictions = [model.predict(inputs, batch_size=8, verbose=0)["logits"] for model in (one, two)]
    np.testing.assert_allclose(*predictions, rtol=1e-5, atol=1e-6)


def test_class_weights_take_the_target_of_the_documentation():
    inputs, weights = random_inputs(16), {0: 1.0, 1: 2.0, 2: 0.5}
    # Keras's loss of an epoch is weighted by the examples alone.
    rates = np.array([weights[label] for label in TARGETS["logits"]])
    batches = tf.data.Dataset.from_tensor_slices((inputs, TARGETS)).batch(16)
    losses = []
    for data, options in (
        ([batches], {"class_weight": weights}),
        ([inputs, TARGETS], {"sample_weight": rates}),
    ):
        model = compiled(keras.optimizers.SGD(0.0))
        model.albert.trainable = False
        history = model.fit(*data, validation_data=(inputs, TARGETS), verbose=0, **options)
        losses.append([history.history["loss"], history.history["val_loss"]])
    assert losses[0][1] == pytest.approx(losses[1][1])
    assert losses[0][0] == pytest.approx(losses[1][0], rel=0.05)
    assert losses[0][0] != pytest.approx(losses[0][1], rel=0.05)


REFUSED = {
    "class_weight: the model has several outputs": lambda: MODELS["span_or_none"]().fit(
        {}, {"start_logits": 0, "end_logits": 0}, class_weight={0: 1.0}
    ),
    r"class_weight: pass \{id of a class": lambda: compiled("sgd").fit(
        random_inputs(16), TARGETS, class_weight={"good": 1.0}, verbose=0
    ),
    "input_ids: its rows have different lengths. Pad them": lambda: MODELS["classification"]()(
        {"input_ids": [[5, 6], [7]]}
    ),
    "'mask' is no": lambda: Albert(CONFIG)(
        {"input_ids": keras.Input((9,), dtype="int32"), "mask": keras.Input((9,))}
    ),
    "input_ids is float32: pass integers": lambda: Albert(CONFIG)({"input_ids": keras.Input((9,))}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_not_understood_is_one_line(message):
    with pytest.raises(UserError, match=message) as caught:
        REFUSED[message]()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["classification", pytest.param("pretraining", marks=pytest.mark.full)]
)
def test_an_export_of_keras_computes_the_same(name, tmp_path):
    model, inputs = MODELS[name](), random_inputs(4)
    if name == "pretraining":
        inputs["masked_lm_positions"] = np.zeros([4, 2], np.int32)
    expected = model(inputs)
    model.export(tmp_path / "export", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "export")
    served = loaded.serve
    for key, value in expected.items():
        np.testing.assert_allclose(served(inputs)[key], value, atol=1e-5)
        shorter = served(
            {k: x[:2, :5] if k != "masked_lm_positions" else x[:2] for k, x in inputs.items()}
        )
        assert shorter[key].shape[0] == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="segment_ids must be from 0 to 1"):
        served({**inputs, "segment_ids": inputs["segment_ids"] + 2})


def test_what_keras_compiles_is_checked_before():
    inputs = random_inputs(8)
    wrong = {**inputs, "segment_ids": inputs["segment_ids"] + 2}
    model = compiled("sgd", run_eagerly=False, jit_compile=True)
    for call in (
        lambda: model.fit(wrong, TARGETS, verbose=0),
        lambda: model.evaluate(wrong, TARGETS, verbose=0),
        lambda: model.predict(wrong, verbose=0),
    ):
        with pytest.raises(UserError, match="segment_ids must be from 0 to 1"):
            call()
    with pytest.raises(tf.errors.InvalidArgumentError, match="segment_ids must be from 0 to 1"):
        model.predict(tf.data.Dataset.from_tensor_slices(wrong).batch(4), verbose=0)
    batches = tf.data.Dataset.from_tensor_slices(inputs).batch(4)
    expected = model({name: x.tolist() for name, x in inputs.items()})["logits"]
    np.testing.assert_allclose(model.predict(batches, verbose=0)["logits"], expected, atol=1e-5)


def test_the_global_policy_is_followed_or_refused():
    keras.config.set_dtype_policy("bfloat16")
    try:
        model = MODELS["classification"]()
        assert model.albert(random_inputs(2))["pooled_output"].dtype == tf.bfloat16
        assert type(model).from_config(model.get_config()).dtype_policy.name == "bfloat16"
        keras.config.set_dtype_policy("mixed_float16")
        with pytest.raises(UserError, match="dtype: 'mixed_float16' is not one of float32, mixed"):
            MODELS["classification"]()
    finally:
        keras.config.set_dtype_policy("float32")
