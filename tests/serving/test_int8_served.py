"""bin/serve answers with an int8 model what that answers in the environment that made it."""

import int8_environment
import kserve
import numpy as np
import pytest
import tensorflow as tf
import tiny_exports

from albert_tf.export.int8 import int8_model, int8_runtime

pytestmark = pytest.mark.slow
KIND = "span_or_none"
SCORES = int8_model.Scores(["export"], "f1", 0.0, 0.0, 1, tiny_exports.LENGTH)
WORDS = ["the cafe", "naïve ﷺ", "sold offices", "2011", "你好"]


@pytest.fixture(scope="module")
def written(vocabulary, tmp_path_factory):
    """The folder of an int8 version."""
    int8_environment.require()
    kserve.require_triton()
    folder = tmp_path_factory.mktemp("models")
    model = tiny_exports.source(KIND, vocabulary)
    outputs = int8_model.save_graph(model, str(folder / "graph"))
    calibration = [
        {name: x.numpy() for name, x in tiny_exports.ids(model, 1, 9, seed).items()}
        for seed in range(9)
    ]
    with int8_runtime.quantizing(
        str(folder / "graph"), calibration, calibration[:1], [[1, 9]]
    ) as result:
        int8_model.write(model, outputs, result, SCORES, str(folder / KIND / "1"))
    return folder / KIND / "1"


def answer_here(written, name, inputs):
    """The answer with the network run in the environment that made it."""
    parts = tf.saved_model.load(str(written / "requests")).signatures
    tensors = {key: tf.constant(x) for key, x in inputs.items()}
    ids = {key: x.numpy() for key, x in parts[f"pack_{name}"](**tensors).items()}
    [outputs] = int8_runtime.run(str(written), [ids]).outputs
    answers = parts[f"answer_{name}"](**tensors, **outputs)
    return {key: x.numpy() for key, x in answers.items()}


def test_answers_are_those_of_the_model(written, tmp_path):
    contexts = [" ".join(WORDS[index:] * 3 * index) or "a" for index in range(len(WORDS))]
    texts = {
        "question": np.array([word.encode() for word in WORDS], object),
        "context": np.array([context.encode() for context in contexts], object),
    }
    long = {"question": texts["question"][:1], "context": np.array([b"to them " * 400], object)}
    with kserve.serving(tmp_path / "server", f"--model={written.parent}") as served:
        port = served.ports[0]
        for inputs in (texts, long):
            expected = answer_here(written, "question", inputs)
            kserve.assert_same(kserve.ask(port, KIND, inputs), expected)
        ids = kserve.read_warmup(str(written))["token_ids"]
        kserve.assert_same(kserve.ask(port, KIND, ids), answer_here(written, "token_ids", ids))
        bad = ids | {"input_ids": np.full_like(ids["input_ids"], 10**6)}
        status, message = kserve.ask(port, KIND, bad)
        assert status == 400
        assert message.startswith("input_ids must be from 0 to")
