"""Load-tests servers of one model in turn, over TensorFlow Serving's REST, and prints the results.

    python bench/server.py [--data=glue/SST-2/dev.tsv] [--seconds=60] [--clients=1,4,16,64] \\
        joined=http://127.0.0.1:8501/v1/models/model peer=http://127.0.0.1:8502/v1/models/model

Each client sends the next request when it has the answer to the previous one. Each answer is
compared with the answer to the same request sent alone. Without --data, random words are used, with
about the lengths of SST-2. Prints a line of JSON for each server and number of clients.
"client_cpu_ms" is this process's CPU time per request: if it is far below the latency, the client
is not the bottleneck.

    pip install torch==2.13.0 transformers==5.23.0 fastapi==0.165.0 uvicorn==0.54.0
    python bench/server.py --serve=m/transformers --port=8502 [--at_once=2] [--dtype=bfloat16]

serves a transformers ALBERT with FastAPI, the usual alternative. It answers requests one by one,
without padding, --at_once of them in parallel, which share the cores.
"""

import argparse
import asyncio
import concurrent.futures
import csv
import http.client
import itertools
import json
import math
import os
import random
import statistics
import sys
import threading
import time
import urllib.parse
from collections.abc import Sequence
from typing import Any

import numpy as np

TOLERANCE, TIMEOUT, LENGTH = 1e-3, 120, 384


class Client:
    """A persistent connection to a model."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        assert parts.hostname
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, TIMEOUT)
        self.path = f"{parts.path}:predict"

    def ask(self, body: bytes) -> tuple[int, bytes, float]:
        """Returns the status (0: no answer came), the body and seconds."""
        start = time.perf_counter()
        try:
            headers = {"Content-Type": "application/json"}
            self.connection.request("POST", self.path, body, headers)
            response = self.connection.getresponse()
            status, content = response.status, response.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()  # the next request opens it again
            status, content = 0, b""
        return status, content, time.perf_counter() - start


def read_bodies(path: str | None, number: int) -> list[bytes]:
    """Returns different requests, from a GLUE file or of random words."""
    rng = random.Random(0)
    if path:
        with open(path, encoding="utf-8") as file:
            rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            texts = [row["sentence"] for row in rows]
        texts = rng.sample(texts, min(number, len(texts)))
    else:
        words = ["the", "film", "and", "a", "museum", "is", "that", "offices", "sold", "1911"]
        counts = [rng.lognormvariate(math.log(19) - 0.125, 0.5) for _ in range(number)]
        texts = [" ".join(rng.choices(words, k=max(1, round(k)))) for k in counts]
    return [json.dumps({"instances": [{"text": text}]}).encode() for text in texts]


def agree(one: Any, other: Any) -> bool:
    """Whether two answers have equal strings and almost equal numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(agree(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(agree, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return one == other


def ask_alone(name: str, url: str, bodies: Sequence[bytes]) -> list[Any]:
    """Sends all requests one by one, once the server is up; returns the answers."""
    client, end = Client(url), time.monotonic() + 300
    while (first := client.ask(bodies[0]))[0] != 200:
        if first[0] in (400, 422) or time.monotonic() > end:
            sys.exit(f"{name} does not answer: {first[0]} {first[1][:300]!r}")
        time.sleep(0.5)
    answers, times = [], []
    for body in bodies:
        status, content, seconds = client.ask(body)
        if status != 200:
            sys.exit(f"{name}: {status} {content[:300]!r}")
        answers.append(json.loads(content))
        times.append(seconds)
    print(f"{name}: alone {1000 * statistics.median(times):.1f} ms", flush=True)
    return answers


def load(url: str, bodies: Sequence[bytes], alone: Sequence[Any], number: int, seconds: float):
    """Returns the measurements for `number` clients over some seconds."""
    requests, lock, sent = itertools.count(), threading.Lock(), []
    begin, own = time.monotonic(), time.process_time()

    def work() -> None:
        client = Client(url)
        while time.monotonic() < begin + seconds:
            with lock:
                index = next(requests) % len(bodies)
            sent.append((index, *client.ask(bodies[index])))

    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    own, spent = time.process_time() - own, time.monotonic() - begin
    answered = [x for x in sent if x[1] == 200]
    ms = [1000 * x[3] for x in answered]
    return {
        "clients": number,
        "per_second": round(len(answered) / spent, 2),
        **{f"p{p}_ms": round(float(np.percentile(ms, p)), 1) if ms else None for p in (50, 95, 99)},
        "sent": len(sent),
        "failed": len(sent) - len(answered),
        "wrong": sum(not agree(json.loads(x[2]), alone[x[0]]) for x in answered),
        "client_cpu_ms": round(1000 * own / max(1, len(sent)), 2),
    }


def serve(folder: str, port: int, dtype: str, at_once: int) -> None:
    """Serves a transformers ALBERT with FastAPI."""
    import torch
    import uvicorn
    from fastapi import FastAPI
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    precision = getattr(torch, dtype)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=precision).eval()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // at_once))
    pool, app = concurrent.futures.ThreadPoolExecutor(at_once), FastAPI()

    def answer(request: dict) -> dict:
        texts = [x["text"] for x in request["instances"]]
        inputs = tokenizer(texts, truncation=True, max_length=LENGTH, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**inputs).logits.float()
        rows = zip(logits.argmax(-1), logits, logits.softmax(-1), strict=True)
        return {
            "predictions": [
                {"label": str(int(k)), "logits": x.tolist(), "probabilities": p.tolist()}
                for k, x, p in rows
            ]
        }

    @app.post("/v1/models/model:predict")
    async def predict(request: dict):
        return await asyncio.get_running_loop().run_in_executor(pool, answer, request)

    # Clients keep their connections open, possibly for longer than the default of 5 seconds.
    uvicorn.run(app, port=port, log_level="warning", timeout_keep_alive=600)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("servers", nargs="*", help="NAME=URL of a model")
    parser.add_argument("--data", help="GLUE's SST-2/dev.tsv")
    parser.add_argument("--seconds", type=float, default=60, help="of a level")
    parser.add_argument("--clients", default="1,4,16,64", help="numbers of clients")
    parser.add_argument("--number", type=int, default=32, help="number of different requests")
    parser.add_argument("--serve", help="transformers folder to serve")
    parser.add_argument("--port", type=int, default=8502, help="of --serve")
    parser.add_argument("--dtype", default="float32", help="of --serve")
    parser.add_argument("--at_once", type=int, default=1, help="parallel requests of --serve")
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.port, given.dtype, given.at_once)
        return
    if not given.servers or not all("=http" in x for x in given.servers):
        sys.exit("server.py: pass servers, each as NAME=URL.")
    servers = dict(x.split("=", 1) for x in given.servers)
    bodies = read_bodies(given.data, given.number)
    alone = {name: ask_alone(name, url, bodies) for name, url in servers.items()}
    for number in map(int, given.clients.split(",")):
        for name, url in servers.items():
            numbers = load(url, bodies, alone[name], number, given.seconds)
            print(json.dumps({"server": name, **numbers}), flush=True)


if __name__ == "__main__":
    main()
