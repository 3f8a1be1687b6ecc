"""What a Keras model is called with is understood, or refused in one line."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
from refusals import one_line

from albert_tf.kinds import task_table
from albert_tf.model.albert_model import Albert, AlbertForPretraining
from albert_tf.model.task_heads import HeadSizes
from albert_tf.model.task_model import AlbertForTask
from albert_tf.records import model_inputs

MODEL = Albert(tiny.config())
tiny.fill(MODEL)
NAMES = ("input_ids", "input_mask", "segment_ids")
OTHERS = {
    "Hugging Face": ("input_ids", "attention_mask", "token_type_ids"),
    "Keras Hub": ("token_ids", "padding_mask", "segment_ids"),
    "TensorFlow Hub": ("input_word_ids", "input_mask", "input_type_ids"),
}


def batch(**changes):
    ours = {name: tiny.batch()[name].numpy() for name in NAMES}
    return {name: value for name, value in (ours | changes).items() if value is not None}


IDS, MASK = batch()["input_ids"], batch()["input_mask"]


@pytest.mark.parametrize(
    ("others", "dtype"), zip(OTHERS.values(), ["int32", "int64", "uint8"], strict=True), ids=OTHERS
)
def test_the_names_of_others_give_the_same_vectors(others, dtype):
    renamed = {x: batch()[ours].astype(dtype) for ours, x in zip(NAMES, others, strict=True)}
    expected = MODEL(batch())["pooled_output"]
    np.testing.assert_array_equal(MODEL(renamed)["pooled_output"], expected)
    assert np.abs(MODEL({"input_ids": IDS})["pooled_output"] - expected).max() > 1e-3


def test_a_mask_may_be_of_bool_or_empty_and_labels_are_not_read():
    more = {"input_mask": MASK > 0, "label_ids": np.zeros([3, 1]), "is_real_example": np.ones(3)}
    expected = MODEL(batch())["pooled_output"]
    np.testing.assert_array_equal(MODEL(batch(**more))["pooled_output"], expected)
    empty = MASK * np.array([[1], [0], [1]])  # a row of padding is none of a text
    assert np.isfinite(MODEL(batch(input_mask=empty))["pooled_output"]).all()


REFUSED = {
    "an array": (IDS, "the input is not a dictionary"),
    "misspelt": (batch(segment_id=IDS), "'segment_id' is not an input of the model. Remove it, or"),
    "not applied": (batch(position_ids=IDS), "'position_ids' is not an input"),
    "twice": (batch(attention_mask=MASK), "input_mask is given twice: 'attention_mask' is the"),
    "no ids": (batch(input_ids=None), "the input has no input_ids"),
    "floats": (batch(input_ids=IDS.astype("float32")), "input_ids is float32: pass integers"),
    "texts": (batch(input_ids=IDS.astype(str)), "input_ids is string: pass integers"),
    "one row": (batch(input_ids=IDS[0]), r"input_ids has the shape \(7,\): pass \[B, S\]"),
    "three axes": (batch(input_mask=MASK[None]), r"input_mask has the shape \(1, 3, 7\)"),
    "ragged": ({"input_ids": tf.ragged.constant([[1], [1, 2]])}, "input_ids is not a dense tensor"),
    "too long": ({"input_ids": np.ones([1, 10], int)}, "10 tokens exceeds max_position_embeddings"),
    "no token": ({"input_ids": np.ones([1, 0], int)}, "at least one token"),
}
VALUES = {
    "no such piece": (batch(input_ids=IDS + 11), "input_ids must be from 0 to 10"),
    "negative": (batch(input_ids=IDS - 11), "input_ids must be from 0 to 10"),
    "beyond int32": (batch(input_ids=IDS.astype(int) + 2**32), "input_ids must be from 0 to 10"),
    "no such segment": (batch(segment_ids=IDS * 0 + 3), "segment_ids must be from 0 to 1"),
    "a mask of 2": (batch(input_mask=MASK + 1), "input_mask must be from 0 to 1"),
    "another length": (batch(input_mask=MASK[:, :3]), "input_mask must have the shape"),
    "padding first": (batch(input_mask=MASK[:, ::-1]), "input_mask starts with 0: put the padding"),
}


@pytest.mark.parametrize(("inputs", "message"), [*REFUSED.values(), *VALUES.values()])
def test_what_is_not_understood_is_refused_in_one_line(inputs, message):
    with one_line(message):
        MODEL(inputs)


@pytest.mark.parametrize(("inputs", "message"), VALUES.values(), ids=VALUES)
def test_a_graph_checks_values(inputs, message):
    specs = {name: tf.TensorSpec([None, None], value.dtype) for name, value in inputs.items()}
    graph = tf.function(lambda x: MODEL(x)["pooled_output"], [specs], autograph=False)
    expected = MODEL(batch())["pooled_output"]
    sound = {name: batch()[name].astype(value.dtype) for name, value in inputs.items()}
    np.testing.assert_allclose(graph(sound), expected, atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        graph(inputs)


def test_each_model_names_what_it_lacks():
    span = AlbertForTask(tiny.config(), "SpanOrNone", HeadSizes())
    for model, name in ((AlbertForPretraining(tiny.config()), "masked_lm_positions"), (span, "p_")):
        with one_line(f"the input has no {name}"):
            model(batch())
    outside = batch(mask_positions=np.array([[7]] * 3))
    with one_line("masked_lm_positions must be inside the sequence"):
        AlbertForPretraining(tiny.config())(outside)


def test_each_choice_is_a_sequence_of_its_own():
    model = AlbertForTask(tiny.config(), "MultipleChoice", HeadSizes(2))
    two = {name: np.concatenate([value] * 2, 1) for name, value in batch().items()}
    assert model(two)["logits"].shape == (3, 2)
    two["input_mask"][:, 7] = 0
    with one_line("input_mask starts with 0"):
        model(two)
    with one_line("2 sequences of one length, not 7 tokens"):
        model(batch())


def test_every_name_of_a_record_is_known():
    for kind in ("classification", "span", "multi_label", "token_classification"):
        names = task_table.KINDS[kind].data.make_features(7, 2)
        names |= model_inputs.features.pretraining(7, 2)
        values = dict.fromkeys(names, np.zeros([1, 7], int))
        assert model_inputs.read(values, tiny.config()).keys() == values.keys()
