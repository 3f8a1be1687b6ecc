"""Runs the commands of the pages in their order, on data of a few rows."""

import gzip
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import page_data
import pages
import pytest
import tensorflow as tf
import tiny_checkpoints
import tiny_program
import tiny_run
from repository import ROOT

from albert_tf import config, config_io
from albert_tf.checkpoints import formats
from albert_tf.tasks import submissions

BUILD = (ROOT / "BUILD.md").read_text()
# Commands that are not run here, by their beginning -> why. tests/test_house.py checks the flags.
NOT_RUN = {
    r"python3 -m venv|source |pip |\S+/pip |\S+/mkdocs ": "make environments",
    r"\.venv-beam/": "needs an environment of its own: tests/data_prep",
    r"\.venv/bin/python step/|bin/export --format=step ": "the same: test_a_step_for_jax",
    r"python examples/(glue|paper)/(?!.*--dry_run)": "trains for hours: tests/examples",
    r"bin/\w+ .*(\.txt\.xz|english_12_layers|=cola )": "one long run, of hours on two cores",
    r"bin/run_finetuning .*early_exit": "needs more layers: tests/pipelines/test_finetuning.py",
    r"bin/export --format=(onnx|int8) |bin/export .*--mediapipe": "need packages: tests/export",
    r"tensorboard |docker |gcloud |bin/demo ": "do not end: tests/programs/test_demo.py",
    r"bin/serve |curl ": "do not end, or ask what does not: tests/serving",
    r"bin/convert_checkpoint .*(=albert/|=google-bert/|=https:|--push_to_hub)": "need a hub",
    r"python -c |bin/\w+ .*(--teacher|runs/large)": "need a teacher: test_teacher.py",
    r"TF_CONFIG=": "needs two machines: tests/train/test_multi_worker.py",
}
# Exports of kinds and of a type that tests/export asks.
OF_OTHER_TESTS = re.compile(r".*(models/(score|squad1|vectors)\b|--dtype=bfloat16)")
TINY = {
    "max_position_embeddings": 512,
    "hidden_size": 64,
    "intermediate_size": 16,
    "num_attention_heads": 1,  # of 64, as those of configs/tiny_english.json
}
BRIEF = {
    "train_batch_size": 8,
    "eval_batch_size": 4,
    "num_train_steps": 2,
    "num_warmup_steps": 1,
    "dtype": "float32",
}
# For training; other modes read the config of the run.
SETTINGS = {**tiny_program.SETTINGS, "train_batch_size": 8, "num_train_steps": 2}

# The output for each model of docs/serve.md that is exported and asked here.
ANSWERS = {
    "sentiment": r"(negative|positive) \(0\.\d+\)",
    "mrpc": r"[01] \(0\.\d+\)",
    "squad2": r"null_odds: -?\d",
    "words": r"tokens: ",
    "tokens": r"sequence_output: \[\[",
}


def list_pages():
    """Returns the pages of the table in BUILD.md, in order."""
    return re.findall(r"^\| .* \| \[.*\]\(docs/([\w/]+)\.md\)", BUILD, re.MULTILINE)


def commands(page):
    """Returns the commands of a page of docs/, in order, split into words."""
    return list(pages.split(pages.read_blocks(f"docs/{page}.md")))


def write_published(folder, vocabulary):
    """A published checkpoint, and the quickstart's: of the tiny model, as all of the pages."""
    (folder / "albert_base").mkdir()
    made = tiny_checkpoints.make(vocabulary, **TINY)
    formats.get_writer("google")(made, str(folder / "albert_base"))
    (folder / "quickstart_run/model").mkdir(parents=True)
    formats.get_writer("albert_tf")(made, str(folder / "quickstart_run/model"))
    with tarfile.open(folder / "albert_base_v2.tar.gz", "w:gz") as archive:
        archive.add(folder / "albert_base", "albert_base")
    shutil.rmtree(folder / "albert_base")


def write_configs(folder):
    """Those of the repository, but of the tiny model and few updates."""
    (folder / "configs").mkdir()
    albert = config_io.to_dict(tiny_run.albert(**TINY))
    for path in (ROOT / "configs").glob("tiny*.json"):
        values = {**json.loads(path.read_text()), **BRIEF, "albert": albert}
        (folder / "configs" / path.name).write_text(json.dumps(values))


@pytest.fixture
def workspace(checkpoint, tmp_path, monkeypatch):
    """A folder, now the current one, with the files that users bring."""
    monkeypatch.chdir(tmp_path)
    # Rewriting graphs takes longer than running them twice.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    page_data.write_texts(tmp_path)
    page_data.write_vectors(tmp_path)
    page_data.write_tasks(tmp_path)
    write_published(tmp_path, f"{checkpoint}/vocabulary")
    write_configs(tmp_path)
    (tmp_path / "tiny.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setitem(config.PRESETS, "albert_base_v2", tiny_run.albert(**TINY))
    small = {name: file._replace(num_rows=8) for name, file in submissions.GLUE_FILES.items()}
    monkeypatch.setattr(submissions, "GLUE_FILES", small)

    yield tmp_path
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


def shrink(program, arguments):
    """Returns further flags, which make a command short."""
    brief = [f"--set={name}={value}" for name, value in BRIEF.items()]
    if program == "bin/train_vocabulary":
        return [f"--vocab_size={tiny_run.VOCAB}"]
    if program == "bin/create_pretraining_data":
        return ["--num_processes=1"]
    if program == "bin/extend_vocabulary":
        return ["--num_pieces=3"]
    if program == "bin/run_pretraining":
        if any(word.startswith("--continue_from=") for word in arguments):
            return [*brief, "--set=num_train_steps=4"]
        needs_model = not re.search(r"--config=|albert=", " ".join(arguments))
        return [*brief, *(["--set=albert=albert_base_v2"] if needs_model else [])]
    if program == "bin/run_finetuning" and "--mode=predict" not in arguments:
        passes = any(word.startswith("--epochs=") for word in arguments)
        return ["--config=tiny.json", *(["--epochs=0.2"] if passes else [])]
    return []


def make_google_records(run_program, folder):
    """Records as Google's program leaves them, without a manifest."""
    words = ["--input=text/a.txt", "--vocabulary=vocabulary", "--output_dir=google"]
    words += ["--max_seq_length=512", "--max_predictions_per_seq=20", "--dupe_factor=1"]
    assert not run_program(ROOT / "bin/create_pretraining_data", *words)
    for path in (folder / "google").iterdir():
        if path.suffix != ".tfrecord":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.mark.full
def test_the_pages_in_their_order(run_program, workspace, capsys):
    done, printed, failed, left_out = 0, "", [], set()
    for page in list_pages():
        if page == "clusters":  # starts anew: test_clusters_page
            continue
        for command in commands(page):
            text = " ".join(command)
            if OF_OTHER_TESTS.match(text):
                continue
            if any(re.match(pattern, text) for pattern in NOT_RUN):
                left_out.update(re.findall(r"--output_dir=(\S+)", text))
                for name in re.findall(r"--model=(\S+)", text):
                    assert name in left_out or (workspace / name).exists(), (page, text)
                continue
            program, *arguments = command
            if program == "python":
                program, *arguments = arguments
            if "describe_records" in arguments:
                make_google_records(run_program, workspace)
            # Updates and their graphs have tests of their own; tracing them takes most of the time.
            tf.config.run_functions_eagerly(program.startswith("bin/run_"))
            error = run_program(ROOT / program, *arguments, *shrink(program, arguments))
            tf.config.run_functions_eagerly(False)
            shown = capsys.readouterr()
            printed += shown.out
            if error:
                failed.append((page, text, error))
            elif name := re.search(r"bin/predict --model=models/(\w+) --text", text):
                name = name[1]
                assert re.search(f"^   {ANSWERS[name]}", shown.out, re.MULTILINE), text
            done += 1
    assert not failed, "\n".join(map(str, failed))
    assert done >= 70
    with gzip.open("predictions.jsonl.gz", "rt") as file:
        in_one_file = file.read()
    assert in_one_file.startswith('{"id": 7, "label": ')
    assert Path("predictions/predictions-00000-00000.jsonl").read_text() == in_one_file
    assert "A wonderful evening" in printed
    assert sorted(os.listdir("submission")) == ["glue.zip", "sources.txt"]
    assert len(json.loads(Path("ensemble.json").read_text())["checkpoint"]) == 2
    variables = {}
    exec(pages.read_blocks("docs/run_elsewhere.md", "python"), variables)
    assert tf.reduce_mean(variables["losses"]) < math.log(2)
    Path("quickstart_run/sentiment").symlink_to("../runs/sentiment")
    exec(pages.read_blocks("README.md", "python"), {})


def test_planning(run_program, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    planned = [c for c in commands("clusters") if c[0] == "bin/plan_training"]
    for program, *arguments in planned:
        assert not run_program(ROOT / program, *arguments)
    assert len(planned) == 3
    output = capsys.readouterr().out
    assert all(slice_ in output for slice_ in ("v5e:2x2", "v3:16x16", "A100"))
    assert json.loads(Path("plan.json").read_text())


@pytest.mark.full
def test_a_step_for_jax(run_program, tmp_path, monkeypatch, capfd):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    words = commands("clusters")
    [at] = [i for i, c in enumerate(words) if c[:2] == ["bin/export", "--format=step"]]
    export, train = words[at : at + 2]
    albert = config_io.to_dict(tiny_run.albert(max_position_embeddings=128))
    assert not run_program(ROOT / export[0], *export[1:], f"--set=albert={json.dumps(albert)}")
    capfd.readouterr()
    subprocess.run([sys.executable, *train[1:]], check=True, env={"JAX_PLATFORMS": "cpu"})
    output = capfd.readouterr().out
    assert output.count('{"loss": ') == 3
    assert "steps/s" in output
