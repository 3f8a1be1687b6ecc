"""What workers tell each other, as far as one process can show it; see test_multi_worker.py."""

import socket

import pytest
import tensorflow as tf
import tiny_workers

from albert_tf import workers
from albert_tf.errors import UserError

CLUSTER = workers.Cluster(("a:1", "b:2", "c:3"), (("chief", 0), ("worker", 0), ("worker", 1)), 1)
KILLED = """Graph execution error:

Detected at node while/CollectiveReduceV2_9
Collective ops is aborted by: Error reported from /job:worker/task:1: The following are unhealthy:
/job:worker/replica:0/task:1
The error could be from a previous operation. [Op:__inference_run_updates_5043]"""


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{not json", "Expecting property name"),
        ('{"cluster": {"worker": ["a:1"]}}', "the task is None None, the workers are worker 0"),
        (tiny_workers.tf_config(["a:1", "b:2"], 2), "is worker 2, the workers are worker 0 and "),
        (tiny_workers.tf_config(["a:1"], 0, "evaluator"), "is evaluator 0, the workers are "),
    ],
)
def test_a_senseless_variable_is_one_line(monkeypatch, value, reason):
    monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(UserError, match=f"^TF_CONFIG does not describe workers .*{reason}") as e:
        workers.strategy()
    assert "\n" not in str(e.value)


def test_a_chief_comes_first(monkeypatch):
    value = '{"cluster": {"worker": ["b:2", "c:3"], "chief": ["a:1"]}, '
    monkeypatch.setenv("TF_CONFIG", value + '"task": {"type": "worker", "index": 0}}')
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    assert workers._cluster(resolver) == CLUSTER


def test_those_who_do_not_answer_are_named(capsys):
    [nobody] = tiny_workers.addresses(1)
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        there = f"127.0.0.1:{somebody.getsockname()[1]}"
        tasks = tuple(("worker", k) for k in range(4))
        workers._tell_who_is_missing(workers.Cluster((there, "own:1", nobody, "x"), tasks, 1))
        assert capsys.readouterr().out == f"waiting for worker 2 ({nobody}), worker 3 (x)\n"
        workers._tell_who_is_missing(workers.Cluster((there, "own:1"), tasks[:2], 1))
        workers._tell_who_is_missing(workers.Cluster(("own:1",), tasks[:1], 0))
        assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (tf.errors.UnavailableError(None, None, KILLED), "worker 2 (c:3)"),
        (tf.errors.AbortedError(None, None, "Collective ops is aborted by: x"), "another worker"),
    ],
)
def test_the_end_of_another_is_one_line(monkeypatch, error, named):
    monkeypatch.setattr(workers, "_of", lambda strategy: CLUSTER)
    with pytest.raises(UserError) as e, workers.together(tf.distribute.get_strategy()):
        raise error
    assert str(e.value).startswith(f"{named} has stopped, and so does worker 1 (b:2). ")
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("cluster", "message"), [(CLUSTER, "No space left on device"), (None, KILLED)]
)
def test_other_errors_pass(monkeypatch, cluster, message):
    monkeypatch.setattr(workers, "_of", lambda strategy: cluster)
    error = tf.errors.UnavailableError(None, None, message)
    one = tf.distribute.get_strategy()
    with pytest.raises(tf.errors.UnavailableError) as e, workers.together(one):
        raise error
    assert e.value is error


def test_one_process_agrees_with_itself():
    workers.check_same(tf.distribute.get_strategy(), {"seed": 1})


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        ([{"a": 1, "b": 2}] * 3, None),
        ([{"a": 1, "b": 2}, {"a": 1, "b": 3}], (1, "b")),
        ([{"a": 1}, {"a": 1}, {"a": 1, "b": None}], (2, "b")),
        ([{"a": None}, {}], (1, "a")),
    ],
)
def test_the_first_difference(found, difference):
    assert workers._first_difference(found) == difference
