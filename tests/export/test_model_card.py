"""MODEL.md: what it shows is true, and its examples run."""

import json
import re
import shlex
import shutil
import subprocess
import types
from pathlib import Path

import pytest
import stand_in
import tensorflow as tf
import tiny_exports

from albert_tf.export import model_card, signatures

# One for each way that texts are asked.
KINDS = ("classification", "multiple_choice", "span_or_none", "fill_mask")
pytestmark = pytest.mark.full


@pytest.fixture(scope="module", params=KINDS)
def served(request, exported):
    """The model, its folder and its card."""
    model, written = exported(request.param, text=True)
    return model, written, Path(written, model_card.NAME).read_text()


def test_the_python_runs(served, capsys):
    _, folder, text = served
    (code,) = re.findall("```python\n(.*?)```", text, re.DOTALL)
    with stand_in.serving(folder) as address:
        code = code.replace("localhost:8500", address).replace("timeout=30", "timeout=300")
        exec(code, {})
    shown = capsys.readouterr().out
    for name in tiny_exports.load(folder).signatures["serving_default"].structured_outputs:
        assert f"{name} [" in shown


def test_every_signature_is_asked_by_rest(served):
    exported_model, folder, text = served
    section = text[text.index("## Requests") : text.index("## From Python")]
    commands = re.findall(r"^    (curl (?:.*\\\n)+.*)$", section, re.MULTILINE)
    names = []
    with stand_in.serving_rest(folder) as port:
        for command in commands:
            command = command.replace("localhost:8501", f"127.0.0.1:{port}")
            command = command.replace("curl", "curl -sS --fail-with-body")
            done = subprocess.run(["bash", "-c", command], capture_output=True)
            assert not done.returncode, (command, done)
            answer = json.loads(done.stdout)
            assert answer["model"] == exported_model.options.kind
            names.append(answer["signature"])
    assert sorted(["serving_default", *names]) == sorted(tiny_exports.load(folder).signatures)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_the_command_checks_the_hashes(exported, tmp_path, is_damaged):
    _, written = exported("classification", text=True)
    text = Path(written, model_card.NAME).read_text()
    folder = shutil.copytree(written, tmp_path / "copy")
    if is_damaged:
        path = folder / "assets" / "albert_config.json"
        path.write_text(path.read_text().replace("gelu", "relu"))
    command = next(line for line in text.splitlines() if "sha256sum" in line)
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr == "") == ((1, False) if is_damaged else (0, True))
    assert done.stdout == ("assets/albert_config.json: FAILED\n" if is_damaged else "")


def test_every_input_and_output_is_explained(served):
    _, folder, text = served
    sections = re.findall(r"^### (.*?)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    for name, function in tiny_exports.load(folder).signatures.items():
        (section,) = (body for heading, body in sections if f"`{name}`" in heading)
        for key in (*function.structured_input_signature[1], *function.structured_outputs):
            assert f"| `{key}` |" in section
    assert "None" not in text


def test_what_is_not_in_the_signatures_is_told(tmp_path, vocabulary):
    questions = tiny_exports.source("span_or_none", vocabulary, null_threshold=-1.25)
    text = write_card(tmp_path, questions, "/m/1")
    assert "above which there is no answer, is -1.25." in text
    assert "more than 100000 bytes in UTF-8 are refused" in text
    text = write_card(tmp_path, tiny_exports.source("multi_label", vocabulary), "/m/1")
    assert "in the order of their ids: x, y, größe, z." in text
    assert "above which a label applies: y 0.4, z 0.6." in text
    assert "no answer" not in text


def write_card(tmp_path, model, target):
    """The card of a model, without the model."""
    made = signatures.make_signatures(model)
    outputs = {"value": tf.TensorSpec([None], tf.float32)}
    functions = dict.fromkeys(made, types.SimpleNamespace(structured_outputs=outputs))
    model_card.write(model, made, functions, target, str(tmp_path))
    return (tmp_path / model_card.NAME).read_text()


@pytest.mark.parametrize(
    ("folder", "name", "word"),
    [
        ("/models/mrpc", "mrpc", "$(dirname $PWD):/models/mrpc"),
        ("/my $(x) 'models'/the \"b&st\"", "the__b_st_", "$(dirname $PWD):/models/the__b_st_"),
        ("gs://bucket/a b/mrpc", "mrpc", "--model_base_path=gs://bucket/a b/mrpc"),
    ],
)
def test_the_command_of_the_server_stands_odd_paths(tmp_path, folder, name, word):
    text = write_card(tmp_path, tiny_exports.source("regression"), f"{folder}/1")
    (command,) = re.findall(r"^    (docker run .*? \\\n.*)$", text, re.MULTILINE)
    assert {f"MODEL_NAME={name}", word} < {*shlex.split(command)}
    assert f"http://localhost:8501/v1/models/{name}:predict" in text
    assert f'request.model_spec.name = "{name}"' in text
