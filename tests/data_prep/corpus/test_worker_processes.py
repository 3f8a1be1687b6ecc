"""How many processes start for how many jobs; threads stand for them."""

import threading
import time
from multiprocessing import Pipe

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
        threading.Thread(target=serve, args=(theirs,), daemon=True).start()
        return ours

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
        return ours

    with pytest.raises(UserError, match=r"a process was killed.*--num_processes=1"):
        list(worker_processes.distribute(start_and_die, 2, [1]))
