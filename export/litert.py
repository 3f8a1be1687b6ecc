"""Converts a model to one file for LiteRT (TensorFlow Lite), which runs on phones and small boards.

It takes token ids, one request of one length, so that all memory is planned before. Text needs
operations that LiteRT lacks, and so do the checks of ids.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from albert_tf import files
from albert_tf.export import saved_model
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.requests.token_ids import Tensors
from albert_tf.export.serving_api import TOKEN_IDS, Signature
from albert_tf.model import xla
from albert_tf.records import features, model_inputs

# Positions of [MASK] in a request of fill_mask; positions that are not needed are 0.
PREDICTIONS = 8
# Storage of the matrices: optimizations of the converter, and the types it may store. `dynamic`
# multiplies integers, too; `float16` multiplies float32.
QUANTIZATIONS: Mapping[str, tuple[list, list]] = {
    "none": ([], []),
    "dynamic": ([tf.lite.Optimize.DEFAULT], []),
    "float16": ([tf.lite.Optimize.DEFAULT], [tf.float16]),
}


def convert(model: ExportedModel, quantize: str = "none") -> bytes:
    """Returns the content of a .tflite file.

    Its signature `token_ids` has the inputs of the SavedModel's, int32 [1, S] (of C choices
    [1, C, S]; `masked_lm_positions` [1, PREDICTIONS]) with S the run's `max_seq_length`, and its
    outputs but those of strings: of `label` or `choice` there are the probabilities.
    Numbers are NaN where `input_mask` begins with 0. `quantize` is a key of `QUANTIZATIONS`.
    """
    shape = model.shape_ids(1, model.options.run_config.max_seq_length)
    shapes = {features.MASKED_LM_POSITIONS: [1, PREDICTIONS]}
    specs = {name: tf.TensorSpec(shapes.get(name, shape), tf.int32, name) for name in model.inputs}

    def compute(ids: Mapping[str, tf.Tensor]) -> Tensors:
        outputs = model.compute_outputs(ids)
        # LiteRT has no op that refuses a request.
        is_right = model_inputs.is_padded_right(ids[features.INPUT_MASK])
        return {
            name: tf.where(is_right, x, np.nan) if x.dtype.is_floating else x
            for name, x in outputs.items()
            if x.dtype != tf.string
        }

    making = files.making_temporary_folder("albert-litert")
    with making as folder, xla.trace_options(static_shapes=True):
        saved_model.save(model, {TOKEN_IDS: Signature(specs, compute, {})}, folder)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[TOKEN_IDS])
        converter.optimizations, converter.target_spec.supported_types = QUANTIZATIONS[quantize]
        return converter.convert()
