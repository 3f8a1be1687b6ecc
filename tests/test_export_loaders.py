"""SavedModels are loaded without this code: in a fresh process, by saved_model_cli, in C++."""

import shutil
import subprocess
import sys
from pathlib import Path

import cpp
import numpy as np
import pytest
import tensorflow as tf
import tiny_exports

from export import asked, signatures, warmup

# A process that has TensorFlow, and neither this project nor Keras.
STRANGER = """
import sys
sys.modules.update(dict.fromkeys(["albert_tf", "export", "keras"]))
import numpy as np, tensorflow as tf
folder, requests, answers = sys.argv[1:]
loaded = tf.saved_model.load(folder)
inputs = {name: tf.constant(x) for name, x in np.load(requests).items()}
outputs = loaded.signatures["token_ids"](**inputs)
np.savez(answers, **{name: x.numpy() for name, x in outputs.items() if x.dtype != tf.string})
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return tiny_exports.exporter(tmp_path_factory)


def test_a_fresh_process_needs_none_of_this_code(exported, tmp_path):
    found, folder = exported("classification")
    ids = tiny_exports.ids(found)
    np.savez(tmp_path / "requests.npz", **ids)
    paths = [folder, str(tmp_path / "requests.npz"), str(tmp_path / "answers.npz")]
    subprocess.run([sys.executable, "-c", STRANGER, *paths], check=True, cwd=tmp_path)
    wanted = tiny_exports.expected(found, ids)
    wanted.pop("label")
    tiny_exports.assert_same(dict(np.load(paths[-1])), wanted)


def test_saved_model_cli_shows_and_runs_it(exported):
    _, folder = exported("regression")
    cli = [str(Path(sys.executable).parent / "saved_model_cli")]
    if not Path(cli[0]).exists():
        cli = [sys.executable, "-m", "tensorflow.python.tools.saved_model_cli"]
    where = ["--dir", folder, "--tag_set", "serve"]
    shown = subprocess.run([*cli, "show", *where], check=True, capture_output=True, text=True)
    for name in ("serving_default", "token_ids", "regress"):
        assert f'"{name}"' in shown.stdout
    example = '[{"input_ids":[2,9,3]}]'
    done = subprocess.run(
        [
            *cli,
            "run",
            *where,
            "--signature_def",
            "regress",
            "--input_examples",
            f"inputs={example}",
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "Result for output key outputs" in done.stdout


@pytest.mark.slow
def test_the_cpp_loader_answers_the_requests_of_the_warm_up(exported, serve_check):
    """Models of token ids need no library; those of every kind are in test_export_texts.py."""
    found, folder = exported("classification")
    wanted = {
        name: {key: x.numpy() for key, x in signature.function(signature.example).items()}
        for name, signature in signatures.make(found).items()
    }
    cpp.assert_same(cpp.ask(serve_check, folder), wanted)


@pytest.mark.slow
def test_the_cpp_loader_finds_what_is_wrong(exported, serve_check, tmp_path):
    _, folder = exported("regression")
    broken = tmp_path / "1"
    shutil.copytree(folder, broken)
    warm_up = broken / warmup.FOLDER / warmup.NAME
    with tf.io.TFRecordWriter(str(warm_up)) as writer:
        request = asked.Signature({}, None, {"input_ids": tf.constant([[1.5]])})
        writer.write(warmup.log("token_ids", request).SerializeToString())
    done = subprocess.run([serve_check, broken], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "token_ids: another number of inputs"
