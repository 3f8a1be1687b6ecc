"""MODEL.md: what a SavedModel is asked, what it answers, and how to ask it."""

import base64
import json
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from albert_tf import files
from albert_tf.records import features
from export.model_kinds import ExportedModel
from export.requests import window_ops
from export.serving_api import CLASSIFY, PREDICT, REGRESS, TOKEN_IDS, Signature

NAME = "MODEL.md"
# What each input and output is.
WORDS: Mapping[str, str] = {
    "text": "a text",
    "text_pair": "the second text of a pair",
    "passage": "a text",
    "question": "a question about it",
    "options": "the answers to choose from",
    "context": "the text that holds the answer",
    "input_ids": "pieces of the vocabulary, [CLS] first, [SEP] after each text",
    "input_mask": "1 for a piece, 0 for padding",
    "segment_ids": "0 for the first text, 1 for the second",
    "masked_lm_positions": "places of [MASK] in `input_ids`, counted from 0",
    "p_mask": "1 where no answer can be: the question, [SEP], padding",
    "inputs": "serialised tf.train.Examples: int64 lists of the names of `token_ids`",
    "sequence_output": "a vector for each piece",
    "pooled_output": "a vector for the whole",
    "embedding": "a vector for the text",
    "logits": "a score for each label",
    "probabilities": "of the labels, or guesses (0 for those that are empty)",
    "label": "the likeliest label",
    "choice": "the likeliest of the labels of the options",
    "value": "a number",
    "classes": "the labels",
    "scores": "their probabilities",
    "outputs": "a number",
    "masked_lm_logits": "a score for each piece of the vocabulary, for each [MASK]",
    "top_ids": "the likeliest pieces for each [MASK], best first",
    "top_probabilities": "of these",
    "tokens": "the likeliest pieces for each [MASK], best first; ▁ stands for a space; as many "
    "rows as the text with most [MASK] of all that are answered together has, others are empty",
    "start_logits": "a score for each piece to be the first of the answer",
    "end_logits": "a score for each piece to be the last of the answer",
    "start_top_log_probs": "of the likeliest first pieces",
    "start_top_index": "their places",
    "end_top_log_probs": "of the likeliest last pieces for each first one, list after list",
    "end_top_index": "their places",
    "cls_logits": "high if there is no answer",
    "answer": "the best answer; empty if the context has none. Of a very long context the "
    f"first {window_ops.MAX_WINDOWS} windows are read",
    "start": "its first character in the context, counted from 0; 0 if it is empty",
    "end": "the character after its last; 0 if it is empty",
    "score": "of the best part of the context, higher is better; also where none is answered",
    "probability": "of that part among the best ones",
    "null_odds": "high if there is no answer: `answer` is empty where it is above the threshold",
}
_VERBS = {PREDICT: "predict", CLASSIFY: "classify", REGRESS: "regress"}
EXAMPLES = "inputs"  # the input of serialised examples
_SHOWN = 8  # token ids of an example

# For a server. serving/batching.config is the same, with reasons.
BATCHING = """\
max_batch_size { value: 32 }
allowed_batch_sizes: 1
allowed_batch_sizes: 2
allowed_batch_sizes: 4
allowed_batch_sizes: 8
allowed_batch_sizes: 16
allowed_batch_sizes: 32
batch_timeout_micros { value: 2000 }
max_enqueued_batches { value: 100 }
num_batch_threads { value: 2 }
pad_variable_length_inputs: false
"""
_CARD = """\
# {title}

An ALBERT that {what}, for TensorFlow Serving. Made from `{source}`:
{layers} layers of {hidden}, vocabulary {vocabulary}, {dtype} weights. {longest}
{labels}
`assets/` holds the config, the vocabulary and the labels; `assets.extra/` a request for each
signature, with which the server warms up.

## Start a server

    {docker}

To have requests that come at once answered together, write this to a file `batching.config`, put
`-v "$PWD/batching.config:/batching.config"` before the name of the image, and
`--enable_batching=true --batching_parameters_file=/batching.config` after it:

```
{batching}```

A batch is filled up with copies of a row, which change nothing. `pad_variable_length_inputs` must
stay false: the server would pad `input_mask` with its first number, 1. The graph pads texts itself;
token ids must have one length in all requests, padded by the client with `input_mask` 0.

A batch is refused as a whole, so that one client's bad token ids are an error for all whose
requests came at once: check them before, or serve them without batching. A request of more rows
than `max_batch_size` is refused, too.

## What it is asked

`?` is any number; the first, that of rows, is the same for all inputs of a request. What does not
fit, or holds ids outside the vocabulary, is refused with INVALID_ARGUMENT and a sentence.

{signatures}
## From Python, by gRPC

Wants `pip install tensorflow-serving-api`.

```python
import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

channel = grpc.insecure_channel("localhost:8500")
server = prediction_service_pb2_grpc.PredictionServiceStub(channel)
request = predict_pb2.PredictRequest()
request.model_spec.name = "{title}"
request.model_spec.signature_name = "{signature}"
{grpc}
for name, value in server.Predict(request, timeout=30).outputs.items():
    print(name, tf.make_ndarray(value))
```
"""
# The newest server.
SERVER = "2.20.0"


def write(
    model: ExportedModel,
    found: Mapping[str, Signature],
    functions: Mapping[str, tf.types.experimental.ConcreteFunction],
    target: str,
    folder: str,
) -> None:
    """Writes the card of a model.

    Args:
        model: the model.
        found: its signatures.
        functions: those of the signatures, traced.
        target: the final place of the SavedModel.
        folder: where it is now.
    """
    versions = os.path.dirname(_absolute(target))
    title = served_name(versions)
    name = next(iter(found))
    config, run_config = model.config, model.options.run_config
    longest = run_config.max_seq_length if model.options.text else config.max_position_embeddings
    text = _CARD.format(
        title=title,
        docker=_docker(versions, title),
        what=model.kind.description,
        source=model.source,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        vocabulary=config.vocab_size,
        dtype=model.options.dtype,
        longest=f"It reads {longest} pieces at once.",
        labels=_labels(model) + _threshold(model),
        signatures=_signatures(title, found, functions),
        batching=BATCHING,
        signature=name,
        grpc="\n".join(_grpc(key, value) for key, value in _example(found[name]).items()),
    )
    files.write_bytes(os.path.join(folder, NAME), text.encode())


def _absolute(path: str) -> str:
    """From the root, if it is of this machine: others, `gs://`, have no working directory."""
    return path if "://" in path else os.path.abspath(path)


def served_name(folder: str) -> str:
    """What to call the model in that folder: it goes into a URL, and through the server's shell."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", os.path.basename(folder)) or "albert"


def _docker(folder: str, name: str) -> str:
    """The command that starts a server; one reads what is not of this machine by itself."""
    run = f"docker run --rm -p 8500:8500 -p 8501:8501 -e MODEL_NAME={name} \\\n        "
    image = f"tensorflow/serving:{SERVER}"
    if "://" in folder:
        return f"{run}{image} --model_base_path={shlex.quote(folder)}"
    return f"{run}-v {shlex.quote(f'{folder}:/models/{name}')} {image}"


def _labels(model: ExportedModel) -> str:
    if not model.options.labels:
        return ""
    return f"\nLabels, in the order of their ids: {', '.join(model.options.labels)}.\n"


def _threshold(model: ExportedModel) -> str:
    options = model.options
    if not (options.may_be_none and options.text):
        return ""
    threshold = f"{options.null_threshold:g}"
    return f"\nThe threshold of `null_odds`, above which there is no answer: {threshold}.\n"


def _signatures(
    title: str,
    found: Mapping[str, Signature],
    functions: Mapping[str, tf.types.experimental.ConcreteFunction],
) -> str:
    """A section for each signature, whatever number of names it has."""
    names: dict[int, list[str]] = {}
    for name, signature in found.items():
        names.setdefault(id(signature), []).append(name)
    sections = []
    for *others, name in names.values():
        also = "".join(f", also `{other}`" for other in others)
        sections += [f"### `{name}`{also} ({_VERBS[found[name].method]})", ""]
        sections += _table(found[name], functions[name])
        sections += ["", _curl(title, name, found), ""]
    return "\n".join(sections)


def _table(signature: Signature, function: tf.types.experimental.ConcreteFunction) -> list[str]:
    rows = [
        f"| {side} | `{key}` | {_type(spec)} | {WORDS[key]} |"
        for side, specs in (("in", signature.inputs), ("out", function.structured_outputs))
        for key, spec in sorted(specs.items())
    ]
    return ["| | name | type | what |", "|---|---|---|---|", *rows]


def _type(spec: tf.TensorSpec) -> str:
    axes = ", ".join("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.dtype.name} [{axes}]"


def _example(signature: Signature) -> dict[str, list]:
    """The inputs of an example as JSON has them, long ids cut short."""
    found = {}
    for name, value in signature.example.items():
        if value.dtype == tf.string:
            found[name] = _decoded(value.numpy().tolist())
        else:
            found[name] = value[..., :_SHOWN].numpy().tolist()
    return found


def _decoded(values: list) -> list:
    return [x.decode() if isinstance(x, bytes) else _decoded(x) for x in values]


def _curl(title: str, name: str, found: Mapping[str, Signature]) -> str:
    body = rest(name, found).replace("'", r"'\''")
    url = f"http://localhost:8501/v1/models/{title}:{_VERBS[found[name].method]}"
    return f"    curl -d '{body}' \\\n        {url}"


def rest(name: str, found: Mapping[str, Signature]) -> str:
    """The body of a request by REST to a signature."""
    signature = found[name]
    if EXAMPLES not in signature.inputs:
        body: dict[str, Any] = {"inputs": _example(signature)}
    elif signature.method == PREDICT:
        content = features.to_example(_flat(found[TOKEN_IDS]))
        body = {"inputs": {EXAMPLES: [{"b64": base64.b64encode(content).decode()}]}}
    else:
        body = {"examples": [_flat(found[TOKEN_IDS])]}
    return json.dumps({"signature_name": name, **body}, ensure_ascii=False)


def _flat(ids: Signature) -> dict[str, list[int]]:
    return {name: tf.nest.flatten(value) for name, value in _example(ids).items()}


def _grpc(name: str, value: list) -> str:
    kind = "" if isinstance(tf.nest.flatten(value)[0], str) else ', "int32"'
    return f'request.inputs["{name}"].CopyFrom(\n    tf.make_tensor_proto({value!r}{kind})\n)'
