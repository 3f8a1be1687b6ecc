"""Checks the operations of a SavedModel against those of the official model servers.

Servers hold TensorFlow's operations and those of one version of tensorflow-text: 2.8 has those of
2.6.0, 2.10 of 2.7.3, 2.11 of 2.8.2, 2.12 of 2.12.1, 2.20 of 2.20.0. TensorFlow 2.12 with that
tensorflow-text answers exported models alike (tests/fixtures/old_tensorflow.py); older
servers were not tried.
"""

import os
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf import files
from albert_tf.errors import UserError

Version = tuple[int, int]

# The oldest server for which text is exported.
OLDEST: Version = (2, 12)
# {operation of tensorflow-text: the oldest server that has it}. Others are taken for missing.
SINCE: Mapping[str, Version] = {
    "SentencepieceOp": (2, 8),
    "SentencepieceTokenizeOp": (2, 8),
    "SentencepieceTokenizeWithOffsetsOp": (2, 8),
    "SentencepieceDetokenizeOp": (2, 8),
    "SentencepieceIdToStringOp": (2, 8),
    "SentencepieceStringToIdOp": (2, 8),
    "SentencepieceVocabSizeOp": (2, 8),
    "NormalizeUTF8": (2, 8),
    "CaseFoldUTF8": (2, 8),
    "TFText>FastSentencepieceTokenize": (2, 12),
    "TFText>FastSentencepieceDetokenize": (2, 12),
    "FastWordpieceTokenizeWithOffsets": (2, 12),
    "TFText>RoundRobinTrim": (2, 20),
    "TFText>RoundRobinGenerateMasks": (2, 20),
}
# Operations that TensorFlow 2.21 has and 2.12 lacks, by comparison of `dir(tf.raw_ops)`; of those
# for TPUs and their embeddings the beginnings.
NEWER = frozenset(
    (
        *("CheckPinned", "CollectiveAllToAllV2", "Conv", "DatasetFingerprint", "DebugIdentityV3"),
        *("DecodeJxl", "DecodeWebP", "EmptyTensorMap", "FFTND", "FileSystemSetConfiguration"),
        *("GlobalIterId", "GlobalShuffleDataset", "IFFTND", "IRFFTND", "IndexFlatMapDataset"),
        *("IteratorGetModelProto", "KMC2ChainInitialization", "KmeansPlusPlusInitialization"),
        *("ListSnapshotChunksDataset", "NearestNeighbors", "RFFTND", "RaggedFillEmptyRows"),
        *("RaggedFillEmptyRowsGrad", "SegmentMaxV2", "SegmentMinV2", "SnapshotChunkDataset"),
        *("SparseSegmentMeanGradV2", "SparseSegmentSqrtNGradV2", "SparseSegmentSumGradV2"),
        *("TFRecordDatasetV2", "TensorMapErase", "TensorMapHasKey", "TensorMapInsert"),
        *("TensorMapLookup", "TensorMapSize", "TensorMapStackKeys", "WeightedFlatMapDataset"),
    )
)
NEWER_BEGINNINGS = (
    *("ConvertTo", "DynamicEnqueueTPU", "GetMinibatch", "GetStatsFrom", "SortListOf"),
    *("StoreMinibatch", "TPUAnnotate", "TPUCopy", "TPUDummy", "XlaSparse"),
)


def check(directory: str, oldest: Version = OLDEST) -> set[str]:
    """Checks that servers from `oldest` on, 2.12 or later, have the operations of a SavedModel.

    Returns:
        Those that are not TensorFlow's own.

    Raises `UserError` if servers lack some.
    """
    content = files.read_bytes(os.path.join(directory, "saved_model.pb"), "SavedModel")
    model = saved_model_pb2.SavedModel.FromString(content)
    ops = set().union(*(list_ops(meta.graph_def) for meta in model.meta_graphs))
    custom = select_custom(ops)
    missing = {op for op in custom if op not in SINCE or SINCE[op] > oldest}
    if oldest <= OLDEST:
        missing |= {op for op in ops if op in NEWER or op.startswith(NEWER_BEGINNINGS)}
    if missing:
        raise UserError(
            f"{directory}: servers of version {oldest[0]}.{oldest[1]} lack "
            f"{', '.join(sorted(missing))}. Export with --text=false."
        )
    return custom


def list_ops(graph: Any) -> set[str]:
    """Returns the operations of a GraphDef and its functions."""
    functions = graph.library.function
    nodes = [*graph.node, *(node for function in functions for node in function.node_def)]
    return {node.op for node in nodes} - {function.signature.name for function in functions}


def select_custom(ops: set[str]) -> set[str]:
    """Returns the operations that TensorFlow itself lacks."""
    return {op for op in ops if not op.startswith("_") and not hasattr(tf.raw_ops, op)}
