"""Raw text to the signatures of a model: they answer what the network says of Python's ids."""

import grpc
import pytest
import python_reference
import stand_in
import tensorflow as tf
import tiny_exports
from refusals import one_line
from tensorflow_serving.apis import prediction_service_pb2_grpc

from albert_tf.export import model_versions, serving_api, signatures
from albert_tf.kinds import task_table

TEXTS = ["The museum opens at nine.", "", "Élan, 1,000 times!", "a b c d e f g h i j k l m n o p"]
PAIRS = {"text": ["The museum opens.", "", *TEXTS], "text_pair": ["It closes.", "x", *TEXTS[::-1]]}
QUESTIONS = python_reference.make_questions(9)
LONG = "John's museum (U.S.) opens at 9.30. " * 20
OPTIONS = [["office", "a\\1_b", "", "$&", "é"], ["x " * 40, "y", "z_", "é", "a"], [*"abcde"]]
QUESTION = {"question": {"question": [x.question for x in QUESTIONS]}}
QUESTION["question"]["context"] = [x.context for x in QUESTIONS]
CHOICE = {"passage": ["The cafe sold 2011, offices. " * 9, "한국어 문장을 읽고", ""]}
CHOICE |= {"question": ["What is _ of ___ it?", "Which?", "_"], "options": OPTIONS}
MASKED = ["The [MASK] opens at nine.", "→[MASK]“[MASK]” a", "[mask] [SEP]", "", "the [MASK] " * 40]
OTHERS = {
    "fill_mask": {"text": {"text": MASKED}},
    "classification": {"text": {"text": TEXTS}, "text_pair": PAIRS},
    "multiple_choice": {"question": CHOICE},
    "token_classification": {"text": {"text": [*TEXTS, LONG, "북京 é\u0301 中文"]}},
    "span": QUESTION,
    "span_or_none": QUESTION,
}
REQUESTS = {kind: OTHERS.get(kind, {"text": {"text": TEXTS}}) for kind in task_table.ANSWERS}
QUICK = ("fill_mask", "multiple_choice")


def check(model, answers, name, request):
    def ask(batch):
        ids = {name: tf.constant(batch[name], tf.int32) for name in model.inputs}
        return {name: x.numpy() for name, x in model.compute_outputs(ids).items()}

    wanted = python_reference.answer(model, ask, request)
    assert answers.keys() <= wanted.keys()
    tiny_exports.assert_same(answers, {key: wanted[key] for key in answers})


@pytest.mark.parametrize(
    "kind", [x if x in QUICK else pytest.param(x, marks=pytest.mark.full) for x in REQUESTS]
)
def test_every_kind_answers_what_python_and_the_network_do(kind, vocabulary):
    model = tiny_exports.source(kind, vocabulary, lengths=python_reference.LENGTHS)
    made = signatures.make_signatures(model)
    for name, request in REQUESTS[kind].items():
        inputs = {key: tf.constant(value) for key, value in request.items()}
        check(model, dict(made[name].function(inputs)), name, request)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["encoder", "token_classification"])
def test_a_session_does_as_well(kind, vocabulary, tmp_path):
    """test_fuzzed_requests asks the others so."""
    model = tiny_exports.source(kind, vocabulary, lengths=python_reference.LENGTHS)
    folder = model_versions.write(model, str(tmp_path / "model"))
    for name, request in REQUESTS[kind].items():
        check(model, tiny_exports.ask_session(folder, {name: request})[name], name, request)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["classification", "multiple_choice", "span_or_none"])
def test_texts_of_unlike_batches_are_refused_by_the_server(exported, kind):
    model, folder = exported(kind, text=True)
    made = signatures.make_signatures(model)
    [name] = {"text_pair", "question"} & made.keys()
    unlike = dict(made[name].example)
    first = next(iter(unlike))
    unlike[first] = tf.concat([unlike[first]] * 2, 0)
    request = serving_api.make_log(name, serving_api.Signature({}, None, unlike))
    with stand_in.serving(folder) as address, grpc.insecure_channel(address) as channel:
        client = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError) as error:
            client.Predict(request.predict_log.request, timeout=60)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "must have the same number of rows" in error.value.details()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["multiple_choice", "span"])
def test_long_texts_are_refused(kind, vocabulary):
    model = tiny_exports.source(kind, vocabulary, max_text_bytes=50)
    signature = signatures.make_signatures(model)["serving_default"]
    shapes = {name: [1, 5] if name == "options" else [1] for name in signature.inputs}
    texts = {name: tf.fill(shape, "ab" * 25) for name, shape in shapes.items()}
    signature.function(texts)
    for name, shape in shapes.items():
        message = f"{name} must have at most 50 bytes: cut longer texts up"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            signature.function(texts | {name: tf.fill(shape, "é" * 25 + "a")})


def test_a_model_without_a_vocabulary_cannot_answer_text():
    model = tiny_exports.source("classification", text=True)
    with one_line(r"has no vocabulary: .* --text=false"):
        signatures.make_signatures(model)
