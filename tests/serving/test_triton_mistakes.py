"""bin/serve where it cannot run: one line, and nothing is left."""

import os
import shutil
import socket

import pytest
import tensorflow as tf
import tiny_exports
from repository import ROOT

from albert_tf import files
from albert_tf.environments import virtual_environments
from albert_tf.export import model_versions
from albert_tf.serving.triton import triton_process

PROGRAM = ROOT / "bin/serve"
PORTS = ["--http_port=0", "--grpc_port=0", "--metrics_port=0"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A folder of versions."""
    folder = str(tmp_path_factory.mktemp("models") / "words")
    model_versions.write(tiny_exports.source("fill_mask"), folder)
    return folder


@pytest.fixture(autouse=True)
def never_started(monkeypatch):
    def fail(*_):
        raise AssertionError("the server is started")

    monkeypatch.setattr(triton_process, "make_python", fail)


def copy_model(exported, folder):
    return shutil.copytree(exported, folder / "words")


def cut_unhashed(folder, size):
    os.remove(folder / "sha256.json")
    os.truncate(folder / "saved_model.pb", size)


MISTAKES = {
    "no folder": (lambda folder: shutil.rmtree(folder), "is no folder. Make one: bin/"),
    "empty": (lambda folder: shutil.rmtree(folder / "1"), "has no exported model. Make one"),
    "a run": (
        lambda folder: (shutil.rmtree(folder / "1"), (folder / "config.json").touch()),
        "is a run, not an export of one",
    ),
    "half-written": (
        lambda folder: os.remove(folder / "1/variables/variables.index"),
        "/1 lacks variables/variables.index: remove that folder",
    ),
    "the newest is half-written": (
        lambda folder: (folder / "2").mkdir(),
        "/2 lacks saved_model.pb: remove that folder",
    ),
    "cut off": (
        lambda folder: os.truncate(folder / "1/saved_model.pb", 999),
        "/1/saved_model.pb is damaged: it does not have the hash of",
    ),
    "cut off, of earlier versions": (
        lambda folder: cut_unhashed(folder / "1", 999),
        "/1 is damaged: remove that folder",
    ),
    "no graph, of earlier versions": (
        lambda folder: cut_unhashed(folder / "1", 0),
        "/1 is damaged: remove that folder",
    ),
}


@pytest.mark.parametrize(("damage", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_a_folder_without_a_whole_model_is_refused(
    exported, run_program, tmp_path, damage, sentence
):
    folder = copy_model(exported, tmp_path)
    damage(folder)
    message = run_program(PROGRAM, f"--model={folder}", *PORTS)
    assert message.startswith(f"serve: {folder}")
    assert sentence in message
    assert "\n" not in message


def test_one_version_is_no_model(exported, run_program):
    message = run_program(PROGRAM, f"--model={exported}/1", *PORTS)
    assert message == (
        f"serve: {exported}/1 is one version of a model: give the folder of all, {exported}."
    )


def test_a_saved_model_of_another_kind_is_refused(run_program, tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "other/1"))
    (tmp_path / "other/1/variables/variables.data-00000-of-00001").touch()
    (tmp_path / "other/1/variables/variables.index").touch()
    message = run_program(PROGRAM, f"--model={tmp_path}/other", *PORTS)
    assert message == f"serve: {tmp_path}/other/1 is no model of bin/export_saved_model."


def test_two_models_of_one_name_are_refused(exported, run_program):
    message = run_program(PROGRAM, f"--model={exported}", f"--model={exported}/", *PORTS)
    assert message == "serve: --model: two models have the name words: rename one."


def test_a_port_that_is_taken_is_named(exported, run_program):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = run_program(PROGRAM, f"--model={exported}", *PORTS, f"--grpc_port={port}")
    assert message.startswith(
        f"serve: --grpc_port: 127.0.0.1:{port} cannot be had (Address already"
    )
    assert "\n" not in message


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--http_port=70000"], "--http_port: 70000 is no port: give one below 65536."),
        (["--http_port=2001", "--grpc_port=2001"], "--grpc_port: 127.0.0.1:2001 cannot be had"),
        (["--host=no.such.host.invalid"], "--host: no.such.host.invalid is no address: give an"),
        (["--host=192.0.2.1"], "192.0.2.1:0 cannot be had"),
    ],
)
def test_addresses_that_cannot_be_had_are_refused(exported, run_program, flags, sentence):
    message = run_program(PROGRAM, f"--model={exported}", *PORTS, *flags)
    assert sentence in message
    assert "\n" not in message


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "x86_64"), ("Linux", "aarch64")])
def test_other_platforms_are_refused(monkeypatch, exported, run_program, system, machine):
    monkeypatch.undo()
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    message = run_program(PROGRAM, f"--model={exported}", *PORTS)
    assert message == (
        "serve: Triton's server is for Linux on an x86 processor. Take TensorFlow Serving "
        "(albert_tf/serving/README.md)."
    )


def test_a_python_without_its_library_is_refused(monkeypatch, exported, run_program, tmp_path):
    monkeypatch.undo()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(virtual_environments, "ROOT", tmp_path)
    monkeypatch.setattr(virtual_environments, "_runs", lambda *_: False)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    message = run_program(PROGRAM, f"--model={exported}", *PORTS)
    assert message.startswith("serve: no Python 3.10 to 3.12 with venv and its library")
    assert "apt install" in message
    assert not list(tmp_path.glob("albert-serve*"))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("{", "is not JSON"), ('{"text": {"inputs": {}}}', "/1 is damaged"), ("[]", "/1 is damaged")],
)
def test_damaged_signatures_of_an_int8_model_are_one_line(run_program, tmp_path, content, sentence):
    version = tmp_path / "words/1"
    for name in model_versions.FORMATS[model_versions.INT8_GRAPH]:
        (version / name).parent.mkdir(parents=True, exist_ok=True)
        (version / name).touch()
    (version / model_versions.SIGNATURES).write_text(content)
    message = run_program(PROGRAM, f"--model={tmp_path}/words", *PORTS)
    assert sentence in message
    assert "\n" not in message


def test_an_int8_model_in_a_store_is_one_line(run_program):
    version = "ram://models/words/1"
    for name in model_versions.FORMATS[model_versions.INT8_GRAPH]:
        tf.io.gfile.makedirs(os.path.dirname(f"{version}/{name}"))
        files.write_bytes(f"{version}/{name}", b"")
    message = run_program(PROGRAM, "--model=ram://models/words", *PORTS)
    assert message == f"serve: {version} is an int8 model, which is served from a disk: copy it."
