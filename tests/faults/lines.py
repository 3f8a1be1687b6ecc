"""Cuts the connections of two workers, and runs them again: they end as if undisturbed.

    python tests/faults/lines.py [--cuts=20] [--held=60]

Each worker knows the other by a port of a proxy. At a random moment (see `killed`) the proxies end,
and with them all connections; with --held they pass nothing on for so many seconds, and then go on.
Workers must end without a traceback, with status 75 where they say that the other is lost. Then the
same commands must give the files of an undisturbed run.
"""

import argparse
import os
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import killed
import tiny_workers


class Line:
    """A proxy in a process of its own: what comes to `port` goes to another port."""

    def __init__(self, target: int):
        server = socket.create_server(("127.0.0.1", 0))
        self.port = server.getsockname()[1]
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _pass_all_on(server, target)
            finally:
                os._exit(1)  # not the parent's clean-up, which removes its folder
        server.close()

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> None:
        self.send(signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _pass_all_on(server: socket.socket, target: int) -> None:
    while True:
        theirs, _ = server.accept()
        try:
            ours = socket.create_connection(("127.0.0.1", target))
        except OSError:  # the worker is not there yet
            theirs.close()
            continue
        for pair in ((theirs, ours), (ours, theirs)):
            threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    try:
        while content := source.recv(1 << 16):
            target.sendall(content)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        target.close()


class Cuts(killed.Murders):
    """Runs of two workers with lines between them."""

    lines: tuple[Line, ...] = ()

    def start(self, at_change: int = -1) -> list[killed.Child]:
        own = tiny_workers.addresses(2)
        self.end_lines()
        self.lines = tuple(Line(int(address.partition(":")[2])) for address in own)
        children = []
        for index in range(2):
            known = [f"127.0.0.1:{line.port}" for line in self.lines]
            known[index] = own[index]
            children.append(self.start_one(known, index, at_change))
        return children

    def end_lines(self) -> None:
        for line in self.lines:
            line.end()
        self.lines = ()

    def try_cuts(self, number: int, held: float) -> None:
        for _ in range(number):
            children = self.start(at_change=self.wait_where())
            self.wait(children, self.chance.choice(children))
            self.counts["cuts"] += any(child.poll() is None for child in children)
            if held:
                for kind in (signal.SIGSTOP, signal.SIGCONT):
                    for line in self.lines:
                        line.send(kind)
                    time.sleep(held if kind == signal.SIGSTOP else 0)
            else:
                self.end_lines()
            self.end(children, 0)
            is_over = all(child.status == 0 for child in children)
            self.counts["unharmed"] += is_over
            self.run_to_the_end(is_over=is_over)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--held", type=float, default=0.0, help="seconds; default: it is cut")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    victim = killed.list_victims()["pretraining, 2 workers"]
    with killed.making_inputs() as folder:
        cuts = Cuts(victim, folder, random.Random(arguments.seed), has_shifts=False)
        try:
            cuts.try_cuts(arguments.cuts, arguments.held)
        finally:
            cuts.end_lines()
    print(dict(cuts.counts), *cuts.notes[:5], sep="\n")
    sys.exit(1 if cuts.notes else 0)


if __name__ == "__main__":
    main()
