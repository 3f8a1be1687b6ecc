"""Raw text to a SavedModel: it answers what the network says of Python's ids."""

import grpc
import numpy as np
import pytest
import python_reference
import server_ops
import stand_in
import tensorflow as tf
import tiny_exports
from tensorflow_serving.apis import prediction_service_pb2_grpc

from albert_tf.data_prep.task_data import race
from albert_tf.errors import UserError
from albert_tf.export import model_versions, serving_api, signatures
from albert_tf.inference import loaded_model
from albert_tf.kinds.spans.qa_windows import AnswerOptions

TEXTS = ["The museum opens at nine.", "", "Élan, 1,000 times!", "a b c d e f g h i j k l m n o p"]
PAIRS = [("The museum opens.", "It closes."), ("", "x"), ("a b", "")]
pytestmark = pytest.mark.full


def padded(rows):
    """Lists of ids -> input_ids, input_mask."""
    size = max(map(len, rows))
    ids = np.array([row + [0] * (size - len(row)) for row in rows], np.int32)
    mask = np.arange(size) < np.array([len(row) for row in rows])[:, np.newaxis]
    return ids, mask.astype(np.int32)


def make_texts(model):
    tokenizer, longest = model.tokenizer, model.options.run_config.max_seq_length
    rows = [tokenizer.encode(text)[: longest - 2] for text in TEXTS]
    ids, mask = padded([[tokenizer.cls_id, *row, tokenizer.sep_id] for row in rows])
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}
    outputs = answer(model, batch)
    if model.options.kind == "encoder":
        outputs |= {"input_ids": ids, "input_mask": mask}
    return {"text": {"text": TEXTS}}, {"text": outputs}


def make_pairs(model):
    """Texts, and pairs that are short enough to be whole."""
    tokenizer = model.tokenizer
    requests, wanted = make_texts(model)
    pairs = [(tokenizer.encode(a), tokenizer.encode(b)) for a, b in PAIRS]
    firsts = [[tokenizer.cls_id, *a, tokenizer.sep_id] for a, _ in pairs]
    ids, mask = padded(
        [[*first, *b, tokenizer.sep_id] for first, (_, b) in zip(firsts, pairs, strict=True)]
    )
    assert ids.shape[1] <= model.options.run_config.max_seq_length
    segments = mask * (np.arange(ids.shape[1]) >= [[len(first)] for first in firsts])
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    first, second = zip(*PAIRS, strict=True)
    requests["text_pair"] = {"text": first, "text_pair": second}
    return requests, {**wanted, "text_pair": answer(model, batch)}


def make_masked_texts(model):
    texts = ["The [MASK] opens at nine.", "→[MASK]“[MASK]” a", "[mask] [SEP]"]
    network, top_k = model.network, model.options.top_k
    tokens = np.zeros([3, 2, top_k], object)
    tokens[:], probabilities = b"", np.zeros([3, 2, top_k])
    for row, text in enumerate(texts[:2]):
        guessed = loaded_model.guess_masked(network, model.tokenizer, text, top_k=top_k)
        for place, guesses in enumerate(guessed):
            tokens[row, place] = [guess.piece.encode() for guess in guesses]
            probabilities[row, place] = [guess.probability for guess in guesses]
    return {"text": {"text": texts}}, {"text": {"tokens": tokens, "probabilities": probabilities}}


def make_choices(model):
    tokenizer, run_config = model.tokenizer, model.options.run_config
    options = [[f"{word} {number}" for number in range(5)] for word in ("at", "by")]
    request = {"passage": TEXTS[:2], "question": ["When is _ open?", "Which"], "options": options}
    rows, segments = [], []
    for passage, question, row in zip(*request.values(), strict=True):
        for option in row:
            last = tokenizer.encode(race.fill_blank(question, option))[-run_config.max_qa_length :]
            first = tokenizer.encode(passage)[: run_config.max_seq_length - 3 - len(last)]
            rows.append([tokenizer.cls_id, *first, tokenizer.sep_id, *last, tokenizer.sep_id])
            segments.append(len(first) + 2)
    ids, mask = padded(rows)
    segment_ids = mask * (np.arange(ids.shape[1]) >= np.array(segments)[:, np.newaxis])
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": segment_ids}
    batch = {name: x.reshape(2, 5, -1) for name, x in batch.items()}
    return {"question": request}, {"question": answer(model, batch)}


def make_questions(model):
    """As `span_decoding` answers, from windows that Python makes."""
    questions, run_config = python_reference.make_questions(9), model.options.run_config
    threshold = model.options.null_threshold
    rows = python_reference.answer_questions(
        model.tokenizer,
        questions,
        lambda batch: answer(model, batch),
        AnswerOptions(threshold is not None, run_config.n_best_size, run_config.max_answer_length),
        threshold or 0.0,
    )
    outputs = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    outputs["answer"] = np.array([row["answer"].encode() for row in rows], object)
    texts = {"question": [q.question for q in questions], "context": [q.context for q in questions]}
    return {"question": texts}, {"question": outputs}


def make_long_texts(model):
    """As `tag_decoding` marks them, from windows that Python makes."""
    texts = [*TEXTS, "John's museum (U.S.) opens at 9.30. " * 20, "북京 é\u0301 中文"]
    wanted = python_reference.answer(model, lambda batch: to_arrays(model, batch), {"text": texts})
    assert wanted["num_spans"].max() > 3
    return {"text": {"text": texts}}, {"text": wanted}


def to_arrays(model, batch):
    return {name: value.numpy() for name, value in answer(model, batch).items()}


# Asked of an export in a session of TensorFlow 1. test_fuzzed_requests asks the others so.
EXPECTED = {"encoder": make_texts, "token_classification": make_long_texts}
# Asked op by op.
OTHERS = {
    "fill_mask": make_masked_texts,
    "classification": make_pairs,
    "regression": make_pairs,
    "multi_label": make_pairs,
    "sentence_embedding": make_texts,
    "multiple_choice": make_choices,
    "span": make_questions,
    "span_or_none": make_questions,
}


def answer(model, batch):
    """What the network says itself."""
    ids = {name: tf.constant(batch[name], tf.int32) for name in model.inputs}
    return dict(model.compute_outputs(ids))


@pytest.mark.parametrize("kind", EXPECTED)
def test_a_session_answers_what_python_and_the_network_do(kind, vocabulary, tmp_path):
    model = tiny_exports.source(kind, vocabulary, lengths=python_reference.LENGTHS)
    folder = model_versions.write(model, str(tmp_path / "model"))
    server_ops.check(folder)
    requests, wanted = EXPECTED[kind](model)
    answers = tiny_exports.ask_session(folder, requests)
    for name, outputs in wanted.items():
        tiny_exports.assert_same(answers[name], outputs)


@pytest.mark.parametrize("kind", OTHERS)
def test_other_kinds_answer_what_python_and_the_network_do(kind, vocabulary):
    model = tiny_exports.source(kind, vocabulary, lengths=python_reference.LENGTHS)
    requests, wanted = OTHERS[kind](model)
    made = signatures.make_signatures(model)
    for name, outputs in wanted.items():
        inputs = {key: tf.constant(value) for key, value in requests[name].items()}
        tiny_exports.assert_same(made[name].function(inputs), outputs)


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


def test_a_model_without_a_vocabulary_cannot_answer_text():
    model = tiny_exports.source("classification", text=True)
    with pytest.raises(UserError, match=r"has no vocabulary: .* --text=false"):
        signatures.make_signatures(model)
