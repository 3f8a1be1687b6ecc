"""Rewrites a module that TensorFlow for CPUs lowered, for jax and for TPUs."""

import math

from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo

# The operation for draws whose generator TensorFlow chooses (`albert_tf/model/ops.py`). Keys come
# from another operation, Philox on all machines, and have up to four words.
CHOSEN = "StatelessRandomUniformV2"
KEY_WORDS = 4


def _list_operations(module: ir.Module, name: str) -> list[ir.Operation]:
    operations = []

    def note(operation: ir.Operation) -> ir.WalkResult:
        if operation.name == name:
            operations.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    return operations


def draw_as_tpus(module: ir.Module) -> None:
    """Uses the TPU's own generator where TensorFlow may choose one.

    On CPUs and GPUs it chooses Philox, with a state [3] (a key, two for a counter); on TPUs
    RNG_DEFAULT, with the first two (tensorflow-tpu 2.20.0, lowered for "TPU").

    Raises:
        ValueError: Philox would still draw something other than keys.
    """
    for operation in _list_operations(module, "stablehlo.rng_bit_generator"):
        if CHOSEN not in str(operation.location):
            if math.prod(ir.RankedTensorType(operation.results[1].type).shape) > KEY_WORDS:
                raise ValueError(f"not drawn by {CHOSEN}: {operation}")
            continue
        old_state, bits = operation.results
        with ir.InsertionPoint(operation), operation.location:
            state = _slice(operation.operands[0], 2)
            algorithm = hlo.RngAlgorithmAttr.get("DEFAULT")
            new = hlo.RngBitGeneratorOp(state.type, bits.type, algorithm, state)
            # The new state is not used, but some operations still unpack it.
            widened = hlo.concatenate([new.results[0], _slice(new.results[0], 1)], 0)
        old_state.replace_all_uses_with(widened)
        bits.replace_all_uses_with(new.results[1])
        operation.erase()


def _slice(vector: ir.Value, limit: int) -> ir.Value:
    """Returns the first numbers of a vector."""
    return hlo.slice(vector, *(ir.DenseI64ArrayAttr.get([x]) for x in (0, limit, 1)))


def drop_copies(module: ir.Module) -> None:
    """Removes TensorFlow's copy operation for new state, which StableHLO does not have."""
    for copy in _list_operations(module, "mhlo.copy"):
        copy.results[0].replace_all_uses_with(copy.operands[0])
        copy.erase()
