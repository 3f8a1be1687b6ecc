"""What workers tell each other, as far as one process can show it; see test_multi_worker.py."""

import functools
import socket

import pytest
import tensorflow as tf
import tiny_finetuning
import tiny_run
import tiny_workers
from refusals import one_line
from repository import ROOT

from albert_tf import run_record
from albert_tf.errors import LostWorkerError, UserError
from albert_tf.train import multi_worker

TASKS = ("chief", 0), ("worker", 0), ("worker", 1)
CLUSTER = multi_worker.Cluster(("a:1", "b:2", "c:3"), TASKS, 1)
KILLED = """Graph execution error:

Detected at node while/CollectiveReduceV2_9
Collective ops is aborted by: Error reported from /job:worker/task:1: The following are unhealthy:
/job:worker/replica:0/task:1
The error could be from a previous operation. [Op:__inference_run_updates_5043]"""

ABORTED = functools.partial(tf.errors.AbortedError, None, None)
ONE = tf.distribute.get_strategy()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("{not json", "Expecting property name"),
        ('{"cluster": {"worker": ["a:1"]}}', "the task is None None, the workers are worker 0"),
        (tiny_workers.tf_config(["a:1", "b:2"], 2), "is worker 2, the workers are worker 0 and "),
    ],
)
def test_a_senseless_variable_is_one_line(monkeypatch, value, reason):
    monkeypatch.setenv("TF_CONFIG", value)
    with one_line(f"^TF_CONFIG does not describe workers .*{reason}"):
        multi_worker.make_strategy()


@pytest.mark.parametrize(
    ("kind", "status"), [(tf.errors.UnavailableError, 75), (tf.errors.UnknownError, 1)]
)
def test_a_worker_that_ends_while_others_join_is_lost(monkeypatch, kind, status):
    def join(resolver):
        raise kind(None, None, "recvmsg:Connection reset by peer")

    monkeypatch.setenv("TF_CONFIG", tiny_workers.tf_config(["127.0.0.1:1"], 0))
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", join)
    with pytest.raises(UserError, match=r"^worker 0 .* cannot join the others") as e:
        multi_worker.make_strategy()
    assert e.value.exit_status == status


def test_those_who_do_not_answer_are_named(capsys):
    [nobody] = tiny_workers.addresses(1)
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        there = f"127.0.0.1:{somebody.getsockname()[1]}"
        tasks = tuple(("worker", k) for k in range(4))
        some = multi_worker.Cluster((there, "own:1", nobody, "x"), tasks, 1)
        multi_worker.report_missing_workers(some)
        assert capsys.readouterr().err == f"waiting for worker 2 ({nobody}), worker 3 (x)\n"
        multi_worker.report_missing_workers(multi_worker.Cluster((there, "own:1"), tasks[:2], 1))
        assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (tf.errors.UnavailableError(None, None, KILLED), "worker 2 (c:3)"),
        (ABORTED("Collective ops is aborted by: no\nmore"), "another worker (no)"),
    ],
)
def test_the_end_of_another_is_one_line(monkeypatch, error, named):
    monkeypatch.setattr(multi_worker, "find_cluster", lambda strategy: CLUSTER)
    with pytest.raises(LostWorkerError) as e, multi_worker.together(ONE):
        raise error
    assert str(e.value).startswith(f"{named} has stopped, so worker 1 (b:2) stops as well. ")
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("cluster", "message"), [(CLUSTER, "No space left on device"), (None, KILLED)]
)
def test_other_errors_pass(monkeypatch, cluster, message):
    monkeypatch.setattr(multi_worker, "find_cluster", lambda strategy: cluster)
    error = tf.errors.UnavailableError(None, None, message)
    with pytest.raises(tf.errors.UnavailableError) as e, multi_worker.together(ONE):
        raise error
    assert e.value is error


@pytest.fixture
def compared(monkeypatch):
    """Calls of `check_same` end what runs; returns what the workers would have compared."""

    def check_same(strategy, values):
        raise UserError(values)

    def compared_by(run):
        with pytest.raises(UserError) as e:
            run()
        [compared_values] = e.value.args
        return compared_values

    monkeypatch.setattr(multi_worker, "check_same", check_same)
    return compared_by


def differences(one, other):
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def test_pretraining_compares_all_that_it_is_given(compared, tmp_path):
    same = tiny_run.write_data(tmp_path / "a")
    twice = tiny_run.write_data(tmp_path / "b", like=same)
    other = tiny_run.write_data(tmp_path / "c")
    config = tiny_run.settings(seed=8)

    def compare(*data, eval_files=(), **start):
        given = [f"{x}/train-*" for x in data or [same]], eval_files, tmp_path / "w", config
        return compared(lambda: tiny_run.run_files(*given, **start))

    values = compare()
    assert values["--train_files.2"] == ["train-1.tfrecord", 16]
    assert values["seed"] == 8
    assert differences(values, compare(twice)) == []
    assert differences(values, compare(eval_files=[f"{same}/eval-*"])) == ["--eval_files.1"]
    for name in ("allow_partial", "init_checkpoint", "continue_from"):
        assert differences(values, compare(**{name: "x"})) == [f"--{name}"]
    assert differences(values, compare(other)) == ["vocabulary"]
    # Files of the same name in two folders are two.
    assert differences(values, compare(same, twice)) == ["--train_files.3", "--train_files.4"]


def test_finetuning_compares_all_that_it_is_given(compared, vocabulary, tmp_path):
    write = functools.partial(tiny_finetuning.write_folder, kind="classification")
    train, dev = (write(tmp_path / name, vocabulary=vocabulary) for name in ("train", "dev"))
    other = write(tmp_path / "other", vocabulary=vocabulary)

    def compare(dev=None, **options):
        given = tiny_finetuning.settings(), train, dev, tmp_path / "w", vocabulary
        return compared(lambda: tiny_finetuning.finetune(*given, **options))

    values = compare()
    assert values["training data.num_records"] == 24
    assert differences(values, compare(dev)) == ["dev data"]
    assert differences(compare(other), compare(dev)) == ["dev data"]
    for name, value in (("init_checkpoint", "x"), ("init_head", True), ("allow_partial", "x")):
        assert differences(values, compare(**{name: value})) == [f"--{name}"]


def test_run_finetuning_compares_which_runs_there_are(monkeypatch, run_program, tmp_path):
    values = []
    monkeypatch.setattr(multi_worker, "check_same", lambda _, compared: values.append(compared))
    monkeypatch.chdir(tmp_path)
    given = ["--task=rte", "--mode=predict", "--data_dir=d", "--output_dir=w"]
    assert run_program(ROOT / "bin/run_finetuning", *given) != 0  # there is no such run
    assert values == [{"--task": "rte", "--mode": ("predict",), "--checkpoint": None}]


def test_of_many_files_workers_compare_a_digest():
    rows = [[f"train-{number}", 3] for number in range(1001)]
    assert run_record.number_rows(rows[1:])["1"] == ["train-1", 3]
    digest = run_record.number_rows(rows)
    assert digest["number"] == 1001
    assert digest != run_record.number_rows([*rows[:-1], ["train-1000", 4]])
