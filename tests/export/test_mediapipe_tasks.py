"""MediaPipe's text tasks answer from our files as this project does."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tiny_exports
from optional import mediapipe
from refusals import one_line

from albert_tf.export import litert, mediapipe_tasks
from albert_tf.predict import text_network
from albert_tf.tokenizers import tokenization

pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning"),
]
TEXTS = [
    *("a museum", "THE Museum, at nine.", "naïve café", "ÜBER", "ΟΔΟΣ", "``x'' y", "İstanbul"),
    *("東京 is", "한국어", "हिन्दी", "😀👍🏽 a", "ﬁn ½", "tab\tand\u00a0\u3000space", "e\u0301", ""),
    *("1,234,567", "“smart” — dash…", "[MASK] a", "zero\u200bwidth", "a\u0085b", "word " * 40),
]


@pytest.fixture(scope="module")
def tasks():
    return mediapipe.tasks


def ask(tasks, model, quantize="none"):
    """What their task for the kind says of each text."""
    base = tasks.BaseOptions(model_asset_buffer=mediapipe_tasks.convert(model, quantize))
    if model.options.kind == "sentence_embedding":
        options = tasks.text.TextEmbedderOptions(base_options=base)
        with tasks.text.TextEmbedder.create_from_options(options) as task:
            return [{"embedding": task.embed(x).embeddings[0].embedding} for x in TEXTS]
    options = tasks.text.TextClassifierOptions(base_options=base)
    with tasks.text.TextClassifier.create_from_options(options) as task:
        heads = [task.classify(text).classifications for text in TEXTS]
    assert {len(x) for x in heads} == {1}
    scores = [{x.category_name: x.score for x in head[0].categories} for head in heads]
    return [{"probabilities": [row[x] for x in model.options.labels]} for row in scores]


@pytest.mark.parametrize("kind", ["classification", "multi_label", "sentence_embedding"])
def test_a_task_answers_as_the_model(tasks, vocabulary, kind):
    """Texts of scripts that it lowers by the model's own table alone, and one that is cut."""
    model = tiny_exports.source(kind, vocabulary)
    network = text_network.TextNetwork(model, model.compute_outputs)
    _, expected = network.run([(text,) for text in TEXTS])
    actual = ask(tasks, model)
    for name in actual[0]:
        found = np.array([row[name] for row in actual])
        np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-5)
    near = np.array([row[name] for row in ask(tasks, model, "float16")])
    np.testing.assert_allclose(near, expected[name], rtol=0, atol=0.01)


def test_the_contract_of_the_published_question_answerer(tasks, vocabulary):
    model = tiny_exports.source("span", vocabulary)
    content = mediapipe_tasks.convert(model)
    read = mediapipe_tasks.import_writer().metadata.MetadataDisplayer.with_model_buffer(content)
    values = json.loads(read.get_metadata_json())["subgraph_metadata"][0]
    names = [x["name"] for x in values["input_tensor_metadata"]]
    assert sorted(names) == ["ids", "mask", "segment_ids"]
    order = [x["name"] for x in values["output_tensor_metadata"]]
    interpreter = tf.lite.Interpreter(model_content=content)
    details = interpreter.get_signature_runner("token_ids").get_output_details()
    indices = [x["index"] for x in interpreter.get_output_details()]
    assert [details[name]["index"] for name in order] == indices
    assert read.get_packed_associated_file_list() == ["spiece.model"]
    outputs = litert.run(content, {x: np.ones([1, 14], np.int32) for x in model.inputs})
    assert {name: x.shape for name, x in outputs.items()} == {
        "start_logits": (1, 14),
        "end_logits": (1, 14),
    }


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (
            "regression",
            {},
            "--mediapipe is for classification, .*: MediaPipe has no task for regression",
        ),
        ("classification", {"lower_case": False}, "but the vocabulary is cased"),
        ("classification", None, "has no vocabulary"),
    ],
)
def test_what_it_has_no_task_for_is_refused(vocabulary, kind, settings, message):
    model = tiny_exports.source(kind, vocabulary)
    changed = None if settings is None else tokenization.load(str(vocabulary), **settings)
    with one_line(message):
        mediapipe_tasks.convert(model._replace(tokenizer=changed))
