"""Loads servers of one model, in turn, and prints how they answer.

    python bench/serve_load.py [--lengths=squad] [--data=FOLDER] [--seconds=60] [--p95_ms=500] \\
        'joined=bin/serve --model=m/model' 'alone=bin/serve --model=m/model --nojoin_requests' \\
        'peer=peer/bin/python bench/peer_server.py --model=m/transformers'

Each server is a name with a command, which gets ports of its own, or with a URL. All run at once,
and one at a time is loaded: by clients that wait for their answers (--clients), by arrivals of
Poisson's that wait for nobody (--rates), by twice of what it answered, and by as many a second as
it answers with 95 % of them within --p95_ms. Latencies count from when a request was due. Each
answer is compared with that to the same request alone. FOLDER has SST-2/dev.tsv and dev-v1.1.json,
of GLUE and SQuAD; without it words are drawn with about their lengths.

Whether this client is the bottleneck: the last line of a server is of requests for a model that it
lacks, which it refuses at once; "client" is this process' CPU time for a request.
"""

import contextlib
import csv
import dataclasses
import http.client
import itertools
import json
import math
import os
import pathlib
import random
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence

import numpy as np
from absl import app, flags

LENGTHS = flags.DEFINE_enum("lengths", "sst2", ["sst2", "squad"], "of the texts")
DATA = flags.DEFINE_string("data", None, "folder of GLUE's and SQuAD's files")
SECONDS = flags.DEFINE_float("seconds", 60, "of a level", lower_bound=0.1)
CLIENTS = flags.DEFINE_list("clients", "1,2,4,8,16,32,64", "that wait for their answers")
RATES = flags.DEFINE_list("rates", [], "arrivals a second, whether answered or not")
P95_MS = flags.DEFINE_float("p95_ms", None, "search for the rate that has this 95th percentile")
ROUNDS = flags.DEFINE_integer("rounds", 1, "of the levels, all servers in turn", lower_bound=1)
MODEL = flags.DEFINE_string("model", "model", "its name in the URL of a command's server")
NUMBER = flags.DEFINE_integer("number", 128, "of different requests", lower_bound=1)
TOLERANCE = flags.DEFINE_float("tolerance", 1e-3, "of numbers, against those of a request alone")
_HEADERS = {"Content-Type": "application/json"}
_START_SECONDS, _TIMEOUT_SECONDS, _OPEN_CONNECTIONS = 300, 120, 256


@dataclasses.dataclass
class Server:
    """A server that runs.

    Attributes:
        name: in what is printed.
        url: of the model.
        process: None if it was started elsewhere.
        alone: {number of a request: the answer to it alone}.
        rate: the most requests a second that it answered.
    """

    name: str
    url: urllib.parse.SplitResult
    process: subprocess.Popen | None
    alone: dict[int, dict] = dataclasses.field(default_factory=dict)
    rate: float = 0.0


@dataclasses.dataclass(frozen=True)
class Sent:
    """A request that was sent: its number, status (0: none came), body, and seconds since due."""

    number: int
    status: int
    body: bytes
    seconds: float


def read_texts() -> list[dict[str, str]]:
    """Returns the inputs of different requests, {name: text}."""
    rng = random.Random(0)
    if DATA.value is None:
        words = ["the", "film", "and", "a", "museum", "is", "that", "offices", "sold", "1911"]
        means = {"sst2": {"text": 19}, "squad": {"text": 10, "text_pair": 120}}[LENGTHS.value]

        def draw(mean: float) -> str:
            number = max(1, round(rng.lognormvariate(math.log(mean) - 0.125, 0.5)))
            return " ".join(rng.choices(words, k=number))

        return [{k: draw(mean) for k, mean in means.items()} for _ in range(NUMBER.value)]
    folder = pathlib.Path(DATA.value)
    if LENGTHS.value == "sst2":
        with open(folder / "SST-2/dev.tsv", encoding="utf-8") as file:
            rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            texts = [{"text": row["sentence"]} for row in rows]
    else:
        paragraphs = (
            paragraph
            for article in json.loads((folder / "dev-v1.1.json").read_bytes())["data"]
            for paragraph in article["paragraphs"]
        )
        texts = [
            {"text": qa["question"], "text_pair": paragraph["context"]}
            for paragraph in paragraphs
            for qa in paragraph["qas"]
        ]
    return rng.sample(texts, min(NUMBER.value, len(texts)))


def encode(inputs: dict[str, str]) -> bytes:
    tensors = [
        {"name": name, "shape": [1, 1], "datatype": "BYTES", "data": [text]}
        for name, text in inputs.items()
    ]
    return json.dumps({"inputs": tensors}).encode()


def decode(body: bytes) -> dict[str, list]:
    return {x["name"]: x["data"] for x in json.loads(body)["outputs"]}


def agree(answer: dict[str, list], other: dict[str, list]) -> bool:
    """Whether two answers have the same strings and, almost, numbers."""
    if answer.keys() != other.keys():
        return False
    for name, values in answer.items():
        if any(isinstance(x, str) for x in values):
            if values != other[name]:
                return False
        elif np.shape(values) != np.shape(other[name]) or not np.allclose(
            values, other[name], TOLERANCE.value, TOLERANCE.value
        ):
            return False
    return True


class Client:
    """A connection that is kept."""

    def __init__(self, url: urllib.parse.SplitResult, path: str | None = None) -> None:
        self.path = path or f"{url.path}/infer"
        assert url.hostname
        self.connection = http.client.HTTPConnection(url.hostname, url.port, _TIMEOUT_SECONDS)

    def send(self, number: int, body: bytes, due: float) -> Sent:
        try:
            self.connection.request("POST", self.path, body, _HEADERS)
            response = self.connection.getresponse()
            status, content = response.status, response.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()  # the next request opens it again
            status, content = 0, b""
        return Sent(number, status, content, time.monotonic() - due)


def load(
    server: Server,
    bodies: Sequence[bytes],
    *,
    num_clients: int,
    rate: float | None = None,
    path: str | None = None,
) -> list[Sent]:
    """Sends requests for `SECONDS`.

    Args:
        server: the server.
        bodies: of different requests.
        num_clients: connections; each has one request under way.
        rate: arrivals a second; None: a client sends the next request when it has its answer.
        path: another than that of the model.
    """
    rng, begin = random.Random(1), time.monotonic()

    def make_arrivals() -> Iterator[tuple[int, float]]:
        due = begin
        for index in itertools.count():
            if rate is None:
                due = time.monotonic()
            else:
                due += rng.expovariate(rate)
            if due > begin + SECONDS.value:
                return
            yield index % len(bodies), due

    arrivals, lock, sent = make_arrivals(), threading.Lock(), []

    def work() -> None:
        client = Client(server.url, path)
        while True:
            with lock:
                arrival = next(arrivals, None)
            if arrival is None:
                return
            number, due = arrival
            time.sleep(max(0.0, due - time.monotonic()))
            sent.append(client.send(number, bodies[number], due))

    threads = [threading.Thread(target=work) for _ in range(num_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sent


def measure(
    server: Server, bodies: Sequence[bytes], label: str, *, num_clients: int, **options
) -> dict:
    """Loads a server, prints a line, and returns its numbers."""
    cpu, own, begin = count_cpu_seconds(server), time.process_time(), time.monotonic()
    sent = load(server, bodies, num_clients=num_clients, **options)
    seconds = time.monotonic() - begin
    cpu, own = count_cpu_seconds(server) - cpu, time.process_time() - own
    answered = [x for x in sent if x.status == 200]
    wrong = sum(not agree(decode(x.body), server.alone[x.number]) for x in answered)
    ms = [1000 * x.seconds for x in answered]
    numbers = {
        "server": server.name,
        "level": label,
        "per_second": round(len(answered) / seconds, 2),
        **{f"p{p}_ms": _round_percentile(ms, p) for p in (50, 95, 99)},
        "sent": len(sent),
        "refused": sum(x.status in (404, 503) for x in sent),
        "failed": sum(x.status not in (200, 404, 503) for x in sent),
        "wrong": wrong,
        "server_cpu_ms": round(1000 * cpu / max(1, len(answered) or len(sent)), 2),
        "client_cpu_ms": round(1000 * own / max(1, len(sent)), 2),
    }
    print(json.dumps(numbers), flush=True)
    return numbers


def _round_percentile(ms: Sequence[float], p: int) -> float | None:
    return round(float(np.percentile(ms, p)), 1) if ms else None


def count_cpu_seconds(server: Server) -> float:
    """Returns the CPU time of the processes of a server; 0 if it was started elsewhere."""
    if server.process is None:
        return 0.0
    fields = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    ids = {server.process.pid}
    for _ in range(3):
        ids |= {pid for pid, x in fields.items() if int(x[1]) in ids}
    ticks = sum(int(fields[pid][11]) + int(fields[pid][12]) for pid in ids if pid in fields)
    return ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(name: str, command: str) -> Iterator[Server]:
    """Starts a server with ports of its own, unless it is a URL."""
    if "://" in command:
        yield Server(name, urllib.parse.urlsplit(command), None)
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [*shlex.split(command), f"--http_port={port}"]
    if any(word.endswith("bin/serve") for word in words):
        words += ["--grpc_port=0", "--metrics_port=0"]
    # A session each: Linux shares out its cores between sessions, and bin/serve starts one.
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        url = urllib.parse.urlsplit(f"http://127.0.0.1:{port}/v2/models/{MODEL.value}")
        yield Server(name, url, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def ask_alone(server: Server, bodies: Sequence[bytes]) -> float:
    """Asks all requests one after the other; returns the median of milliseconds."""
    client, end = Client(server.url), time.monotonic() + _START_SECONDS
    while (first := client.send(0, bodies[0], 0.0)).status != 200:
        if (
            first.status in (400, 422)
            or time.monotonic() > end
            or (server.process and server.process.poll() is not None)
        ):
            sys.exit(f"{server.name} does not answer: {first.status} {first.body[:300]!r}")
        time.sleep(0.5)
    sent = [client.send(index, body, time.monotonic()) for index, body in enumerate(bodies)]
    for x in sent:
        if x.status != 200:
            sys.exit(f"{server.name}: {x.status} {x.body[:300]!r}")
        answer = decode(x.body)
        if not agree(answer, server.alone.setdefault(x.number, answer)):
            sys.exit(f"{server.name}: request {x.number} alone is answered otherwise.")
    return 1000 * statistics.median(x.seconds for x in sent)


def search_rate(server: Server, bodies: Sequence[bytes]) -> float:
    """Bisects for the rate at which 95 % of the answers come within --p95_ms, and none is lost."""
    assert P95_MS.value
    low, high = 0.0, 2 * server.rate
    for _ in range(6):
        rate = (low + high) / 2
        numbers = measure(
            server, bodies, f"open {rate:.2f}/s", num_clients=_OPEN_CONNECTIONS, rate=rate
        )
        p95 = numbers["p95_ms"]
        is_whole = not numbers["refused"] and not numbers["failed"]
        is_good = is_whole and p95 is not None and p95 <= P95_MS.value
        low, high = (rate, high) if is_good else (low, rate)
    return low


def run_levels(servers: Sequence[Server], bodies: Sequence[bytes]) -> None:
    """Loads the servers, in turn at each level."""
    for number in map(int, CLIENTS.value):
        for server in servers:
            numbers = measure(server, bodies, f"closed {number}", num_clients=number)
            server.rate = max(server.rate, numbers["per_second"])
    for rate in map(float, RATES.value):
        for server in servers:
            measure(server, bodies, f"open {rate}/s", num_clients=_OPEN_CONNECTIONS, rate=rate)


def run_limits(servers: Sequence[Server], bodies: Sequence[bytes]) -> None:
    """Overloads the servers, searches for the rate of --p95_ms, and asks for nothing."""
    for server in servers:
        before = ask_alone(server, bodies)
        rate = 2 * server.rate
        measure(server, bodies, f"overload {rate:.1f}/s", num_clients=_OPEN_CONNECTIONS, rate=rate)
        print(f"{server.name}: alone {before:.1f} ms, after the overload ", end="")
        print(f"{ask_alone(server, bodies):.1f} ms, the same answers", flush=True)
    if P95_MS.value:
        rates = [search_rate(server, bodies) for server in servers]
        for server, rate in zip(servers, rates, strict=True):
            ratio = rates[0] / rate if rate else math.inf
            print(
                f"{server.name}: {rate:.2f}/s with p95 <= {P95_MS.value:g} ms; "
                f"{servers[0].name} has {ratio:.2f} times that",
                flush=True,
            )
    for server in servers:
        measure(server, bodies, "nothing", num_clients=16, path="/v2/models/none/infer")


def main(arguments: list[str]) -> None:
    if not arguments[1:] or not all("=" in x for x in arguments[1:]):
        sys.exit("serve_load.py: give servers, each a name, = and a command or a URL.")
    bodies = [encode(inputs) for inputs in read_texts()]
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(running(*argument.split("=", 1))) for argument in arguments[1:]
        ]
        for server in servers:
            print(f"{server.name}: alone {ask_alone(server, bodies):.1f} ms", flush=True)
        for server in servers[1:]:
            same = sum(agree(server.alone[i], servers[0].alone[i]) for i in server.alone)
            print(f"{server.name} answers {same} of {len(bodies)} as {servers[0].name} does")
        for _ in range(ROUNDS.value):
            run_levels(servers, bodies)
        run_limits(servers, bodies)


if __name__ == "__main__":
    app.run(main)
