"""SavedModels in C++, by the functions that TensorFlow Serving calls: `serve_check.cc`."""

import shutil
import subprocess
import urllib.parse
from pathlib import Path

import numpy as np
import pytest
import server_ops
import tensorflow as tf
import tensorflow_text
import tiny_exports

from albert_tf.export import signatures

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
    libraries = [f"-l:libtensorflow_{x}.so.2" for x in ("cc", "framework")]
    linking = [f"-L{tensorflow}", "-Wl,--no-as-needed", *libraries, f"-Wl,-rpath,{tensorflow}"]
    source = str(Path(__file__).parents[1] / "fixtures" / "serve_check.cc")
    command = ["g++", "-O0", "-w", *options, *includes, source, "-o", str(program), *linking]
    subprocess.run(command, check=True)
    return program


@pytest.fixture(scope="module", params=KINDS)
def with_text(request, exported):
    return exported(request.param, text=True)


def ask(program, folder, libraries=()):
    """Its answers to the requests of the warm-up: {signature: {output: array}}."""
    done = subprocess.run([program, folder, *libraries], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]
    results = {}
    types = {"string": object, "float": np.float32, "int32": np.int32}
    for line in done.stdout.splitlines():
        signature, name, kind, shape, row = line.split("\t")
        values = row.split(" ")[:-1]
        values = [*map(urllib.parse.unquote_to_bytes, values)] if kind == "string" else values
        sizes = [int(size) for size in shape.strip("[]").split(",") if size]
        results.setdefault(signature, {})[name] = np.array(values, types[kind]).reshape(sizes)
    return results


def in_session(model, folder):
    """The answers of a session to the requests of the warm-up: {signature: {output: array}}."""
    requests = {
        name: {key: x.numpy() for key, x in signature.example.items()}
        for name, signature in signatures.make_signatures(model).items()
    }
    return tiny_exports.ask_session(folder, requests)


def test_it_answers_as_a_session(exported, with_text, serve_check):
    """Models of token ids need no library."""
    for (model, folder), libraries in ((exported("regression"), ()), (with_text, LIBRARIES)):
        answers, wanted = ask(serve_check, folder, libraries), in_session(model, folder)
        assert answers.keys() == wanted.keys()
        for name, outputs in wanted.items():
            shapes = [{k: x.shape for k, x in y.items()} for y in (answers[name], outputs)]
            assert shapes[0] == shapes[1]
            tiny_exports.assert_same(answers[name], outputs)


def test_what_is_said_to_need_a_library_needs_it(with_text, serve_check):
    _, folder = with_text
    alone = subprocess.run([serve_check, folder], capture_output=True, text=True)
    assert alone.returncode == (1 if server_ops.check(folder) else 0)
