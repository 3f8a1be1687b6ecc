"""bin/serve answers with an int8 model what its backend answers here."""

import sys
from unittest import mock

import kserve
import numpy as np
import pytest
import tiny_exports

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from albert_tf.export.onnx import int8_export, int8_version, onnx_folder

sys.modules.setdefault("triton_python_backend_utils", mock.Mock())
from albert_tf.serving.triton import triton_backend  # noqa: E402

pytestmark = pytest.mark.slow
KIND = "span_or_none"
SCORES = int8_version.Scores(["export"], "f1", 0.0, 0.0, 1, tiny_exports.LENGTH, 0.1, 0.1)
WORDS = ["the cafe", "naïve ﷺ", "sold offices", "2011", "你好"]


@pytest.fixture(scope="module")
def written(vocabulary, tmp_path_factory):
    """The folder of an int8 version."""
    kserve.require_triton()
    folder = tmp_path_factory.mktemp("models")
    model = tiny_exports.source(KIND, vocabulary)
    graph = onnx_folder.save_graph(model, str(folder))
    int8 = int8_export.quantize(graph, str(folder / "int8.onnx"))
    target = folder / KIND / "1"
    int8_version.write(model, tiny_exports.contents(KIND, vocabulary), int8, SCORES, str(target))
    return target


def answer_here(written, inputs):
    arrays = {name: x if x.ndim > 1 else x[:, np.newaxis] for name, x in inputs.items()}
    return triton_backend.load(str(written))[frozenset(inputs)].compute(arrays)


def test_answers_are_those_of_the_model_and_a_killed_server_leaves_no_process(written, tmp_path):
    contexts = [" ".join(WORDS[index:] * 3 * index) or "a" for index in range(len(WORDS))]
    texts = {
        "question": np.array([word.encode() for word in WORDS], object),
        "context": np.array([context.encode() for context in contexts], object),
    }
    long = {"question": texts["question"][:1], "context": np.array([b"to them " * 400], object)}
    with kserve.serving(tmp_path / "server", f"--model={written.parent}") as served:
        port = served.ports[0]
        for inputs in (texts, long):
            expected = answer_here(written, inputs)
            kserve.assert_same(kserve.ask(port, KIND, inputs), expected)
        ids = kserve.read_warmup(str(written))["token_ids"]
        kserve.assert_same(kserve.ask(port, KIND, ids), answer_here(written, ids))
        bad = ids | {"input_ids": np.full_like(ids["input_ids"], 10**6)}
        status, message = kserve.ask(port, KIND, bad)
        assert status == 400
        assert message.startswith("input_ids must be from 0 to")
        servers = kserve.find_servers(served)
        served.process.kill()
        assert served.process.wait(60) == -9
    assert kserve.is_gone(servers)
