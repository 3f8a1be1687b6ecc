"""What TensorFlow writes into a module that jax does not know."""

from jax._src.lib.mlir import ir


def drop_copies(module: ir.Module) -> None:
    """TensorFlow copies new state out by an operation that is none of StableHLO's."""
    copies = []

    def note(operation: ir.Operation) -> ir.WalkResult:
        if operation.name == "mhlo.copy":
            copies.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for copy in copies:
        copy.results[0].replace_all_uses_with(copy.operands[0])
        copy.erase()
