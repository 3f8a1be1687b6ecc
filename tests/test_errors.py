import pytest
import tensorflow as tf

from albert_tf import errors

IN_A_GRAPH = """Graph execution error:

Detected at node disconnect_tpu_host/_1 defined at (most recent call last):
<stack traces unavailable>
RET_CHECK failure (tpu_node_interfaces.cc:432) *platform\x20
\t [[{{node disconnect_tpu_host/_1}}]] [Op:__inference__tpu_init_fn_11]"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("one thing\nand another"), "one thing"),
        (tf.errors.InternalError(None, None, IN_A_GRAPH), "RET_CHECK failure (tpu_node_inter"),
        (KeyError(), "KeyError"),
    ],
)
def test_a_reason_is_one_line(error, said):
    reason = errors.reason(error)
    assert reason.startswith(said)
    assert "\n" not in reason
