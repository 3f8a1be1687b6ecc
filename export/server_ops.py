"""Which model server runs a SavedModel: its operations against those that servers are linked with.

The official servers hold TensorFlow's operations and those of one version of tensorflow-text: 2.8
has those of 2.6.0, 2.10 of 2.7.3, 2.11 of 2.8.2, 2.12 of 2.12.1, 2.20 of 2.20.0. TensorFlow 2.12
with that tensorflow-text answers what is exported here (bench/old_tensorflow.py, docs/results.md);
older servers were not tried.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from albert_tf import files
from albert_tf.errors import UserError

Version = tuple[int, int]

# The oldest server for which text is exported.
OLDEST: Version = (2, 12)
# Operations of tensorflow-text -> the oldest server that has it. Others are taken for missing.
SINCE: Mapping[str, Version] = {
    **dict.fromkeys(
        (
            "SentencepieceOp",
            "SentencepieceTokenizeOp",
            "SentencepieceTokenizeWithOffsetsOp",
            "SentencepieceDetokenizeOp",
            "SentencepieceIdToStringOp",
            "SentencepieceStringToIdOp",
            "SentencepieceVocabSizeOp",
            "NormalizeUTF8",
            "CaseFoldUTF8",
        ),
        (2, 8),
    ),
    "TFText>FastSentencepieceTokenize": (2, 12),
    "TFText>FastSentencepieceDetokenize": (2, 12),
    "FastWordpieceTokenizeWithOffsets": (2, 12),
    "TFText>RoundRobinTrim": (2, 20),
    "TFText>RoundRobinGenerateMasks": (2, 20),
}
# What TensorFlow 2.21 has and 2.12 lacks, `dir(tf.raw_ops)` of the two compared; of operations
# for TPUs and their embeddings the beginnings.
NEWER = frozenset(
    [
        "CheckPinned",
        "CollectiveAllToAllV2",
        "Conv",
        "DatasetFingerprint",
        "DebugIdentityV3",
        "DecodeJxl",
        "DecodeWebP",
        "EmptyTensorMap",
        "FFTND",
        "FileSystemSetConfiguration",
        "GlobalIterId",
        "GlobalShuffleDataset",
        "IFFTND",
        "IRFFTND",
        "IndexFlatMapDataset",
        "IteratorGetModelProto",
        "KMC2ChainInitialization",
        "KmeansPlusPlusInitialization",
        "ListSnapshotChunksDataset",
        "NearestNeighbors",
        "RFFTND",
        "RaggedFillEmptyRows",
        "RaggedFillEmptyRowsGrad",
        "SegmentMaxV2",
        "SegmentMinV2",
        "SnapshotChunkDataset",
        "SparseSegmentMeanGradV2",
        "SparseSegmentSqrtNGradV2",
        "SparseSegmentSumGradV2",
        "TFRecordDatasetV2",
        "TensorMapErase",
        "TensorMapHasKey",
        "TensorMapInsert",
        "TensorMapLookup",
        "TensorMapSize",
        "TensorMapStackKeys",
        "WeightedFlatMapDataset",
    ]
)
NEWER_BEGINNINGS = (
    "ConvertTo",
    "DynamicEnqueueTPU",
    "GetMinibatch",
    "GetStatsFrom",
    "SortListOf",
    "StoreMinibatch",
    "TPUAnnotate",
    "TPUCopy",
    "TPUDummy",
    "XlaSparse",
)


def _ops(graph: Any) -> set[str]:
    """The operations of a GraphDef and its functions."""
    functions = {function.signature.name for function in graph.library.function}
    return {node.op for node in _nodes(graph)} - functions


def custom_ops(graph: Any) -> set[str]:
    """The operations of a GraphDef and its functions that TensorFlow itself lacks."""
    return {op for op in _ops(graph) if not op.startswith("_") and not hasattr(tf.raw_ops, op)}


def new_ops(graph: Any) -> set[str]:
    """The operations of a GraphDef and its functions that TensorFlow has, but not 2.12."""
    return {op for op in _ops(graph) if op in NEWER or op.startswith(NEWER_BEGINNINGS)}


def _nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def check(directory: str, oldest: Version = OLDEST) -> set[str]:
    """Checks that servers from `oldest` on, 2.12 or later, have the operations of a SavedModel.

    Returns:
        Those that are not TensorFlow's own.

    Raises:
        UserError: they lack some.
    """
    content = files.read_bytes(os.path.join(directory, "saved_model.pb"), "SavedModel")
    model = saved_model_pb2.SavedModel.FromString(content)
    graphs = [meta.graph_def for meta in model.meta_graphs]
    custom = set().union(*map(custom_ops, graphs))
    never: Version = (10**6, 0)
    missing = {op for op in custom if SINCE.get(op, never) > oldest}
    if oldest <= OLDEST:
        missing |= set().union(*map(new_ops, graphs))
    if missing:
        raise UserError(
            f"{directory}: servers of version {oldest[0]}.{oldest[1]} lack "
            f"{', '.join(sorted(missing))}. Export with --text=false."
        )
    return custom
