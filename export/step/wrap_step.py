"""Wraps a lowered step as a `jax.export` artifact, which any program with jax can load.

    python export/step/wrap_step.py step.mlir step.json cuda step.cuda.jaxexport

Runs with jax, without TensorFlow; see `artifact.py`. Newer versions of jax can also load it: it
has the oldest module version that jax writes.
"""

import dataclasses
import json
import os
import pathlib
import sys

os.environ["JAX_PLATFORMS"] = "cpu"  # set before jax is imported; nothing runs here

import jax
from jax import numpy as jnp
from jax._src import core
from jax._src.export import _export
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import hlo

CALLING_CONVENTION = 10


def main() -> None:
    module, description, platform, artifact = sys.argv[1:]
    described = json.loads(pathlib.Path(description).read_text())
    with jax.enable_x64(True):
        wrapped = wrap(portable(pathlib.Path(module).read_bytes()), described, platform)
        pathlib.Path(artifact).write_bytes(bytes(wrapped.serialize()))


def portable(module: bytes) -> bytes:
    """Serializes the module in the stable form that jax uses for its own functions."""
    context = mlir.make_ir_context()
    with context:
        parsed = ir.Module.parse(module)
        # Without source locations, which are most of the text.
        parsed = ir.Module.parse(parsed.operation.get_asm(enable_debug_info=False))
        _drop_copies(parsed)
        attributes = parsed.operation.attributes
        for name in [x if isinstance(x, str) else x.name for x in attributes]:
            if name.startswith("mhlo."):
                del attributes[name]
        one = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1)
        attributes["mhlo.num_partitions"] = attributes["mhlo.num_replicas"] = one
        _strip_donations(parsed)
        requirement = hlo.StablehloCompatibilityRequirement.WEEK_4
        version = hlo.get_version_from_compatibility_requirement(requirement)
        return _jax.mlir.serialize_portable_artifact(mlir.module_to_bytecode(parsed), version)


def _drop_copies(module: ir.Module) -> None:
    """Removes TensorFlow's copy operation for new state, which StableHLO does not have."""
    copies = []

    def note(operation: ir.Operation) -> ir.WalkResult:
        if operation.name == "mhlo.copy":
            copies.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for copy in copies:
        copy.results[0].replace_all_uses_with(copy.operands[0])
        copy.erase()


def _strip_donations(module: ir.Module) -> None:
    """Lets the caller of `main` decide which arguments it donates."""
    functions = [x.operation for x in module.body.operations if x.operation.name == "func.func"]
    names = [ir.StringAttr(x.attributes["sym_name"]).value for x in functions]
    attributes = functions[names.index("main")].attributes
    for name in ("arg_attrs", "res_attrs"):
        if name in attributes:
            del attributes[name]
    attributes["sym_visibility"] = ir.StringAttr.get("public")


def wrap(module: bytes, description: dict, platform: str) -> _export.Exported:
    """Returns what `jax.export.export` would return for a function of a flat list of arrays."""
    inputs, outputs = (
        tuple(core.ShapedArray(tuple(x["shape"]), jnp.dtype(x["dtype"])) for x in description[kind])
        for kind in ("inputs", "outputs")
    )
    fields = {field.name for field in dataclasses.fields(_export.Exported)}
    # jax 0.10 has one more field.
    more = {name: True for name in ("_has_named_shardings",) if name in fields}
    return _export.Exported(
        fun_name="train_step",
        in_tree=jax.tree.structure((tuple(range(len(inputs))), {})),
        in_avals=inputs,
        out_tree=jax.tree.structure(list(range(len(outputs)))),
        out_avals=outputs,
        _in_named_shardings=(None,) * len(inputs),
        _out_named_shardings=(None,) * len(outputs),
        in_shardings_hlo=(None,) * len(inputs),
        out_shardings_hlo=(None,) * len(outputs),
        nr_devices=1,
        platforms=(platform,),
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=(),
        mlir_module_serialized=module,
        calling_convention_version=CALLING_CONVENTION,
        module_kept_var_idx=tuple(range(len(inputs))),
        uses_global_constants=False,
        _get_vjp=None,
        **more,
    )


if __name__ == "__main__":
    main()
