"""Random texts are answered as Python answers them; other shapes are refused with a sentence."""

import random

import numpy as np
import pytest
import python_reference
import tensorflow as tf
import tiny_exports
import tiny_texts
from tensorflow.core.protobuf import config_pb2

from albert_tf.export import model_versions

# One for each way that texts are asked and answered.
KINDS = ("classification", "multiple_choice", "span_or_none", "fill_mask")
KINDS += ("token_classification", "encoder")
ROUNDS = 12
LINES = [*tiny_texts.texts(8, 90), *[b"", b" ", "\u3000\u200b".encode(), b"the_ _", b"__\xff"] * 9]
# Of far more tokens than a model takes.
LINES += [b"the cafe " * 400, b"[MASK]" * 90, "中".encode() * 900, b"\0" * 700, b"2011, _" * 99]
pytestmark = pytest.mark.full


@pytest.fixture(scope="module", params=KINDS)
def served(request, tmp_path_factory):
    """The model, and the folder of its version."""
    make = tiny_texts.VOCABULARIES[KINDS.index(request.param) % 2]
    words = tiny_texts.write_vocabulary(tmp_path_factory.mktemp("words"), make)
    model = tiny_exports.source(request.param, words, lengths=python_reference.LENGTHS)
    return model, model_versions.write(model, str(tmp_path_factory.mktemp("models") / "model"))


def test_random_texts(served):
    model, folder = served

    def ask(batch):
        ids = {name: batch[name] for name in model.inputs}
        return tiny_exports.ask_session(folder, {"token_ids": ids})["token_ids"]

    rng, number = random.Random(0), len(model.options.labels)
    for name, inputs in model.answer.list_requests().items():
        num_known = 0
        for _ in range(ROUNDS):
            size = rng.randint(1, 5)
            request = {
                key: np.array(rng.choices(LINES, k=size * number), object).reshape(size, number)
                if key == "options"
                else np.array(rng.choices(LINES, k=size), object)
                for key in inputs
            }
            decode = np.vectorize(lambda text: text.decode(errors="replace"), [object])
            texts = {key: decode(value).tolist() for key, value in request.items()}
            answers = tiny_exports.ask_session(folder, {name: request})[name]
            wanted = python_reference.answer(model, ask, texts)
            for key, value in answers.items():
                assert len(value) == size, (key, texts)
                assert value.dtype.kind != "f" or np.isfinite(value).all(), (key, texts)
            num_known += bool(wanted)
            if wanted:
                python_reference.assert_same(answers, wanted)
        assert num_known > ROUNDS / 3


def test_texts_of_another_rank_are_refused(served):
    """Session.run refuses arrays of another shape itself; a server lets them through."""
    model, folder = served
    name, inputs = next(iter(model.answer.list_requests().items()))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], folder)
        signature, options = meta.signature_def[name], config_pb2.CallableOptions()
        options.feed.extend(signature.inputs[key].name for key in inputs)
        options.fetch.extend(info.name for info in signature.outputs.values())
        call = session._make_callable_from_options(options)
        for shape in ([], [1, 1, 1]):
            with pytest.raises(tf.errors.InvalidArgumentError, match="not compatible with expecte"):
                call(*[np.full(shape, b"a", object)] * len(inputs))
