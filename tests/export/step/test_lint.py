"""A broken step is caught by each rule, by the name of its operation.

That ours breaks none is tested where they are lowered: test_lowering.py, test_costs.py.
"""

import pytest
import stablehlo_lint as lint
import tensorflow as tf

ROWS, SIZE = 6, 4


def lowered(function):
    """The module of a function of [ROWS, SIZE] float32, as text."""
    spec = tf.TensorSpec([ROWS, SIZE], tf.float32)
    compiled = tf.function(function, jit_compile=True, autograph=False)
    with tf.device("CPU:0"):
        return compiled.experimental_get_compiler_ir(spec)(stage="stablehlo").encode()


def bf16(x):
    return tf.cast(x, tf.bfloat16)


def rolled(x):
    """The gradient of a loop over three layers that keeps everything."""
    kernel = x[:SIZE]

    def layer(k, y):
        return k + 1, tf.tanh(tf.matmul(y, kernel)) * tf.sigmoid(y) + tf.exp(y)

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.while_loop(lambda k, _: k < 3, layer, (0, x), maximum_iterations=3)[1]
    return tape.gradient(y, x)


def summed_over_replicas(x):
    return tf.raw_ops.CollectiveReduceV2(
        input=bf16(x),
        group_size=2,
        group_key=1,
        instance_key=1,
        ordering_token=[],
        merge_op="Add",
        final_op="Id",
    )


BROKEN = {
    "dynamic shape": (
        lambda x: tf.boolean_mask(x, x[:, 0] > 0, name="chosen"),
        "stablehlo.set_dimension_size",
        "chosen",
    ),
    "float type": (
        lambda x: tf.exp(tf.cast(x, tf.float64), name="wide"),
        "stablehlo.exponential",
        "wide",
    ),
    "bfloat16 sum": (
        lambda x: tf.math.unsorted_segment_sum(bf16(x), [0, 1, 1, 0, 2, 1], 3, name="rows"),
        "stablehlo.scatter",
        "rows",
    ),
    "stateful random numbers": (
        lambda x: x + tf.random.uniform([ROWS, SIZE], name="mask"),
        "stablehlo.rng",
        "mask",
    ),
    "custom call": (
        lambda x: tf.linalg.qr(x, name="apart")[0],
        "stablehlo.custom_call",
        "apart",
    ),
    "loop without recomputing": (rolled, "stablehlo.while", "while"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_step_is_caught_by_the_name_of_its_operation(rule):
    function, operation, name = BROKEN[rule]
    findings = [one for one in lint.lint(lowered(function)) if one.rule == rule]
    assert any(one.operation == operation and name in one.name for one in findings), findings
    assert rule in str(findings[0])


def test_half_precision_and_sums_over_replicas_are_caught():
    findings = lint.lint(lowered(lambda x: tf.exp(tf.cast(x, tf.float16), name="half")))
    assert {(one.rule, "bfloat16" in one.detail) for one in findings} == {("float type", True)}
    findings = lint.lint(lowered(summed_over_replicas))
    assert [(one.rule, one.operation) for one in findings] == [
        ("bfloat16 sum", "stablehlo.all_reduce")
    ]


def test_what_waits_for_the_host_is_caught():
    # The stock TensorFlow lowers none of these: a line as others write it.
    module = '    %3 = "stablehlo.infeed"(%2) : (!stablehlo.token) -> tensor<4xf32> loc(#loc7)\n'
    findings = lint.lint((module + '#loc7 = loc("next_batch")\n').encode())
    assert [(one.rule, one.name) for one in findings] == [("host", "next_batch")]


def test_what_is_sound_is_not_reported():
    def sound(x):
        y = tf.matmul(bf16(x), bf16(x), transpose_b=True)
        y += bf16(tf.random.stateless_uniform([ROWS, ROWS], [1, 2]))
        return tf.reduce_sum(tf.cast(y, tf.float32)), tf.reduce_max(y)

    assert lint.lint(lowered(sound)) == []
