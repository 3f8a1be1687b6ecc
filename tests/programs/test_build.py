"""Runs the commands of the pages, from fine-tuning to serving, on data of a few rows."""

import ast
import gzip
import json
import math
import os
import re
import shlex
import subprocess
from pathlib import Path

import grpc
import program_flags
import pytest
import rest
import stand_in
import tensorflow as tf
import tiny_checkpoints
import tiny_program
import tiny_run

from albert_tf import config_io
from albert_tf.checkpoints import formats
from albert_tf.environments import virtual_environments
from albert_tf.errors import UserError
from albert_tf.plan.aot import environment
from albert_tf.tasks import submissions

checkpoint = tiny_program.checkpoint
ROOT = Path(__file__).parents[2]
TEXT = "a good day was followed by a bad one"
# For training; other modes read the config of the run.
SETTINGS = {**tiny_program.SETTINGS, "train_batch_size": 8, "num_train_steps": 2}

# The output for each model that docs/serve.md exports and runs.
ANSWERS = {
    "sentiment": r"(negative|positive) \(0\.\d+\)",
    "mrpc": r"[01] \(0\.\d+\)",
    "score": r"value: -?\d",
    "squad1": r"answer: .+",
    "squad2": r"null_odds: -?\d",
    "race": r"[A-D] \(0\.\d+\)",
    "words": r"tokens: ",
    "vectors": r"embedding: \[",
    "tokens": r"sequence_output: \[\[",
}


def blocks(page, language=""):
    """Returns the code of a page of docs/ in a language; without a language, its commands."""
    text = (ROOT / "docs" / f"{page}.md").read_text()
    matches = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return "".join(code for name, code in matches if name == language)


def commands(*pages):
    """Returns the commands of pages, in order, split into words."""
    lines = "".join(map(blocks, pages)).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line]


def table(path, header, row, labels=None, separator="\t"):
    """Writes eight rows: an index if the header has one, `row`, and the two labels alternately."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header]
    for k in range(8):
        index = [str(k)] if header[0] == "index" else []
        lines.append([*index, *row, *([labels[k % 2]] if labels else [])])
    path.write_text("".join(separator.join(cells) + "\n" for cells in lines))


def write_glue(folder):
    pair = ["a good day", "a bad day"]
    header = ["index", "sentence1", "sentence2"]
    mrpc_header = ["Quality", "#1 String", "#2 String"]
    for split in ("train", "dev"):
        table(
            folder / f"RTE/{split}.tsv", [*header, "label"], pair, ("entailment", "not_entailment")
        )
        table(folder / f"MRPC/{split}.tsv", [*mrpc_header[1:], "Quality"], pair, ("0", "1"))
    table(folder / "MRPC/test.tsv", ["index", *mrpc_header[1:]], pair)
    for name in ("train", "dev_matched", "dev_mismatched"):
        labels = ("neutral", "contradiction")
        table(folder / f"MNLI/{name}.tsv", [*header, "gold_label"], pair, labels)
    for name in ("MNLI/test_matched", "MNLI/test_mismatched", "diagnostic/diagnostic"):
        table(folder / f"{name}.tsv", header, pair)


def write_squad(path, answers):
    questions = [{"id": f"q{k}", "question": "was it good", **answers} for k in range(8)]
    paragraphs = [{"context": TEXT, "qas": questions}]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))


def write_race(folder):
    value = {"article": TEXT, "questions": ["it was _"] * 8, "answers": ["A", "B"] * 4}
    value["options"] = [["good", "bad", "so", "a"]] * 8
    for place in ("train/middle", "train/high", "dev/middle", "dev/high"):
        (folder / place).mkdir(parents=True)
        name = f"{place.split('/')[1]}1.txt"
        (folder / place / "1.txt").write_text(json.dumps({**value, "id": name}))


def write_tags(path):
    path.parent.mkdir(exist_ok=True)
    sentence = "ann B-PER\ncame O\nlate O\n\n"
    path.write_text(sentence * 8)


def write_data(folder):
    write_glue(folder / "glue")
    answered = {"answers": [{"text": "good", "answer_start": 2}]}
    for split in ("train", "dev"):
        write_squad(folder / f"squad/{split}-v1.1.json", answered)
        write_squad(folder / f"squad/{split}-v2.0.json", {**answered, "is_impossible": False})
        scored = ["question", "answer", "score"]
        table(folder / f"{split}.csv", scored, ["was it good", "so so"], ("0.5", "2"), ",")
        quiz = ["passage", "question", "a", "b", "c", "correct"]
        row = [TEXT, "it was", "good", "bad", "so"]
        table(folder / f"quiz/{split}.csv", quiz, row, ("A", "C"), ",")
        write_tags(folder / f"names/{split}.conll")
        table(folder / f"topics/{split}.tsv", ["text", "label"], [TEXT], ("food", "food,rooms"))
    write_squad(folder / "questions.json", {})
    write_race(folder / "race")
    (folder / "examples").symlink_to(ROOT / "examples")


@pytest.mark.slow
def test_fine_tuning_and_serving(run_program, checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    made = tiny_checkpoints.make(f"{checkpoint}/vocabulary", max_position_embeddings=128)
    (tmp_path / "albert_base").mkdir()
    formats.get_writer("google")(made, "albert_base")
    small = {name: file._replace(num_rows=8) for name, file in submissions.GLUE_FILES.items()}
    monkeypatch.setattr(submissions, "GLUE_FILES", small)
    (tmp_path / "tiny.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "texts").mkdir()
    for name in ("texts/a.jsonl.gz", "texts.jsonl.gz"):
        with gzip.open(tmp_path / name, "wt") as file:
            file.write('{"id": 7, "text": "Good food."}\n')
    fine_tuning = commands("finetune", "own_data", "predict")
    assert len(fine_tuning) >= 24
    for program, *arguments in fine_tuning:
        trains = program == "bin/run_finetuning" and "--mode=predict" not in arguments
        tiny = ["--config=tiny.json"] if trains else []
        if any(word.startswith("--num_seeds=") for word in arguments):
            tiny.append("--num_seeds=2")
        words = [_replace_hash(word, tmp_path) for word in arguments]
        error = run_program(ROOT / program, *words, *tiny)
        assert not error, (program, arguments, error)
    output = capsys.readouterr().out
    with gzip.open("predictions.jsonl.gz", "rt") as file:
        in_one_file = file.read()
    assert in_one_file.startswith('{"id": 7, "label": ')
    assert Path("predictions/predictions-00000-00000.jsonl").read_text() == in_one_file
    assert "average of 3 tasks without" in output
    assert "A wonderful evening" in output
    assert sorted(os.listdir("submission")) == ["glue.zip", "sources.txt"]
    assert json.loads(Path("seeds/mrpc/summary.json").read_text())["best_seed"]
    _serve(run_program, capsys)


def used_flags(arguments):
    return {word[2:].partition("=")[0] for word in arguments if word.startswith("--")}


def test_planning(run_program, tmp_path, monkeypatch, capsys):
    """Plans by formula; the commands that compile take minutes, so only their flags are checked."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    planned = [c for c in commands("plan") if c[0] == "bin/plan_training"]
    compiled = []
    for program, *arguments in planned:
        assert used_flags(arguments) <= program_flags.read(ROOT / program).keys()
        if {"--compile", "--search"} & set(arguments):
            compiled += [word for word in arguments if "=" not in word]
        else:
            assert not run_program(ROOT / program, *arguments)
    assert compiled == ["--compile", "--search", "--set", "--compile"]
    assert len(planned) == 6
    output = capsys.readouterr().out
    assert all(slice_ in output for slice_ in ("v5e:2x2", "v3:16x16", "A100"))
    assert json.loads(Path("plan.json").read_text())


@pytest.mark.slow
def test_a_step_for_jax(run_program, tmp_path, monkeypatch, capfd):
    try:
        virtual_environments.find_python(environment.PLAN)
    except UserError as error:
        pytest.skip(f"no step was exported: {error}")
    monkeypatch.chdir(tmp_path)
    for name in ("configs", ".venv-plan"):
        (tmp_path / name).symlink_to(ROOT / name)
    export, train = commands("plan")[-2:]
    assert export[0] == "bin/export_step"
    albert = config_io.to_dict(tiny_run.albert(max_position_embeddings=128))
    assert not run_program(ROOT / export[0], *export[1:], f"--set=albert={json.dumps(albert)}")
    capfd.readouterr()
    # Without the paths of this process: jax must not import modules of TensorFlow's environment.
    subprocess.run(train, check=True, env={"PATH": os.environ["PATH"], "JAX_PLATFORMS": "cpu"})
    output = capfd.readouterr().out
    assert output.count('{"loss": ') == 3
    assert "steps/s" in output


@pytest.mark.parametrize(
    "name",
    [
        *("run_pretraining", "run_finetuning", "create_pretraining_data"),
        *("create_finetuning_data", "plan_training"),
    ],
)
def test_docstrings_of_programs_have_commands_with_known_flags(name):
    docstring = ast.get_docstring(ast.parse((ROOT / "bin" / name).read_text()))
    lines = re.findall(r"^    .*", docstring, re.MULTILINE)
    assert lines
    for line, before in zip(lines, ["", *lines], strict=False):
        start = rf"    bin/{name}" if not before.endswith("\\") else " {7}"
        assert re.match(rf"{start}( \S+)+$", line), line
        assert (
            used_flags(shlex.split(line.rstrip("\\")))
            <= program_flags.read(ROOT / f"bin/{name}").keys()
        )


def _serve(run_program, capsys):
    """Runs the pages about serving, on the fine-tuned models."""
    patterns = dict(ANSWERS)
    for program, *arguments in commands("serve", "hub_modules"):
        if program == "curl":
            if "/v2/" in arguments[-1]:
                continue  # tests/serving has it
            _run_curl([program, *arguments])
        elif program == "python":
            program, *arguments = arguments
            capsys.readouterr()
            assert not run_program(ROOT / program, *arguments)
            name = re.fullmatch(r"--model=models/(\w+)/1", arguments[0])[1]
            assert re.search(f"^   {patterns.pop(name)}", capsys.readouterr().out, re.MULTILINE)
        elif program not in ("docker", "bin/serve"):  # tests/serving has that
            assert not run_program(ROOT / program, *arguments)
    assert not patterns
    variables = {}
    exec(blocks("hub_modules", "python"), variables)
    assert tf.reduce_mean(variables["losses"]) < math.log(2)


def _run_curl(command):
    """Serves the newest version of the model that the address names, as a server does."""
    name = re.search(r"/models/(\w+):", command[-1])[1]
    folder = max(Path("models", name).iterdir(), key=lambda path: int(path.name))
    with (
        stand_in.serving(str(folder)) as address,
        grpc.insecure_channel(address) as channel,
        rest.serving(channel, str(folder)) as port,
    ):
        words = [word.replace("localhost:8501", f"127.0.0.1:{port}") for word in command]
        done = subprocess.run([*words, "-sS", "--fail-with-body"], capture_output=True)
    assert not done.returncode, done
    assert json.loads(done.stdout)["model"] == name


def _replace_hash(word, folder):
    """The argument, with the existing task dataset in place of the one that only resembles it."""
    match = re.fullmatch(r"(--\w+=)(\S+/\S+-)0123456789abcdef", word)
    return match[1] + str(next(folder.glob(f"{match[2]}*"))) if match else word
