"""Writes MODEL.md, the card of a SavedModel: its signatures and a request to each."""

import base64
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from albert_tf import files, markdown, provenance
from albert_tf.export import serving_api
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.requests import window_ops
from albert_tf.export.serving_api import DEFAULT, PREDICT, TOKEN_IDS, Signature
from albert_tf.lazy_tensorflow import PACKS_ONCE
from albert_tf.records import features

NAME = "MODEL.md"
# The newest server version.
SERVER = "2.20.0"
_COLUMNS = "padded to the longest row of the batch"
# Meanings of inputs and outputs whose names do not say them.
MEANINGS: Mapping[str, str] = {
    "text_pair": "the second text of a pair",
    "question": "a question about it",
    "options": "the answers to choose from",
    "context": "the text that holds the answer",
    "input_ids": "ids of tokens, [CLS] first, [SEP] after each text",
    "input_mask": "1 for a token, 0 for padding",
    "segment_ids": "0 for the first text, 1 for the second",
    "masked_lm_positions": "positions of [MASK] in `input_ids`, counted from 0",
    "p_mask": "1 for tokens that cannot be in an answer: the question, [SEP], padding",
    "inputs": "serialized tf.train.Examples: int64 lists with the names of `token_ids`",
    "sequence_output": "a vector for each token, 0 for padding",
    "pooled_output": "a vector for the whole sequence",
    "probabilities": "probability of each label or guess; 0 for an empty guess",
    "labels": f"labels whose probability is above their threshold; {_COLUMNS}",
    "num_labels": "number of labels in the row of `labels`; the rest is padding",
    "num_spans": "number of spans in the text; the rest of a row is padding",
    "span_texts": f"the spans, in the order of the text; {_COLUMNS}",
    "span_starts": "offset of the first character of each span (characters, not bytes)",
    "span_ends": "offset after the last character of each span",
    "span_scores": "mean probability of the tags of the span's words",
    "tags": "the most likely tag of each token; empty for padding",
    "num_layers": "number of layers that ran before the answer was certain enough",
    "choice": "the label of the most likely option",
    "classes": "the labels, in the order of `probabilities`",
    "masked_lm_logits": "for each [MASK], a score for each token of the vocabulary",
    "top_ids": "for each [MASK], the most likely token ids, best first",
    "tokens": "for each [MASK], the most likely tokens, best first, with ▁ for a space; rows "
    "beyond the text's own masks are empty",
    "start_logits": "score of each token as the first token of the answer",
    "end_logits": "score of each token as the last token of the answer",
    "start_top_log_probs": "log probabilities of the tokens in `start_top_index` as first tokens",
    "end_top_log_probs": "log probabilities of the tokens in `end_top_index` as last tokens: a "
    "list for each first token, one after the other",
    "cls_logits": "high if there is no answer",
    "answer": "the best answer; empty if the context has none. Only the first "
    f"{window_ops.MAX_WINDOWS} windows of a very long context are read",
    "start": "offset of the first character of the answer in the context; 0 if it is empty",
    "end": "offset after the last character of the answer; 0 if it is empty",
    "score": "score of the best span in the context, even if `answer` is empty; higher is better",
    "probability": "probability of the best span among the candidates",
    "null_odds": "high if there is no answer: above the threshold, `answer` is empty",
}
_SERIALIZED = "inputs"  # the input for serialized examples
_NUM_SHOWN = 8  # token ids in an example

_FILES = """\
`assets/` holds the config, lengths, vocabulary and labels. `assets.extra/` holds a request for each
signature, which the server uses to warm up. `sha256.json` has the hashes of all files. This project
checks them when it loads the model; servers do not. To check a copy, run this in its folder:

    sed -n 's/^  "\\(.*\\)": "\\(.*\\)",*$/\\2  \\1/p' sha256.json | sha256sum --check --quiet"""
_BATCHING = """\
The server can batch concurrent requests: `albert_tf/serving/README.md` in this project has the
command and the parameter file. The token ids of all requests must then have the same length, and
invalid ids or a long text from one client fail the whole batch."""
_NO_PADDING = """\
Padding is skipped: the cost of a batch depends only on its tokens. Short and long texts can share a
batch, and token ids can be padded to any length."""
_REQUESTS = """\
`?` is any size. The first axis counts rows and must be the same for all inputs of a request.
Inputs of the wrong shape and ids outside the vocabulary are refused with INVALID_ARGUMENT and a
message."""
_PYTHON = """\
import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

channel = grpc.insecure_channel("localhost:8500")
server = prediction_service_pb2_grpc.PredictionServiceStub(channel)
request = predict_pb2.PredictRequest()
request.model_spec.name = "{title}"
request.model_spec.signature_name = "{signature}"
{inputs}
for name, value in server.Predict(request, timeout=30).outputs.items():
    print(name, tf.make_ndarray(value))"""


def write(
    model: ExportedModel,
    signatures: Mapping[str, Signature],
    functions: Mapping[str, ConcreteFunction],
    target: str,
    folder: str,
) -> None:
    """Writes the card into `folder`, where the SavedModel is now; `target` is its final path.

    `functions` are the traced signatures.
    """
    versions = os.path.dirname(target)
    title, name = serving_api.make_model_name(versions), next(iter(signatures))
    shown = [x for x in signatures if x != DEFAULT] or [DEFAULT]  # the default equals another one
    command = make_docker_command(versions, '"$(dirname "$PWD")"')
    inputs = "\n".join(_set_input(*item) for item in signatures[name].example.items())
    sections = [
        *introduce(title, model, f"for TensorFlow Serving, with {model.options.dtype} weights"),
        *_describe_answers(model),
        _FILES,
        "## Start a server",
        f"In this folder, or in a copy of it:\n\n    {command}",
        _BATCHING,
        "" if getattr(model.network, "reads_padding", False) else _NO_PADDING,
        "## Requests",
        _REQUESTS,
        f"Texts of more than {model.options.max_text_bytes} bytes in UTF-8 are refused as well."
        if model.options.text
        else "",
        *(_describe_signature(x, title, signatures, functions) for x in shown),
        "## From Python, by gRPC",
        "This needs `pip install tensorflow-serving-api`.",
        markdown.code(_PYTHON.format(title=title, signature=name, inputs=inputs), "python"),
    ]
    markdown.write(os.path.join(folder, NAME), sections)


def introduce(title: str, model: ExportedModel, form: str) -> Iterator[str]:
    """Yields the first sections of any export's card: what it does, its source, its labels."""
    config, labels = model.config, model.options.labels
    source = f"`{provenance.name_for_card(model.source)}`"
    scores = f" ({model.scores})" if model.scores else ""
    yield f"# {title}"
    yield (
        f"{'A BERT' if config.is_bert else 'An ALBERT'} that {model.answer.description}, {form}.\n"
        f"Exported from {source}{scores}: {config.num_hidden_layers} layers, hidden size "
        f"{config.hidden_size}, {config.vocab_size:,} tokens in the vocabulary."
    )
    if labels:
        yield f"Labels, in the order of their ids: {', '.join(labels)}."


def _describe_answers(model: ExportedModel) -> Iterator[str]:
    """Yields how much of a text is read, and the settings that affect answers."""
    options = model.options
    cut = model.answer.truncation_note if options.text else ""
    longest = options.run_config.max_seq_length if options.text else 0
    longest = longest or model.config.max_position_embeddings
    yield f"It reads at most {longest} tokens. {cut}".strip()
    if options.null_threshold is not None and options.text:
        threshold = f"{options.null_threshold:g}"
        yield f"The threshold of `null_odds`, above which there is no answer, is {threshold}."
    if options.thresholds:
        thresholds = ", ".join(f"{label} {x:.4g}" for label, x in options.thresholds.items())
        yield f"Probability thresholds, above which a label applies: {thresholds}."
    yield model.answer.describe_settings(options.run_config)


def list_tensors(tensors: Iterable[tuple[str, str, str]]) -> str:
    """Returns the table of inputs and outputs ("in" or "out", name, type), with their meanings."""
    rows = [[side, f"`{x}`", kind, MEANINGS.get(x, "")] for side, x, kind in tensors]
    return markdown.table(["", "name", "type", "meaning"], rows)


def make_docker_command(folder: str, word: str = "") -> str:
    """Returns the command that serves a folder of versions; the server itself reads gs://...

    `word` is a local folder as a shell word, by default its absolute path.
    """
    name = serving_api.make_model_name(folder)
    ports = "-p 8500:8500 -p 8501:8501"
    run = f"docker run --rm {ports} -e MODEL_NAME={name} -e {PACKS_ONCE}=1 \\\n        "
    image = f"tensorflow/serving:{SERVER}"
    if files.is_remote(folder):
        return f"{run}{image} --model_base_path={shlex.quote(folder)}"
    word = word or shlex.quote(os.path.abspath(folder))
    return f"{run}-v {word}:/models/{name} {image}"


def _describe_signature(
    name: str,
    title: str,
    signatures: Mapping[str, Signature],
    functions: Mapping[str, ConcreteFunction],
) -> str:
    """Describes a signature's inputs and outputs, and a request; the default has a second name."""
    signature = signatures[name]
    also = f", also `{DEFAULT}`" if signature is signatures[DEFAULT] else ""
    verb = signature.method.rpartition("/")[-1]
    sides = (("in", signature.inputs), ("out", functions[name].structured_outputs))
    table = list_tensors(
        (side, key, _describe_type(spec))
        for side, specs in sides
        for key, spec in sorted(specs.items())
    )
    body = _make_rest_body(name, signatures).replace("'", r"'\''")
    url = f"http://localhost:8501/v1/models/{title}:{verb}"
    curl = f"    curl -d '{body}' \\\n        {url}"
    return f"### `{name}`{also} ({verb})\n\n{table}\n\n{curl}"


def _describe_type(spec: tf.TensorSpec) -> str:
    axes = ", ".join("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.dtype.name} [{axes}]"


def _make_rest_body(name: str, signatures: Mapping[str, Signature]) -> str:
    """Returns the JSON of a REST request to a signature."""
    signature = signatures[name]
    body: dict[str, Any]
    if _SERIALIZED not in signature.inputs:
        body = {"inputs": {key: _to_list(x) for key, x in signature.example.items()}}
        return json.dumps({"signature_name": name, **body}, ensure_ascii=False)
    ids = signatures[TOKEN_IDS].example
    example = {key: tf.nest.flatten(_to_list(x)) for key, x in ids.items()}
    if signature.method == PREDICT:
        content = base64.b64encode(features.to_example(example)).decode()
        body = {"inputs": {_SERIALIZED: [{"b64": content}]}}
    else:
        body = {"examples": [example]}
    return json.dumps({"signature_name": name, **body}, ensure_ascii=False)


def _to_list(value: tf.Tensor) -> list:
    """Returns an input as a JSON value, with long ids shortened."""
    if value.dtype == tf.string:
        return tf.nest.map_structure(bytes.decode, value.numpy().tolist())
    return value[..., :_NUM_SHOWN].numpy().tolist()


def _set_input(name: str, value: tf.Tensor) -> str:
    """Returns the line of Python that sets an input of a gRPC request."""
    dtype = "" if value.dtype == tf.string else ', "int32"'
    tensor = f"tf.make_tensor_proto({_to_list(value)!r}{dtype})"
    return f'request.inputs["{name}"].CopyFrom(\n    {tensor}\n)'
