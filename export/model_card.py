"""Writes MODEL.md, the card of a SavedModel: its signatures and a request to each."""

import base64
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import tensorflow as tf
from tensorflow.types.experimental import ConcreteFunction

from albert_tf import files, hub
from albert_tf.export import serving_api
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.requests import window_ops
from albert_tf.export.serving_api import DEFAULT, PREDICT, TOKEN_IDS, Signature
from albert_tf.lazy_tensorflow import PACKS_ONCE
from albert_tf.records import features

NAME = "MODEL.md"
# The newest server.
SERVER = "2.20.0"
# Meanings of inputs and outputs.
MEANINGS: Mapping[str, str] = {
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
    "sequence_output": "a vector for each piece, 0 for padding",
    "pooled_output": "a vector for the whole",
    "embedding": "a vector for the text",
    "logits": "a score for each label",
    "probabilities": "of the labels, or guesses (0 for those that are empty)",
    "labels": "those that apply, whose probability is over their threshold, then empty ones; as "
    "many as the text with most of all that are answered together has",
    "num_labels": "how many of `labels` are not empty",
    "num_spans": "how many spans the text has; what follows is empty or 0",
    "span_texts": "the spans of the text in their order; as many columns as the text with most of "
    "all that are answered together has",
    "span_types": "what they are",
    "span_starts": "their first characters in the text, counted from 0, and not in bytes",
    "span_ends": "the characters after their last",
    "span_scores": "the mean probability of the tags of their words",
    "tags": "the likeliest tag of each piece; empty for padding",
    "num_layers": "how many layers ran until the answer was sure",
    "label": "the likeliest label",
    "choice": "the likeliest of the labels of the options",
    "value": "a number",
    "classes": "the labels, in the order of their probabilities",
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
_SERIALIZED = "inputs"  # the input of serialised examples
_NUM_SHOWN = 8  # token ids of an example

# For a server: the file without its comments.
_BATCHING = resources.files("albert_tf").joinpath("serving/batching.config").read_text("utf-8")
BATCHING = re.sub("^#.*\n", "", _BATCHING, flags=re.MULTILINE)
_NO_PADDING = """\
Padding is skipped: a batch costs what its pieces cost, so that short and long texts
may be answered together, and token ids may be padded to any length.
"""
_CARD = """\
# {title}

An ALBERT that {model.kind.description}, for TensorFlow Serving.
Made from `{source}`{scores}: {config.num_hidden_layers} layers of {config.hidden_size}, \
vocabulary {config.vocab_size}, {model.options.dtype} weights.
It reads {longest} pieces at once{cuts}.
{notes}
`assets/` holds the config, the vocabulary and the labels; `assets.extra/` a request for each
signature, with which the server warms up. `sha256.json` has the hashes of all files, which this
project checks before it loads them, and servers do not. After a copy, in this folder:

    sed -n 's/^  "\\(.*\\)": "\\(.*\\)",*$/\\2  \\1/p' sha256.json | sha256sum --check --quiet

## Start a server

In this folder, or in a copy of it:

    {docker}

To have TensorFlow Serving answer requests together that come at once, write this to a file
`batching.config`, put
`-v "$PWD/batching.config:/batching.config"` before the name of the image, and
`--enable_batching=true --batching_parameters_file=/batching.config` after it:

```
{batching}```

A batch is filled up with copies of a row, which change nothing. `pad_variable_length_inputs` must
stay false: the server would pad `input_mask` with its first number, 1. The graph pads texts itself;
token ids must have one length in all requests, padded by the client with `input_mask` 0.
{padding}
A batch is refused as a whole, so that one client's bad token ids or long text are an error for all
whose requests came at once: check them before, or serve them without batching. A request of more
rows than `max_batch_size` is refused, too.

## Requests

`?` is any number; the first, that of rows, is the same for all inputs of a request. What does not
fit, or holds ids outside the vocabulary, is refused with INVALID_ARGUMENT and a sentence.

{limits}
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


def write(
    model: ExportedModel,
    signatures: Mapping[str, Signature],
    functions: Mapping[str, ConcreteFunction],
    target: str,
    folder: str,
) -> None:
    """Writes the card into `folder`, where the SavedModel is now; `target` is its final place.

    `functions` are the signatures, traced.
    """
    versions = os.path.dirname(target)
    title = serving_api.make_model_name(versions)
    name = next(iter(signatures))
    config, options = model.config, model.options
    longest = options.run_config.max_seq_length if options.text else config.max_position_embeddings
    notes = ""
    if options.labels:
        notes += f"\nLabels, in the order of their ids: {', '.join(options.labels)}.\n"
    if options.null_threshold is not None and options.text:
        threshold = f"{options.null_threshold:g}"
        notes += f"\nThe threshold of `null_odds`, above which there is no answer: {threshold}.\n"
    if options.thresholds:
        thresholds = ", ".join(f"{name} {x:.4g}" for name, x in options.thresholds.items())
        notes += f"\nThe thresholds of probabilities, above which a label applies: {thresholds}.\n"
    run = options.run_config
    if "num_layers" in functions[name].structured_outputs:
        notes += f"\nPatience is {run.exit_patience}: the layers are left when that many heads in "
        notes += "a row agree with\nthe one before. An answer does not depend on the other rows "
        notes += "of a request.\n"
        notes += _describe_exits(options.exits) if options.exits else ""
    padding = ""
    if not getattr(model.network, "reads_padding", False):
        padding = _NO_PADDING
    limits = ""
    if options.text:
        limits += f"A text of more than {options.max_text_bytes} bytes in UTF-8 is refused, too.\n"
    text = _CARD.format(
        title=title,
        docker=make_docker_command(versions, '"$(dirname "$PWD")"'),
        model=model,
        source=hub.name_for_card(model.source),
        scores=f" ({model.scores})" if model.scores else "",
        config=config,
        longest=longest,
        cuts=model.kind.cut if options.text else "",
        notes=notes,
        limits=limits,
        padding=padding,
        signatures=_describe_signatures(title, signatures, functions),
        batching=BATCHING,
        signature=name,
        grpc="\n".join(_set_input(*item) for item in signatures[name].example.items()),
    )
    files.write_bytes(os.path.join(folder, NAME), text.encode())


def _describe_exits(curve: Sequence[Mapping[str, float]]) -> str:
    """Returns what each patience takes and scores."""
    numbers = [[f"{x:.4g}" for x in row.values()] for row in curve]
    rows = [[*curve[0]], ["---"] * len(curve[0]), *numbers]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return f"Scores are those of dev; the last patience runs all layers.\n\n{table}"


def make_docker_command(folder: str, word: str = "") -> str:
    """Returns the command that serves a folder of versions; a server reads gs://... by itself.

    `word` is what the shell calls a folder on a disk, by default by its absolute path.
    """
    name = serving_api.make_model_name(folder)
    ports = "-p 8500:8500 -p 8501:8501"
    run = f"docker run --rm {ports} -e MODEL_NAME={name} -e {PACKS_ONCE}=1 \\\n        "
    image = f"tensorflow/serving:{SERVER}"
    if files.is_remote(folder):
        return f"{run}{image} --model_base_path={shlex.quote(folder)}"
    word = word or shlex.quote(os.path.abspath(folder))
    return f"{run}-v {word}:/models/{name} {image}"


def _describe_signatures(
    title: str, signatures: Mapping[str, Signature], functions: Mapping[str, ConcreteFunction]
) -> str:
    """Returns a section for each signature; the default one has another name, too."""
    sections = []
    for name, signature in signatures.items():
        if name == DEFAULT:
            continue
        also = f", also `{DEFAULT}`" if signature is signatures[DEFAULT] else ""
        verb = signature.method.rpartition("/")[-1]
        table = _describe_tensors(signature, functions[name])
        body = _make_rest_body(name, signatures).replace("'", r"'\''")
        url = f"http://localhost:8501/v1/models/{title}:{verb}"
        curl = f"    curl -d '{body}' \\\n        {url}"
        sections += [f"### `{name}`{also} ({verb})", "", *table, "", curl, ""]
    return "\n".join(sections)


def _describe_tensors(signature: Signature, function: ConcreteFunction) -> list[str]:
    """Returns the table of what a signature takes, and of what the function gives."""
    sides = (("in", signature.inputs), ("out", function.structured_outputs))
    rows = [
        f"| {side} | `{key}` | {_describe_type(spec)} | {MEANINGS[key]} |"
        for side, specs in sides
        for key, spec in sorted(specs.items())
    ]
    return ["| | name | type | what |", "|---|---|---|---|", *rows]


def _describe_type(spec: tf.TensorSpec) -> str:
    axes = ", ".join("?" if size is None else str(size) for size in spec.shape)
    return f"{spec.dtype.name} [{axes}]"


def _make_rest_body(name: str, signatures: Mapping[str, Signature]) -> str:
    """Returns the JSON of a request by REST to a signature."""
    signature = signatures[name]
    body: dict[str, Any]
    if _SERIALIZED not in signature.inputs:
        body = {"inputs": {key: _to_list(value) for key, value in signature.example.items()}}
    else:
        example = _make_example(signatures)
        content = base64.b64encode(features.to_example(example)).decode()
        body = {"inputs": {_SERIALIZED: [{"b64": content}]}}
        if signature.method != PREDICT:
            body = {"examples": [example]}
    return json.dumps({"signature_name": name, **body}, ensure_ascii=False)


def _make_example(signatures: Mapping[str, Signature]) -> dict[str, list[int]]:
    ids = signatures[TOKEN_IDS].example
    return {key: tf.nest.flatten(_to_list(x)) for key, x in ids.items()}


def _to_list(value: tf.Tensor) -> list:
    """Returns an input as JSON has it, long ids cut short."""
    return tf.nest.map_structure(
        lambda x: x.decode() if isinstance(x, bytes) else x, _shorten(value).numpy().tolist()
    )


def _shorten(value: tf.Tensor) -> tf.Tensor:
    return value if value.dtype == tf.string else value[..., :_NUM_SHOWN]


def _set_input(name: str, value: tf.Tensor) -> str:
    """Returns the line of Python that sets an input of a request by gRPC."""
    dtype = "" if value.dtype == tf.string else ', "int32"'
    tensor = f"tf.make_tensor_proto({_to_list(value)!r}{dtype})"
    return f'request.inputs["{name}"].CopyFrom(\n    {tensor}\n)'
