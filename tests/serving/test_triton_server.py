"""A real server: what it answers over HTTP and gRPC, under load, and how it starts and ends."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import hostile
import kserve
import numpy as np
import pytest
import tensorflow as tf
import tiny_run
from repository import ROOT

from albert_tf.serving.triton import triton_process

pytestmark = pytest.mark.slow
KINDS = ("classification", "encoder", "span_or_none")
WORDS = ["the", "cafe", "sold", "2011", "offices", "to", "them", "and", "went", "on"] * 9


@pytest.fixture(scope="module")
def models(exported, tmp_path_factory):
    """{kind: folder of its versions}"""
    kserve.require_triton()
    folder = tmp_path_factory.mktemp("models")
    for kind in KINDS:
        shutil.copytree(exported(kind, text=True)[1], folder / kind / "1")
    return {kind: folder / kind for kind in KINDS}


@pytest.fixture(scope="module")
def served(models, tmp_path_factory):
    flags = [f"--model={folder}" for folder in models.values()]
    with kserve.serving(tmp_path_factory.mktemp("server"), *flags) as server:
        yield server
        server.process.terminate()
        assert server.process.wait(60) == 143


@pytest.fixture(scope="module")
def functions(models):
    """{kind: {signature: function of arrays}}, in this process."""

    def make(signature):
        def run(inputs):
            outputs = signature(**{name: tf.constant(x) for name, x in inputs.items()})
            return {name: x.numpy() for name, x in outputs.items()}

        return run

    loaded = {kind: tf.saved_model.load(str(folder / "1")) for kind, folder in models.items()}
    return {
        kind: {name: make(x) for name, x in model.signatures.items()}
        for kind, model in loaded.items()
    }


def make_texts(number):
    return [" ".join(WORDS[: 1 + 7 * index % 60]).encode() for index in range(number)]


def test_the_printed_commands_work(served, models):
    commands = [line for line in served.output.read_text().splitlines() if line.startswith("curl")]
    assert len(commands) == 3
    outputs = [
        subprocess.run([*shlex.split(c), "-sS"], capture_output=True, text=True, check=True).stdout
        for c in commands
    ]
    assert {x["name"] for x in json.loads(outputs[0])["outputs"]} >= {"label", "probabilities"}
    assert json.loads(outputs[1])["versions"] == ["1"]
    assert "nv_inference_request_success" in outputs[2]


def test_the_command_of_the_page_works(served):
    page = (ROOT / "docs/serve.md").read_text().replace("\\\n", " ")
    [command] = re.findall(r"^curl -d '.*?' +\S+/v2/\S+$", page, re.MULTILINE | re.DOTALL)
    command = command.replace(":8000/", f":{served.ports[0]}/").replace("sentiment", KINDS[0])
    done = subprocess.run([*shlex.split(command), "-sS"], capture_output=True, check=True)
    assert {tuple(x["shape"]) for x in json.loads(done.stdout)["outputs"]} == {(2, 1), (2, 3)}


def test_the_commands_of_the_cards_work(served, models, functions):
    for kind, folder in models.items():
        text = (folder / "1/MODEL.md").read_text()
        commands = re.findall(r"^    ((?:curl|echo) (?:.*\\\n)+.*/v2/.*)$", text, re.MULTILINE)
        answered = []
        for command in commands:
            command = command.replace("localhost:8000", f"127.0.0.1:{served.ports[0]}")
            done = subprocess.run(["bash", "-c", command], capture_output=True, check=True)
            answered.append({x["name"] for x in json.loads(done.stdout)["outputs"]})
        assert len(answered) == len(functions[kind]) - 1  # the default has another name, too


def test_every_signature_answers_as_in_python(served, models, functions):
    num_requests = 0
    for kind, folder in models.items():
        for name, inputs in kserve.read_warmup(str(folder / "1")).items():
            answer = kserve.ask(served.ports[0], kind, inputs)
            kserve.assert_same(answer, functions[kind][name](inputs))
            num_requests += 1
    assert num_requests == 13


# Of a client that has neither TensorFlow nor this project.
GRPC_CLIENT = """
import sys
import numpy as np
import tritonclient.grpc as client
server = client.InferenceServerClient(sys.argv[1])
assert server.is_server_ready() and server.is_model_ready("classification", "1")
texts = np.array([["a good day"], ["naïve \\x00 ﷺ"]], object)
text = client.InferInput("text", [2, 1], "BYTES")
text.set_data_from_numpy(np.array([[x.encode()] for x in texts.ravel()], object))
answer = server.infer("classification", [text])
print(answer.as_numpy("label").ravel(), answer.as_numpy("probabilities").tolist())
try:
    server.infer("classification", [client.InferInput("options", [1, 1], "BYTES")])
except client.InferenceServerException as error:
    print(error.status())
"""


def test_a_client_of_grpc_gets_the_same(served, functions):
    python = triton_process.make_python()
    command = [python, "-c", GRPC_CLIENT, f"127.0.0.1:{served.ports[1]}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    texts = np.array([b"a good day", "naïve \x00 ﷺ".encode()], object)
    expected = functions["classification"]["text"]({"text": texts})
    labels, _, numbers = done.stdout.splitlines()[0].partition("] ")
    assert re.findall("b'(.*?)'", labels) == [x.decode() for x in expected["label"]]
    np.testing.assert_allclose(json.loads(numbers), expected["probabilities"], 1e-5, 1e-5)
    assert done.stdout.splitlines()[1] == "StatusCode.INVALID_ARGUMENT"


def test_requests_at_once_are_joined_and_answered_as_alone(served, functions):
    texts = make_texts(200)
    expected = [functions["encoder"]["text"]({"text": np.array([x], object)}) for x in texts[:60]]
    before = [
        kserve.read_metric(served, f"nv_inference_{x}_count") for x in ("request_success", "exec")
    ]

    def ask(text):
        return kserve.ask(served.ports[0], "encoder", {"text": np.array([text], object)})

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(ask, texts))
    for index, answer in enumerate(answers):
        kserve.assert_same(answer, expected[index % 60])
    after = [
        kserve.read_metric(served, f"nv_inference_{x}_count") for x in ("request_success", "exec")
    ]
    assert after[1] - before[1] < 150  # of 200


def test_one_bad_request_is_nobody_elses_error(served, functions):
    ids = {name: np.ones([1, 5], np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    bad = ids | {"input_ids": np.full([1, 5], 10**6, np.int32)}
    expected = functions["classification"]["token_ids"](ids)
    with ThreadPoolExecutor(16) as pool:
        requests = [bad if index % 4 == 0 else ids for index in range(64)]
        answers = list(
            pool.map(lambda x: kserve.ask(served.ports[0], "classification", x), requests)
        )
    for request, answer in zip(requests, answers, strict=True):
        if request is bad:
            assert answer == (400, f"input_ids must be from 0 to {tiny_run.VOCAB - 1}.")
        else:
            kserve.assert_same(answer, expected)


def test_data_that_do_not_fill_their_shape_are_refused(served):
    text = {"name": "text", "shape": [2**40, 1], "datatype": "BYTES", "data": ["a"]}
    body = json.dumps({"inputs": [text]}).encode()
    status, content = kserve.post(served.ports[0], "/v2/models/classification/infer", body)
    assert (status, b"do not fill its shape" in content) == (400, True), content


def test_clients_can_neither_load_programs_nor_read_memory(served):
    for path, status in {
        "/v2/repository/models/classification/load": 503,
        "/v2/repository/models/classification/unload": 503,
        "/v2/systemsharedmemory/region/x/register": 403,
        "/v2/trace/setting": 403,
        "/v2/logging": 403,
    }.items():
        assert kserve.post(served.ports[0], path, b"{}")[0] == status, path
    assert kserve.post(served.ports[0], "/v1/models/classification:predict", b"{}")[0] == 404


def test_hostile_requests_are_refused_and_nobody_dies(served, functions):
    ids_before = kserve.find_servers(served)
    assert len(ids_before) == 1 + len(KINDS)
    counts = hostile.send(served.ports[0], functions, number=300, seed=0)
    assert counts["wrong"] == counts["ended"] == counts["late"] == [], counts
    assert counts["refused"] > 30
    assert counts["answered"] > 100
    assert kserve.find_servers(served) == ids_before


def test_too_many_requests_are_refused_and_then_it_recovers(served, functions):
    """Each context is read in many windows, so that the queue fills."""
    question, context = b"who went on?", " ".join(WORDS * 6).encode()
    inputs = {"question": np.array([question], object), "context": np.array([context], object)}
    expected = functions["span_or_none"]["question"](inputs)
    with ThreadPoolExecutor(200) as pool:
        ask = (pool.submit(kserve.ask, served.ports[0], "span_or_none", inputs) for _ in range(400))
        answers = [answer.result() for answer in list(ask)]
    refused = [answer for answer in answers if isinstance(answer, tuple)]
    assert {status for status, _ in refused} == {503}
    assert len(refused) < 350
    for answer in answers:
        if not isinstance(answer, tuple):
            kserve.assert_same(answer, expected)
    kserve.assert_same(kserve.ask(served.ports[0], "span_or_none", inputs), expected)


def test_an_export_replaces_the_version_and_no_request_is_lost(served, models):
    """A damaged one does not."""
    folder = models["classification"]
    text = {"text": np.array([b"the cafe sold offices"], object)}
    answers, stop = [], threading.Event()

    def ask():
        body, headers = kserve.encode(text)
        while not stop.is_set():
            sent = time.monotonic()
            status, content = kserve.post(
                served.ports[0], "/v2/models/classification/infer", body, headers
            )
            assert status == 200, content
            answers.append((sent, time.monotonic(), json.loads(content)["model_version"]))
            time.sleep(0.05)

    with ThreadPoolExecutor(3) as pool:
        clients = [pool.submit(ask) for _ in range(3)]
        try:
            export_copy(folder, 2)
            kserve.wait_for(served.output, served.process, f"{folder}/2 is served")
            export_copy(folder, 3, "variables/variables.data-00000-of-00001")
            kserve.wait_for(served.output, served.process, f"{folder}/3 cannot be loaded")
            shutil.rmtree(folder / "3")
            time.sleep(1)
        finally:
            stop.set()
        for client in clients:
            client.result()
    assert {version for *_, version in answers} == {"1", "2"}
    first = min(received for _, received, version in answers if version == "2")
    assert {version for sent, _, version in answers if sent > first} == {"2"}


def export_copy(folder, version, damaged=None):
    """Writes another version as bin/export_saved_model does, in one step; or a damaged one."""
    shutil.copytree(folder / "1", folder / "copy")
    if damaged:
        os.truncate(folder / "copy" / damaged, 10)
        os.remove(
            folder / "copy" / "sha256.json"
        )  # else bin/serve refuses it before Triton loads it
    (folder / "copy").rename(folder / str(version))


def test_it_stops_after_its_time_and_leaves_no_process(models, tmp_path):
    flags = [f"--model={models['encoder']}", "--timeout_s=1"]
    with kserve.serving(tmp_path / "server", *flags) as server:
        ids = kserve.find_servers(server)
        assert server.process.wait(60) == 0
    assert kserve.is_gone(ids)


def test_requests_alone_crashes_and_the_rest_of_a_killed_server(models, tmp_path, monkeypatch):
    """What ends the server costs seconds, and what a killed one has left is removed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    left_over = tmp_path / f"albert-serve.{'0' * 32}.tmp"
    (left_over / "models").mkdir(parents=True)
    text = {"text": np.array([b"the cafe sold offices"], object)}
    model = f"--model={models['encoder']}"
    with kserve.serving(tmp_path / "server", model, "--nojoin_requests") as server:
        assert not left_over.exists()
        assert len(list(tmp_path.glob("albert-serve*"))) == 1
        before = kserve.read_metric(server, "nv_inference_exec_count")
        with ThreadPoolExecutor(16) as pool:
            ask = [pool.submit(kserve.ask, server.ports[0], "encoder", text) for _ in range(64)]
            answers = [answer.result() for answer in ask]
        assert kserve.read_metric(server, "nv_inference_exec_count") - before == 64
        for message, request in hostile.make_crashes().items():
            with contextlib.suppress(OSError):
                assert kserve.post(server.ports[0], "/v2/models/encoder/infer", *request)[0] == 500
            kserve.wait_for(server.output, server.process, message, 60)
            kserve.wait_until_ready(server.ports[0])
            answer = kserve.ask(server.ports[0], "encoder", text)
            assert {name: x.tolist() for name, x in answer.items()} == {
                name: x.tolist() for name, x in answers[0].items()
            }
        ids = kserve.find_servers(server)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 130
    assert kserve.is_gone(ids)
    assert not list(tmp_path.glob("albert-serve*"))
