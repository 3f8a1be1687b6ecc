"""A model for LiteRT (TensorFlow Lite), which runs on phones and small boards: one file.

It takes token ids, one request at a time, all of one length: so the file holds no operation of
another length, and all of its memory is known before. Text needs operations that LiteRT lacks, and
so does refusing ids that do not fit.
"""

import tempfile
from collections.abc import Mapping

import tensorflow as tf

from albert_tf.records import features
from export import saved_model
from export.export_source import Source
from export.requests.serving_signature import Signature
from export.requests.token_ids import Tensors
from export.signatures import TOKEN_IDS

# Positions of [MASK] in a request of fill_mask; those that are not needed are 0.
PREDICTIONS = 8
# What the matrices are stored as: optimizations of the converter, and the types it may store.
# Of `dynamic` the products are of integers, too; of `float16` they are of float32.
QUANTIZATIONS: Mapping[str, tuple[list, list]] = {
    "none": ([], []),
    "dynamic": ([tf.lite.Optimize.DEFAULT], []),
    "float16": ([tf.lite.Optimize.DEFAULT], [tf.float16]),
}


def convert(source: Source, quantize: str = "none") -> bytes:
    """The content of a .tflite file.

    Its signature `token_ids` has the inputs of the SavedModel's, int32 [1, S] (of C choices
    [1, C, S]; `masked_lm_positions` [1, PREDICTIONS]) with S the run's `max_seq_length`, and its
    outputs but those of strings: of `label` or `choice` there are the probabilities.

    Args:
        source: the model.
        quantize: a key of `QUANTIZATIONS`.
    """

    def answer(batch: Mapping[str, tf.Tensor]) -> Tensors:
        outputs = source.kind.answer(source.network, batch, source.options)
        return {name: x for name, x in outputs.items() if x.dtype != tf.string}

    with tempfile.TemporaryDirectory() as folder:
        saved_model.save(source, {TOKEN_IDS: Signature(_specs(source), answer, {})}, folder)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[TOKEN_IDS])
        optimizations, types = QUANTIZATIONS[quantize]
        converter.optimizations = optimizations
        converter.target_spec.supported_types = types
        return converter.convert()


def _specs(source: Source) -> dict[str, tf.TensorSpec]:
    length = source.options.settings.max_seq_length
    choices = [len(source.options.labels)] if source.kind.rank == 3 else []
    shapes = {features.MASKED_LM_POSITIONS: [1, PREDICTIONS]}
    return {
        name: tf.TensorSpec(shapes.get(name, [1, *choices, length]), tf.int32, name)
        for name in source.inputs
    }
