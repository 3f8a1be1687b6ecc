"""Several workers of bin/run_pretraining train as one process, and end together."""

import json
import os
import signal

import numpy as np
import pytest
import replicas
import tiny_run
import tiny_workers

from albert_tf import config_io
from albert_tf.checkpoints import native


@pytest.fixture
def arguments(data, tmp_path):
    """Those of a run; the config is in a file."""

    def make_arguments(workdir, config):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config_io.to_dict(config)))
        files = [f"--config={path}", f"--train_files={data}/train-*"]
        return [*files, f"--output_dir={tmp_path / workdir}"]

    return make_arguments


@pytest.mark.full
def test_when_one_is_killed_all_end_and_go_on(arguments, tmp_path):
    config = tiny_run.settings(num_train_steps=10)
    command = arguments("run", config)
    kill = "os.kill(os.getpid(), signal.SIGKILL)"
    exit_codes = tiny_workers.run(tmp_path, 2, command, happens=1, at_step=8, do=kill)
    assert exit_codes == [os.EX_TEMPFAIL, -signal.SIGKILL]
    output = (tmp_path / "output-0").read_text()
    assert "Traceback" not in output
    last = output.splitlines()[-1]
    assert "run_pretraining: worker 1 (127.0.0.1:" in last
    assert "has stopped, so worker 0" in last
    assert last.endswith("the same command on all workers: they resume from the last checkpoint.")
    before = tiny_run.metrics(tmp_path / "run")
    # The news may reach the chief before it has written its record of step 8.
    assert [record["step"] for record in before] in ([2, 4, 6], [2, 4, 6, 8])

    assert tiny_workers.run(tmp_path, 2, command) == [0, 0]
    # Nothing was saved at step 8, so steps 5 to 8 are done again.
    assert "model.ckpt-4 |" in (tmp_path / "output-0").read_text()
    after = tiny_run.metrics(tmp_path / "run")
    assert after[: len(before)] == before
    assert [record["step"] for record in after] == [2, 4, 6, 8, 10]


@pytest.mark.full
def test_two_train_as_one_process_and_stop_when_one_is_told_to(data, arguments, tmp_path):
    albert = tiny_run.albert(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    config = tiny_run.settings(albert=albert, num_train_steps=6)
    # One process with two replicas, for dropout is of a replica.
    tiny_run.run(data, tmp_path / "one", config, strategy=replicas.two_replicas())
    event = "os.kill(os.getpid(), signal.SIGTERM)"
    given = arguments("two", config)
    exit_codes = tiny_workers.run(tmp_path, 2, given, happens=1, at_step=4, do=event)
    assert exit_codes == [os.EX_TEMPFAIL] * 2
    assert "interrupted at step 4" in (tmp_path / "output-0").read_text()
    expected, records = (tiny_run.metrics(tmp_path / x) for x in ("one", "two"))
    for record, wanted in zip(records, expected[:2], strict=True):
        assert record == pytest.approx(wanted, rel=1e-4)
    one, two = (native.read_weights(f"{tmp_path}/{x}/model.ckpt-4") for x in ("one", "two"))
    for name, value in one.items():
        np.testing.assert_allclose(two[name], value, rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.full
def test_workers_wait_for_each_other_and_compare_their_settings(arguments, tmp_path):
    cluster = tiny_workers.addresses(2)
    same = arguments("run", tiny_run.settings())
    outputs = [tmp_path / "output-0", tmp_path / "output-1"]
    other = [*same, "--set=learning_rate=0.25"]
    with tiny_workers.ended() as children:
        children.append(tiny_workers.start(outputs[0], cluster, 0, same))
        tiny_workers.wait_for(outputs[0], f"waiting for worker 1 ({cluster[1]})\n")
        children.append(tiny_workers.start(outputs[1], cluster, 1, other))
        assert [child.wait(tiny_workers.LIMIT) for child in children] == [1, 1]
    line = (
        f"run_pretraining: the workers differ: learning_rate is 0.05 on worker 0 ({cluster[0]}), "
        f"0.25 on worker 1 ({cluster[1]}). Start all with the same command, config and files."
    )
    assert [output.read_text().splitlines()[-1] for output in outputs] == [line, line]
    assert not (tmp_path / "run").exists()
