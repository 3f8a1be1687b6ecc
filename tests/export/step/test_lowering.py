"""The step that is planned is the step that is trained: same model, same state, nothing less."""

import math
import re

import pytest
import tensorflow as tf
import tiny_run

from albert_tf.export.step import lowering
from albert_tf.model import albert_model, weight_names
from albert_tf.objectives.all_objectives import OBJECTIVES
from albert_tf.plan import costs
from albert_tf.train import train_state

BATCH = 6
DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
ALBERT = tiny_run.albert(inner_group_num=2, **DROPOUT)
HALF = {"dtype": "mixed_bfloat16"}
ALONE = tiny_run.settings(albert=ALBERT, rematerialize=True, bias_correction=True, **HALF)


EIGHT = pytest.mark.full  # takes as long again to lower
EVERY_STEP = pytest.mark.parametrize("name", ["alone", pytest.param("eight_replicas", marks=EIGHT)])
# What lowers without a word and runs badly on a TPU.
FORBIDDEN = {
    "a shape that depends on values": r"(stablehlo|chlo|mhlo)\.\w+.*tensor<[\dx]*\?",
    "float64, which many operations emulate": r"[x<]f64>",
    "float16, which needs loss scaling": r"[x<]f16>",
    "a sum in bfloat16": r"applies stablehlo\.add .*bf16>|stablehlo\.add %\S+ %\S+ : tensor<bf16>",
    "a wait for the host": r"stablehlo\.(infeed|outfeed|send|recv)\b",
    "random numbers with a hidden state": r"stablehlo\.rng\b",
    "a custom call": r"custom_call",
}


def find_forbidden(module):
    text = module.decode()
    return [name for name, pattern in FORBIDDEN.items() if re.search(pattern, text)]


def half(x):
    return tf.cast(x, tf.bfloat16)


@pytest.mark.parametrize(
    ("name", "function"),
    zip(
        FORBIDDEN,
        [
            lambda x: tf.boolean_mask(x, x[:, 0] > 0),
            lambda x: tf.exp(tf.cast(x, tf.float64)),
            lambda x: tf.exp(tf.cast(x, tf.float16)),
            lambda x: tf.math.unsorted_segment_sum(half(x), [0, 1, 1, 0, 2, 1], 3),
            None,  # the stock TensorFlow lowers none of these
            lambda x: x + tf.random.uniform([6, 4]),
            lambda x: tf.linalg.qr(x)[0],
        ],
        strict=True,
    ),
)
def test_what_runs_badly_is_found(name, function):
    if function is None:
        module = b'    %3 = "stablehlo.infeed"(%2) : (!stablehlo.token) -> tensor<4xf32>'
    else:
        compiled = tf.function(function, jit_compile=True, autograph=False)
        with tf.device("CPU:0"):
            spec = tf.TensorSpec([6, 4], tf.float32)
            module = compiled.experimental_get_compiler_ir(spec)(stage="stablehlo").encode()
    assert name in find_forbidden(module)


@pytest.fixture(scope="module")
def alone():
    return lowering.lower(ALONE, per_replica_batch=BATCH, num_replicas=1)


@pytest.fixture(scope="module")
def eight_replicas():
    options = {"num_micro_batches": 2, "sentence_task": "none", "layer_loop": True, **HALF}
    config = tiny_run.settings(albert=tiny_run.albert(num_hidden_layers=3, **DROPOUT), **options)
    return lowering.lower(config, per_replica_batch=BATCH, num_replicas=8)


def signature(lowered):
    """The types of arguments and results as they stand in the module: ["4x14xi32", ...] twice."""
    line = next(x for x in lowered.module.decode().splitlines() if "func.func @main" in x)
    arguments, results = line.split(" -> ")
    return [re.findall(r"tensor<(\w+)>", part) for part in (arguments, results)]


def mlir(array):
    short = {"int32": "i32", "int64": "i64", "float32": "f32"}[array.dtype]
    return "x".join([*map(str, array.shape), short])


@EVERY_STEP
def test_inputs_and_outputs_are_those_of_the_module(name, request):
    lowered = request.getfixturevalue(name)
    arguments, results = signature(lowered)
    assert [mlir(x) for x in lowered.inputs] == arguments
    assert [mlir(x) for x in lowered.outputs] == results
    # Which output is the new state of which input.
    pattern = r"parameter_number = (\d+) : i64}, output_index = array<i64: (\d+)>"
    said = {int(k): int(x) for x, k in re.findall(pattern, lowered.module.decode())}
    assert said == {k: x for k, x in enumerate(lowered.state) if x is not None}
    assert len(said) > 50


def test_the_state_is_the_real_model_and_its_moments(alone):
    network = albert_model.AlbertForPretraining(ALBERT)
    weights, ends = weight_names.weights_by_name(network), ("", "/adam_m", "/adam_v")
    expected = {f"{name}{end}": tuple(w.shape) for name, w in weights.items() for end in ends}
    assert {x.name: x.shape for x in alone.inputs[7:]} == {"iterations": (), **expected}
    total_names = [x.name for x, of in zip(alone.outputs, alone.state, strict=True) if of is None]
    assert {"masked_lm_loss", "sentence_order_correct", "gradient_norm"} <= set(total_names)
    assert len(total_names) == 8


@EIGHT
def test_every_trained_gradient_is_summed_over_the_replicas_once(alone, eight_replicas):
    config = tiny_run.settings(sentence_task="none")
    objective = OBJECTIVES[config.sentence_task]
    state = train_state.make_train_state(config, tf.distribute.get_strategy(), objective)
    reduced = eight_replicas.module.decode().count('"stablehlo.all_reduce"(')
    # The counts, the gradients, and the totals of an update.
    num_totals = sum(of is None for of in eight_replicas.state)
    assert reduced == len(state.objective.loss.names) + len(state.weights) + num_totals
    assert "all_reduce" not in alone.module.decode()


def count_module_flops(module):
    """Operations of all products in a module, but those with ones that add up biases' gradients."""
    total = 0
    pattern = (
        r"stablehlo\.(dot|dot_general) .*?(?:contracting_dims = \[(\d+)\].*?)?"
        r": \(tensor<([\dx]+)x\w+>, tensor<([\dx]+)x\w+>\) -> tensor<([\dx]+)x\w+>"
    )
    for _, contracting, left, right, result in re.findall(pattern, module.decode()):
        left, right, result = ([int(n) for n in x.split("x")] for x in (left, right, result))
        inner = left[int(contracting) if contracting else len(left) - 1]
        with_ones = len(left) == 2 and math.prod(left) == inner
        total += 0 if with_ones else 2 * math.prod(result) * inner
    return total


def assert_counted(config, lowered):
    """The formula counts the operations of the products of the step, which breaks no rule."""
    flops = costs.count_flops(config, BATCH)
    assert sum(flops) == count_module_flops(lowered.module)
    assert find_forbidden(lowered.module) == []
    assert (flops.recomputed > 0) == config.rematerialize


@pytest.mark.usefixtures("as_users")
def test_operations_are_those_of_the_products_in_the_real_step(alone):
    assert_counted(ALONE, alone)
    square = tiny_run.albert(embedding_size=8, num_hidden_layers=2)
    config = tiny_run.settings(sentence_task="nsp", albert=square, **HALF)
    assert_counted(config, lowering.lower(config, per_replica_batch=BATCH, num_replicas=1))


@EIGHT
def test_replicas_draw_dropout_of_their_own_and_keep_their_state_in_float32(alone, eight_replicas):
    assert eight_replicas.module.count(b"stablehlo.replica_id") == 1
    assert b"replica_id" not in alone.module
    assert {x.dtype for x in eight_replicas.inputs[7:]} == {"float32", "int64"}
    assert "bf16" in eight_replicas.module.decode()
    assert find_forbidden(eight_replicas.module) == []
