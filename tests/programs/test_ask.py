"""albert_tf/serving/ask.py: an exported model, asked without this project."""

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf
import tiny_exports

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[2] / "albert_tf/serving/ask.py"
# This project is not there.
STRANGER = """
import runpy, sys
sys.modules.update(dict.fromkeys(["albert_tf", "data_prep", "export"]))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def folder_of(exported):
    return lambda kind: exported(kind, text=True)[1]


@pytest.fixture
def ask(folder_of, run_program, capsys):
    """Asks a kind of model; returns the lines that are printed."""

    def run(kind, *arguments):
        assert not run_program(PROGRAM, f"--model={folder_of(kind)}", *arguments)
        return capsys.readouterr().out.splitlines()

    return run


def test_three_texts_in_a_fresh_process(folder_of, tmp_path):
    folder, texts = folder_of("classification"), ["a good day", "it was so so", ""]
    command = [sys.executable, "-c", STRANGER, PROGRAM, f"--model={folder}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [*command, *(f"--text={text}" for text in texts)],
        check=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Of the processors, which others use as well: seconds go by faster.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 20
    answers = tiny_exports.load(folder).signatures["text"](text=tf.constant(texts))
    labels = [label.decode() for label in answers["label"].numpy()]
    chances = answers["probabilities"].numpy().max(1)
    lines = [
        line
        for text, label, chance in zip(texts, labels, chances, strict=True)
        for line in (text, f"   {label} ({chance:.3f})")
    ]
    assert done.stdout.splitlines() == lines
    assert done.stderr == ""


def test_pairs_are_asked_of_their_signature(ask, folder_of):
    lines = ask("regression", "--text=a b", "--second_text=c", "--text=d", "--second_text=e f")
    assert lines[::2] == ["a b | c", "d | e f"]
    pair = {"text": tf.constant(["a b", "d"]), "text_pair": tf.constant(["c", "e f"])}
    values = tiny_exports.load(folder_of("regression")).signatures["text_pair"](**pair)["value"]
    matches = [float(re.fullmatch(r"   value: (\S+)", line)[1]) for line in lines[1::2]]
    assert matches == pytest.approx(values.numpy().tolist(), abs=1e-3)


def test_an_answer_comes_before_where_it_is(ask):
    lines = ask("span_or_none", "--question=a b", "--context=c d e f")
    assert lines[0] == "a b | c d e f"
    answer = lines[1].removeprefix("   answer: ")
    rest = dict(line.strip().split(": ") for line in lines[2:])
    assert set(rest) == {"start", "end", "score", "probability", "null_odds"}
    assert "c d e f"[int(rest["start"]) : int(rest["end"])] == answer


def test_options_are_of_one_question(ask):
    options = [f"--options={letter}" for letter in "abcde"]
    lines = ask("multiple_choice", "--passage=a b c", "--question=a", *options)
    assert lines[0] == "a | a b c"
    assert re.fullmatch(r"   [A-E] \(0\.\d{3}\)", lines[1])


def test_guesses_and_vectors_are_shown(ask):
    lines = ask("fill_mask", "--text=a [MASK] b")
    assert lines[:1] == ["a [MASK] b"]
    assert re.fullmatch(r"   tokens: \[\['.*'\]\]", lines[1])
    (_, vector) = ask("sentence_embedding", "--text=a")
    numbers = vector.removeprefix("   embedding: [").removesuffix("]").split()
    assert len([float(number) for number in numbers]) == 8


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("saved_model.pb", b"no such thing"),
        ("variables/variables.index", b""),
        ("variables/variables.data-00000-of-00001", b""),
    ],
)
def test_a_damaged_model_is_told_in_one_line(folder_of, run_program, tmp_path, name, content):
    folder = shutil.copytree(folder_of("classification"), tmp_path / "model")
    (folder / name).write_bytes(content)
    message = run_program(PROGRAM, f"--model={folder}", "--text=a")
    assert message.startswith(f"ask.py: --model: {folder} is damaged: ")
    assert "\n" not in message


MISTAKES = {
    "another folder": (["--model=none", "--text=a"], "none is no version of a model"),
    "other flags": (["--question=a"], "the model takes other flags: see .*/MODEL.md"),
    "no text": ([], "the model takes other flags: see .*/MODEL.md"),
    "a text too few": (
        ["--text=a", "--text=b", "--second_text=c"],
        "the inputs of a request must have the same number of rows.",
    ),
}


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes_are_told_in_one_line(folder_of, run_program, arguments, sentence):
    message = run_program(PROGRAM, f"--model={folder_of('classification')}", *arguments)
    assert re.match(rf"ask\.py: .*{sentence}", message)
    assert "\n" not in message
