"""`--signatures=one` writes what Spark NLP reads; its own jar has never read one.

It merges all signatures by the names of inputs and outputs, opens the model in a session of
TensorFlow 1, and takes the vocabulary and the labels from `assets/`.
"""

import os

import numpy as np
import pytest
import tensorflow as tf
import tiny_exports

from albert_tf.export import model_versions

INPUTS = ("input_ids", "input_mask", "segment_ids")
OUTPUTS = {
    "classification": {"logits": 2},
    "token_classification": {"logits": 3},
    "span": {"start_logits": 2, "end_logits": 2},
    "encoder": {"sequence_output": 3, "pooled_output": 2},
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_there_is_one_signature_with_the_outputs_of_the_network(tmp_path, vocabulary, kind):
    model = tiny_exports.source(kind, vocabulary, text=False, signatures="one")
    folder = model_versions.write(model, str(tmp_path))
    ids = {name: x.numpy() for name, x in tiny_exports.ids(model).items()}
    ids["input_mask"] = np.ones_like(ids["input_mask"])
    hole = {**ids, "input_mask": ids["input_mask"].copy()}
    hole["input_mask"][:, 2] = 0  # it masks <unk>
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        names = [name for name in loaded.signature_def if not name.startswith("__")]
        assert names == ["serving_default"]
        signature = loaded.signature_def["serving_default"]
        assert {*signature.inputs} == {*INPUTS}
        types = {(x.dtype, len(x.tensor_shape.dim)) for x in signature.inputs.values()}
        assert types == {(tf.int32.as_datatype_enum, 2)}
        ranks = {name: len(x.tensor_shape.dim) for name, x in signature.outputs.items()}
        assert ranks == OUTPUTS[kind]
        fetched = {name: x.name for name, x in signature.outputs.items()}

        def ask(batch):
            feeds = {signature.inputs[name].name: batch[name] for name in INPUTS}
            return session.run(fetched, feeds)

        plain, one = ask(ids), ask(hole)
        other = ask({**hole, "input_ids": np.where(hole["input_mask"], ids["input_ids"], 5)})
    tensors = {name: tf.constant(x) for name, x in ids.items()}
    wanted = model.answer.apply(model.network, tensors, model.options)
    by_token = {"logits"} if kind == "token_classification" else {"start_logits", "end_logits"}
    for name in OUTPUTS[kind]:
        np.testing.assert_allclose(plain[name], wanted[name], rtol=1e-5, atol=1e-5)
        for outputs in (one, other) if name in {*by_token, "sequence_output"} else ():
            outputs[name] = np.delete(outputs[name], 2, axis=1)
        np.testing.assert_array_equal(one[name], other[name])
    assert os.path.exists(os.path.join(folder, "assets", "spiece.model"))
    assert os.path.exists(os.path.join(folder, "assets", "labels.txt")) is bool(
        model.options.labels
    )
