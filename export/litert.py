"""Converts a model to one file for LiteRT (TensorFlow Lite), which runs on phones and small boards.

Its input is token ids, one request of a fixed length, so that memory is planned in advance. Text
and checks of ids need operations that LiteRT lacks. A card is written next to the file.
"""

import os
import tempfile
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf import files, markdown
from albert_tf.export import model_card, saved_model
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.requests.token_ids import Tensors
from albert_tf.export.serving_api import TOKEN_IDS, Signature
from albert_tf.model import xla
from albert_tf.records import features, model_inputs

# Positions of [MASK] in a fill_mask request; unused positions are 0.
PREDICTIONS = 8
# How matrices are stored: the converter's optimizations, and the types that it may store. `dynamic`
# also multiplies integers; `float16` multiplies float32.
QUANTIZATIONS: Mapping[str, tuple[list, list]] = {
    "none": ([], []),
    "dynamic": ([tf.lite.Optimize.DEFAULT], []),
    "float16": ([tf.lite.Optimize.DEFAULT], [tf.float16]),
}
_USE = """\
import numpy as np
from ai_edge_litert.interpreter import Interpreter  # or tf.lite.Interpreter

answer = Interpreter("{title}").get_signature_runner("{signature}")
inputs = {{name: np.zeros(x["shape"], "int32") for name, x in answer.get_input_details().items()}}
inputs["input_ids"][..., :3] = [2, 13, 3]  # [CLS], a token, [SEP]
inputs["input_mask"][..., :3] = 1
print(answer(**inputs))"""


def write(model: ExportedModel, content: bytes, path: str, note: str = "") -> None:
    """Writes the content of a file, and its card with the note as `path`.md."""
    answer, title = open_file(content).get_signature_runner(TOKEN_IDS), os.path.basename(path)
    sides = {"in": answer.get_input_details(), "out": answer.get_output_details()}
    order = sorted(sides["in"], key=lambda name: sides["in"][name]["index"])
    tensors = model_card.list_tensors(
        (side, name, f"{np.dtype(x['dtype'])} {x['shape'].tolist()}")
        for side, details in sides.items()
        for name, x in details.items()
    )
    form = f"for LiteRT (TensorFlow Lite), {len(content) / 1e6:.2f} MB"
    sections = [
        *model_card.introduce(title, model, form),
        note,
        "Its inputs are the token ids of one request, padded to the length below. Tokenize with "
        "the\nvocabulary of the checkpoint. **Pass the inputs by name.** In the file their order "
        f"is {', '.join(f'`{x}`' for x in order)};\nany other order gives wrong answers without an "
        "error.",
        tensors,
        markdown.code(_USE.format(title=title, signature=TOKEN_IDS), "python"),
    ]
    markdown.write(f"{path}.md", sections)
    files.write_bytes(path, content)


def run(content: bytes, records: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the outputs of a file for rows of ids, [N, ...] each, one row at a time.

    The value of regression is `logits` [N, 1], as in the network.
    """
    answer = open_file(content).get_signature_runner(TOKEN_IDS)
    names = answer.get_input_details()
    rows = [
        answer(**{name: records[name][row, np.newaxis] for name in names})
        for row in range(len(records[features.INPUT_IDS]))
    ]
    outputs = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    if "value" in outputs:
        outputs["logits"] = outputs.pop("value")[:, np.newaxis]
    return outputs


def open_file(content: bytes) -> Any:
    """Returns the interpreter for a file."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # about ai-edge-litert, which has the same code
        return tf.lite.Interpreter(model_content=content)


def convert(
    model: ExportedModel, quantize: str = "none", *, outputs: Collection[str] = ()
) -> bytes:
    """Returns the content of a .tflite file.

    Its signature `token_ids` has the SavedModel's inputs, int32 [1, S] ([1, C, S] for C choices;
    `masked_lm_positions` [1, PREDICTIONS]) with S the run's `max_seq_length`, and its outputs
    except strings: instead of `label` and `choice`, there are the probabilities. Numbers are NaN
    if `input_mask` starts with 0. `quantize` is a key of `QUANTIZATIONS`. `outputs`, if given,
    lists the only outputs.
    """
    shape = model.shape_ids(1, model.options.run_config.max_seq_length)
    shapes = {features.MASKED_LM_POSITIONS: [1, PREDICTIONS]}
    specs = {name: tf.TensorSpec(shapes.get(name, shape), tf.int32, name) for name in model.inputs}

    def compute(ids: Mapping[str, tf.Tensor]) -> Tensors:
        computed = model.compute_outputs(ids)
        # LiteRT has no op that can refuse a request.
        is_right = model_inputs.is_padded_right(ids[features.INPUT_MASK])
        return {
            name: tf.where(is_right, x, np.nan) if x.dtype.is_floating else x
            for name, x in computed.items()
            if (name in outputs if outputs else x.dtype != tf.string)
        }

    making = tempfile.TemporaryDirectory(prefix="albert-litert-")
    with making as folder, xla.trace_options(static_shapes=True):
        saved_model.save(model, {TOKEN_IDS: Signature(specs, compute, {})}, folder)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[TOKEN_IDS])
        converter.optimizations, converter.target_spec.supported_types = QUANTIZATIONS[quantize]
        return converter.convert()
