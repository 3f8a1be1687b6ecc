"""SavedModels in C++, by the functions that TensorFlow Serving calls: `serve_check.cc`."""

import shutil
import subprocess
from pathlib import Path

import cpp
import pytest
import server_ops
import tensorflow as tf
import tensorflow_text
import tiny_exports

from albert_tf.export import serving_api, signatures

LIBRARIES = sorted(Path(tensorflow_text.__file__).parent.glob("python/ops/_*.so"))
# The most and the fewest operations; test_text_signatures asks every kind, in a session.
KINDS = ("classification", "span_or_none")
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def serve_check(tmp_path_factory):
    """The program, compiled."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++ here: the C++ loader was not tried.")
    program = tmp_path_factory.mktemp("bin") / "serve_check"
    tensorflow = tf.sysconfig.get_lib()
    includes = [f"-I{tensorflow}/include", f"-I{tensorflow}/include/external/com_google_protobuf"]
    options = [x for x in tf.sysconfig.get_compile_flags() if not x.startswith("-I")]
    # Without --no-as-needed the linker leaves out the library that registers sessions and kernels.
    libraries = [
        "-Wl,--no-as-needed",
        "-l:libtensorflow_cc.so.2",
        "-l:libtensorflow_framework.so.2",
    ]
    linking = [f"-L{tensorflow}", *libraries, f"-Wl,-rpath,{tensorflow}"]
    source = str(Path(__file__).parents[1] / "fixtures" / "serve_check.cc")
    command = ["g++", "-O0", "-w", *options, *includes, source, "-o", str(program), *linking]
    subprocess.run(command, check=True)
    return program


@pytest.fixture(scope="module", params=KINDS)
def with_text(request, exported):
    return exported(request.param, text=True)


def in_session(model, folder):
    """The answers of a session to the requests of the warm-up: {signature: {output: array}}."""
    requests = {
        name: {key: x.numpy() for key, x in signature.example.items()}
        for name, signature in signatures.make_signatures(model).items()
    }
    return tiny_exports.ask_session(folder, requests)


def test_models_of_token_ids_need_no_library(exported, serve_check):
    model, folder = exported("regression")
    cpp.assert_same(cpp.ask(serve_check, folder), in_session(model, folder))


def test_models_of_texts(with_text, serve_check):
    model, folder = with_text
    cpp.assert_same(cpp.ask(serve_check, folder, LIBRARIES), in_session(model, folder))


def test_what_is_said_to_need_a_library_needs_it(with_text, serve_check):
    _, folder = with_text
    alone = subprocess.run([serve_check, folder], capture_output=True, text=True)
    assert alone.returncode == (1 if server_ops.check(folder) else 0)


def test_what_is_wrong_is_found(exported, serve_check, tmp_path):
    _, folder = exported("regression")
    broken = tmp_path / "1"
    shutil.copytree(folder, broken)
    warm_up = broken / serving_api.WARMUP_FILE
    with tf.io.TFRecordWriter(str(warm_up)) as writer:
        request = serving_api.Signature({}, None, {"input_ids": tf.constant([[1.5]])})
        writer.write(serving_api.make_log("token_ids", request).SerializeToString())
    done = subprocess.run([serve_check, broken], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "token_ids: another number of inputs"
