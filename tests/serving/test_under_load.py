"""Random bodies, and a load while versions change: no request fails that is right."""

import asyncio
import itertools
import json
import os
import random
import shutil
import threading
import time

import pytest
import tiny_server

from albert_tf.serving.model_store import Entry, ModelStore
from albert_tf.serving.server_metrics import Metrics

pytestmark = pytest.mark.full
PATHS = ("/v1/models/labels:predict", "/v1/models/vectors:predict", "/v1/models/labels:classify")
PATHS += ("/v2/models/labels/infer", "/v2/models/vectors/infer", "/v1/embeddings")
KEYS = "instances inputs signature_name examples context text text_pair options input_ids model"
KEYS += " input_mask segment_ids name shape datatype data parameters binary_data_size b64 outputs"
KEYS = [*f"{KEYS} id input encoding_format dimensions binary_data_output".split(), ""]
WORDS = ["text", "text_pair", "token_ids", "classify", "serving_default", "count", "regress", "a"]
WORDS += ["vectors", "labels", "BYTES", "INT32", "FP32", "float", "base64", "YQ==", "größe 中", ""]
NUMBERS = [-1, 0, 1, 2, 2**31, 2**63, 2**70, -(2**63), 1.5, True, None]
PIECES = [bytes([x]) for x in b'{}[],:"019eE-+.\xff\0\\']
PIECES += [b"null", b"1e999", b"\\ud800", b"\\u0000", b"9" * 40, b"[" * 60, b"5" * 5000]
ROUNDS, VARIANTS = 900, 24
PATH = "/v1/models/m:predict"


def make_strategy(st):
    """Objects that look like requests: known keys and words, and any JSON in their places."""
    word, key = st.sampled_from(WORDS), st.sampled_from(KEYS)
    leaf = word | st.sampled_from(NUMBERS) | st.integers() | st.floats() | st.text()
    value = st.recursive(
        leaf, lambda x: st.lists(x, max_size=4) | st.dictionaries(key, x, max_size=4), max_leaves=9
    )
    words, numbers = st.lists(word, min_size=1, max_size=3), st.lists(st.integers(-1, 9))
    row = st.dictionaries(key, word | numbers | value, max_size=4)
    tensor = {"name": st.sampled_from(KEYS), "shape": numbers, "datatype": word}
    tensor |= {"data": words | numbers | value, "parameters": row}
    rows = words | st.lists(row, max_size=3) | value
    fields = {"signature_name": word, "instances": rows, "examples": rows, "input": rows}
    fields |= {"model": word, "dimensions": leaf, "parameters": row}
    fields["inputs"] = rows | row | st.lists(st.fixed_dictionaries({}, optional=tensor), max_size=3)
    return st.fixed_dictionaries({}, optional=fields)


def mutate(rng, data):
    """Returns bytes with one to three things left out, put in or repeated."""
    for _ in range(rng.randint(1, 3)):
        begin = rng.randrange(len(data) + 1)
        end = min(len(data), begin + rng.choice([0, 1, 1, 4, 20]))
        middle = rng.choice([b"", rng.choice(PIECES), 2 * data[begin:end], rng.randbytes(1)])
        data = data[:begin] + middle + data[end:]
    return data


async def ask(app, path, body, headers):
    """Returns the status of an application's reply."""
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
    messages, sent = iter([{"type": "http.request", "body": body, "more_body": False}]), []

    async def receive():
        return next(messages, None) or await asyncio.get_running_loop().create_future()

    async def send(message):
        sent.append(message)

    await app({**scope, "headers": headers}, receive, send)
    return sent[0]["status"]


async def ask_all(app, bodies, rng, counts):
    calls = []
    for path, body in itertools.product(PATHS, bodies):
        headers, binary = [(b"host", b"127.0.0.1")], b""
        if "infer" in path and rng.random() < 0.3:
            binary = rng.randbytes(rng.choice([0, 3, 8])) + b"\x01\0\0\0a" * rng.randint(0, 2)
            length = rng.choice([len(body), len(body), len(body) + 99, -1])
            headers.append((b"inference-header-content-length", b"%d" % length))
        calls.append((path, body + binary, headers))
    for call, status in zip(
        calls, await asyncio.gather(*[ask(app, *x) for x in calls]), strict=True
    ):
        counts[status] = counts.get(status, 0) + 1
        assert status in (200, 400, 404, 413), call


def test_no_body_makes_the_server_fail(models):
    hypothesis = pytest.importorskip("hypothesis")
    st, counts, loop = hypothesis.strategies, {}, asyncio.new_event_loop()
    rounds = int(os.environ.get("ALBERT_FUZZ_ROUNDS", ROUNDS))
    options = {"database": None, "derandomize": True, "deadline": None}

    @hypothesis.settings(
        **options, max_examples=rounds, suppress_health_check=[*hypothesis.HealthCheck]
    )
    @hypothesis.given(make_strategy(st), st.integers(0, 2**32))
    def run(value, seed):
        rng, body = random.Random(seed), json.dumps(value).encode()
        bodies = [body, *(mutate(rng, body) for _ in range(VARIANTS))]
        loop.run_until_complete(ask_all(client.guard.app, bodies, rng, counts))

    store, batching = tiny_server.make_store(**models), {"max_queue": 10_000, "num_threads": 2}
    with tiny_server.serving(store, batching=batching) as client:
        run()
    loop.close()
    print(counts)
    assert counts[200] > 100 and counts[400] > 10_000


def ask_until(ends, client, rng, counts, failed):
    """Asks, one in ten times with half a body, or without waiting for the answer."""
    while time.monotonic() < ends:
        texts = ["x" * rng.choice([0, 3, 40, 700]) for _ in range(rng.choice([1, 1, 1, 5]))]
        body, key = (
            json.dumps({"inputs": texts}).encode(),
            rng.choice(["right"] * 18 + ["bad", "gone"]),
        )
        if key == "gone":
            with client.connect() as connection:
                line = f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}"
                connection.sendall(f"{line}\r\n\r\n".encode() + body)
                time.sleep(rng.random() / 50)
        else:
            reply = client.ask(PATH, body if key == "right" else body[: rng.randrange(len(body))])
            versions = {x[1] for x in reply.json.get("outputs", [])}
            wanted = [[len(x), *versions, 1, 2] for x in texts]  # one version has answered
            is_right = reply.status == 400 if key == "bad" else reply.json.get("outputs") == wanted
            if not is_right:
                failed.append((key, reply.status, reply.content[:200]))
        counts[key] += 1


def test_no_request_fails_while_versions_change(tmp_path):
    sources = [tiny_server.write_model(str(tmp_path / "sources"), k) for k in (1, 2)]
    folder, counts, failed = tmp_path / "m", {"right": 0, "bad": 0, "gone": 0}, []
    folder.mkdir()

    def put(version):
        made = shutil.copytree(sources[version % 2], tmp_path / "new")
        if version % 5 == 4:
            (made / "saved_model.pb").write_bytes(b"damage")
        made.rename(folder / str(version))
        shutil.rmtree(folder / str(version - 3), ignore_errors=True)

    put(1)
    store, ends = ModelStore([Entry("m", str(folder))], Metrics()), time.monotonic() + 60
    store.start(0.2, failed.append)
    with tiny_server.serving(store, batching={"num_threads": 2}) as client:
        while client.ask("/v2/health/ready").status != 200:
            time.sleep(0.05)
        threads = [
            threading.Thread(
                target=ask_until, args=(ends, client, random.Random(k), counts, failed)
            )
            for k in range(6)
        ]
        for thread in threads:
            thread.start()
        for version in itertools.count(2):
            time.sleep(3)
            if time.monotonic() > ends:
                break
            put(version)
        for thread in threads:
            thread.join()
    assert store.close(20)
    print(counts, version)
    assert not failed
    assert min(counts.values()) > 10  # each was tried, on a busy machine too
