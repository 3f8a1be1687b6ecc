"""How many processes start for how many jobs; threads stand for them."""

import signal
import threading
import time
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from albert_tf.data_prep.corpus import worker_processes
from albert_tf.errors import UserError


@pytest.fixture
def start():
    """Starts a thread that squares numbers, slowly at first, as a process does; counts them."""

    def serve(connection):
        time.sleep(0.2)
        while (job := connection.recv()) != "end":
            connection.send(job**2)
            connection.send(None)

    def start():
        ours, theirs = Pipe()
        start.connections.append(ours)
        thread = threading.Thread(target=serve, args=(theirs,), daemon=True)
        thread.start()
        return ours, thread

    start.connections = []
    yield start
    for connection in start.connections:
        connection.send("end")


@pytest.mark.parametrize(
    ("num_jobs", "most", "started"), [(0, 3, 0), (1, 3, 1), (2, 5, 2), (9, 3, 3)]
)
def test_no_process_without_a_job(start, num_jobs, most, started):
    results = worker_processes.distribute(start, most, range(1, num_jobs + 1))
    assert sorted(results) == [job**2 for job in range(1, num_jobs + 1)]
    assert len(start.connections) == started


def test_a_killed_process_is_an_error():
    def start_and_die():
        ours, theirs = Pipe()
        theirs.close()
        return ours, SimpleNamespace(join=lambda: None, exitcode=-signal.SIGSEGV)

    with pytest.raises(UserError, match=r"a process has ended \(SIGSEGV\).*--num_processes=1"):
        list(worker_processes.distribute(start_and_die, 2, [1]))
