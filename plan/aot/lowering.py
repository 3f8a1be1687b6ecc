"""The training step of one replica as a module of StableHLO: what XLA compiles for any machine.

It is the function that the training loop runs (`train_step.make_update`), with the model, losses
and optimizer of the run. All-reduces stand in it as they do for TPUStrategy. TensorFlow for
CPUs lowers it; TensorFlow for TPUs lowers the same operations except random numbers, which
`jax_side/rewrites.py` replaces.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from albert_tf.model import xla
from albert_tf.pipelines import pretraining
from albert_tf.train import train_step
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import PretrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """One input or output of the step, by a name that no other has."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lowered:
    """A step of one replica.

    Attributes:
        module: StableHLO as text; its function is `main`.
        inputs: of `main`: the batch, then the state: `iterations`, the weights by their published
            names, and the moments, `<name>/adam_m` and `<name>/adam_v`.
        outputs: of `main`: what an update tells, summed over the replicas; then new state.
        state: for each output, which input it is the new value of; None if of none.
        num_replicas: how many run it together.
    """

    module: bytes
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    state: tuple[int | None, ...]
    num_replicas: int


def lower(settings: PretrainConfig, *, per_replica_batch: int, num_replicas: int) -> Lowered:
    """Traces and lowers the step of a pre-training run. Weights are made for it, but nothing runs.

    Args:
        settings: of the run; its own batch size is not looked at.
        per_replica_batch: sequences of one replica, a multiple of `num_micro_batches`.
        num_replicas: how many sum their gradients; 1 has no all-reduce.
    """
    settings = dataclasses.replace(settings, train_batch_size=per_replica_batch)
    with tf.device("CPU:0"), xla.trace_options(compile_pieces=False):
        state = pretraining.make_train_state(settings, tf.distribute.get_strategy())
        specs = [
            tf.TensorSpec([per_replica_batch, *kind.shape], _narrowed(kind.dtype), name)
            for name, kind in state.features.items()
        ]
        told: list[str] = []
        step = _make_step(state, num_replicas, told)
        concrete = step.get_concrete_function(*specs)
        module = step.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    return _describe(state, specs, concrete, told, module.encode(), num_replicas)


def _narrowed(dtype: tf.DType) -> tf.DType:
    """The type that a feature has in a batch: `features.parse` does this to its values."""
    return tf.int32 if dtype == tf.int64 else dtype


def _make_step(state: TrainState, num_replicas: int, told: list[str]) -> Any:
    """The step as a function of a flat list of tensors; writes its results' names to `told`."""
    update = train_step.make_update(state, num_branches=1, num_replicas=num_replicas)

    def reduce(structure: Any) -> Any:
        if num_replicas == 1:
            return structure
        return tf.nest.map_structure(lambda x: _sum_over_replicas(x, num_replicas), structure)

    @tf.function(jit_compile=True, autograph=False)
    def step(*tensors):
        batch = dict(zip(state.features, tensors, strict=True))
        done = reduce(update(batch, _replica() if num_replicas > 1 else 0, reduce))
        told[:] = done
        return list(done.values())

    return step


def _sum_over_replicas(x: tf.Tensor, num_replicas: int) -> tf.Tensor:
    """The all-reduce that XLA knows; the keys only have to be the same on all replicas."""
    return tf.raw_ops.CollectiveReduceV2(
        input=x,
        group_size=num_replicas,
        group_key=1,
        instance_key=1,
        ordering_token=[],
        merge_op="Add",
        final_op="Id",
    )


def _replica() -> tf.Tensor:
    """The number of the replica. TensorFlow has the operation, but no public function for it."""
    graph = tf.compat.v1.get_default_graph()
    return graph.create_op("XlaReplicaId", [], [tf.int32]).outputs[0]


def _describe(state, specs, concrete, told, module, num_replicas) -> Lowered:
    """Names what goes in and comes out: XLA keeps the order of the arguments and captures."""
    variables = {id(weight.value.handle): weight.path for weight in state.weights}
    variables |= {id(slot.handle): name for name, slot in state.optimizer.slots().items()}
    iterations = state.optimizer.iterations.value
    variables[id(iterations.handle)] = "iterations"
    by_handle = {id(variable.handle): variable for variable in concrete.variables}
    batch = [_array(spec.name, spec) for spec in specs]
    captured = []
    for handle in concrete.captured_inputs:
        variable = by_handle[id(handle)]  # a constant among the captures would be a mistake of ours
        captured.append(_array(variables.get(id(handle), variable.name), variable))
    updated = [
        len(batch) + k
        for k, handle in enumerate(concrete.captured_inputs)
        if id(handle) in variables
    ]
    inputs = tuple(batch + captured)
    results = [_array(n, x) for n, x in zip(told, concrete.structured_outputs, strict=True)]
    return Lowered(
        module=module,
        inputs=inputs,
        outputs=(*results, *(inputs[k] for k in updated)),
        state=(*([None] * len(results)), *updated),
        num_replicas=num_replicas,
    )


def _array(name: str, tensor: Any) -> Array:
    return Array(name=name, shape=tuple(tensor.shape), dtype=tensor.dtype.name)
