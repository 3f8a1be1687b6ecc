"""Lowers the training step of one replica to StableHLO, which XLA compiles for any machine.

It is `train_step.make_update`, with all-reduces as in TPUStrategy. TensorFlow for CPUs lowers it
like TensorFlow for TPUs, except for random numbers.
"""

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from albert_tf.model import xla
from albert_tf.objectives.all_objectives import OBJECTIVES
from albert_tf.train import train_state, train_step
from albert_tf.train.train_state import TrainState
from albert_tf.train_config import PretrainConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Array:
    """One input or output of the step; names are unique."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lowered:
    """One replica's step; `num_replicas` run it together.

    Attributes:
        module: StableHLO as text; its function is `main`.
        inputs: the inputs of `main`: the batch, then the state: `iterations`, the weights by
            published name, and the moments, `<name>/adam_m` and `<name>/adam_v`.
        outputs: the outputs of `main`: totals of the update, summed over replicas; then new state.
        state: for each output, the input that it is the new value of, or None.
    """

    module: bytes
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    state: tuple[int | None, ...]
    num_replicas: int


def lower(config: PretrainConfig, *, per_replica_batch: int, num_replicas: int) -> Lowered:
    """Traces and lowers the step of a pre-training run. Creates weights for it, but runs nothing.

    `per_replica_batch`, a multiple of `num_micro_batches`, replaces the config's batch
    size. A single replica needs no all-reduce. Masking is not part of the step.
    """
    config = dataclasses.replace(config, train_batch_size=per_replica_batch)
    narrowed = {tf.int64: tf.int32}  # as `features.parse` returns
    total_names: list[str] = []
    with tf.device("CPU:0"), xla.trace_options(compile_pieces=False):
        objective, here = OBJECTIVES[config.sentence_task], tf.distribute.get_strategy()
        state = train_state.make_train_state(config, here, objective)
        specs = [
            tf.TensorSpec([per_replica_batch, *x.shape], narrowed.get(x.dtype, x.dtype), name)
            for name, x in state.features.items()
        ]
        step = _make_step(state, num_replicas, total_names)
        concrete = step.get_concrete_function(*specs)
        module = step.experimental_get_compiler_ir(*specs)(stage="stablehlo")
    inputs, updated = _describe_inputs(state, specs, concrete)
    results = zip(total_names, concrete.structured_outputs, strict=True)
    return Lowered(
        module=module.encode(),
        inputs=inputs,
        outputs=(*(_array(name, x) for name, x in results), *(inputs[k] for k in updated)),
        state=(*([None] * len(total_names)), *updated),
        num_replicas=num_replicas,
    )


def _make_step(state: TrainState, num_replicas: int, total_names: list[str]) -> Any:
    """Returns the step as a function of a flat list of tensors; it fills `total_names`."""
    update = train_step.make_update(state, num_branches=1, num_replicas=num_replicas)

    def reduce(structure: Any) -> Any:
        if num_replicas == 1:
            return structure
        # XLA's all-reduce; its keys only need to be the same on all replicas.
        keys = {"group_size": num_replicas, "group_key": 1, "instance_key": 1}
        merge = {"ordering_token": [], "merge_op": "Add", "final_op": "Id"}
        all_reduce = functools.partial(tf.raw_ops.CollectiveReduceV2, **keys, **merge)
        return tf.nest.map_structure(lambda x: all_reduce(input=x), structure)

    @tf.function(jit_compile=True, autograph=False)
    def step(*tensors):
        batch = dict(zip(state.features, tensors, strict=True))
        replica = 0
        if num_replicas > 1:  # TensorFlow has no public function for this operation
            graph = tf.compat.v1.get_default_graph()
            replica = graph.create_op("XlaReplicaId", [], [tf.int32]).outputs[0]
        totals = reduce(update(batch, replica, reduce))
        total_names[:] = totals
        return list(totals.values())

    return step


def _describe_inputs(state, specs, concrete) -> tuple[tuple[Array, ...], list[int]]:
    """Returns the inputs, and the indices of the updated ones; XLA keeps their order."""
    names = {id(weight.value.handle): weight.path for weight in state.weights}
    names |= {id(slot.handle): name for name, slot in state.optimizer.slots().items()}
    names[id(state.optimizer.iterations.value.handle)] = "iterations"
    variables = {id(variable.handle): variable for variable in concrete.variables}
    inputs, updated = [_array(spec.name, spec) for spec in specs], []
    for handle in map(id, concrete.captured_inputs):
        if handle in names:
            updated.append(len(inputs))
        variable = variables[handle]  # a KeyError would mean a captured constant: a bug
        inputs.append(_array(names.get(handle, variable.name), variable))
    return tuple(inputs), updated


def _array(name: str, tensor: Any) -> Array:
    return Array(name=name, shape=tuple(tensor.shape), dtype=tensor.dtype.name)
