"""SavedModels are loaded without this code: in a fresh process, by saved_model_cli."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_exports

from albert_tf.export import model_versions, signatures

# A process that has TensorFlow and tensorflow-text, and not this project.
STRANGER = """
import sys
sys.modules.update(dict.fromkeys(["albert_tf", "export"]))
import numpy as np, tensorflow as tf, tensorflow_text
folder, requests, answers = sys.argv[1:]
loaded = tf.saved_model.load(folder)
inputs = {name: tf.constant(x) for name, x in np.load(requests).items()}
outputs = loaded.signatures["token_ids"](**inputs)
of_text = loaded.signatures["text"](text=tf.constant(["the cafe, naïve", ""]))
outputs["of_text"] = of_text["probabilities"]
np.savez(answers, **{name: x.numpy() for name, x in outputs.items() if x.dtype != tf.string})
"""


@pytest.mark.full
def test_a_fresh_process_needs_none_of_this_code(exported, tmp_path):
    model, folder = exported("classification", text=True)
    ids = tiny_exports.ids(model)
    np.savez(tmp_path / "requests.npz", **ids)
    paths = [folder, str(tmp_path / "requests.npz"), str(tmp_path / "answers.npz")]
    subprocess.run([sys.executable, "-c", STRANGER, *paths], check=True, cwd=tmp_path)
    wanted = tiny_exports.expected(model, ids)
    wanted = {name: x for name, x in wanted.items() if name not in ("label", "classes")}  # texts
    answer = signatures.make_signatures(model)["text"].function
    wanted["of_text"] = answer({"text": tf.constant(["the cafe, naïve", ""])})["probabilities"]
    tiny_exports.assert_same(dict(np.load(paths[-1])), wanted)


def test_saved_model_cli_shows_and_runs_it(exported, run_program, capsys):
    _, folder = exported("regression")
    cli = importlib.util.find_spec("tensorflow.python.tools.saved_model_cli").origin
    where = ["--dir", folder, "--tag_set", "serve"]
    assert not run_program(cli, "show", *where)
    shown = capsys.readouterr().out
    for name in ("serving_default", "token_ids", "regress"):
        assert f'"{name}"' in shown
    request = ["--signature_def", "regress", "--input_examples", 'inputs=[{"input_ids":[2,9,3]}]']
    assert not run_program(cli, "run", *where, *request)
    assert "Result for output key outputs" in capsys.readouterr().out


@pytest.mark.full
def test_versions_that_replace_each_other_answer_with_their_own_weights(tmp_path):
    answers = {}
    for number in (0, 1):
        model = tiny_exports.source("classification")
        for k, weight in enumerate(model.network.weights):
            weight.assign(np.random.default_rng([number, k]).normal(size=weight.shape))
        model_versions.write(model, str(tmp_path / "model"))
        ids = tiny_exports.ids(model)
        outputs = tiny_exports.expected(model, ids)
        answers |= {**ids, f"probabilities_{number}": outputs["probabilities"]}
    np.savez(tmp_path / "answers.npz", **answers)
    script = Path(__file__).parents[1] / "fixtures" / "swap_versions.py"
    places = [tmp_path / "model" / "1", tmp_path / "model" / "2", tmp_path / "answers.npz"]
    subprocess.run([sys.executable, script, *places], check=True)
