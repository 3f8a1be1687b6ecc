"""The programs of the campaign as tiny runs, many in one process; what each reads and writes."""

import contextlib
import dataclasses
import functools
import io
import json
import os
import re
import runpy
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
import tiny_checkpoints
import tiny_program
import tiny_run
from absl import flags
from tensorflow.core.protobuf import fingerprint_pb2, saved_model_pb2

from albert_tf import config_io, files
from albert_tf.checkpoints import formats
from albert_tf.kinds.base import Task
from albert_tf.train import eval_step, train_state, train_step
from albert_tf.train_config import TrainConfig

BIN = Path(__file__).parents[2] / "bin"
CORPUS = Path(__file__).parents[1] / "fixtures" / "corpus.txt"
# Times that runs measure; files that only TensorBoard or a person reads, with times in them.
_MEASURED = ("sequences_per_second", "seconds_left")
_IGNORED = ("events.out.tfevents", "commands.jsonl", "report.html")
# Files with numbers of functions, which go on rising in a process.
_NUMBERED = {
    "saved_model.pb": saved_model_pb2.SavedModel,
    "fingerprint.pb": fingerprint_pb2.FingerprintDef,
}


@dataclasses.dataclass(frozen=True)
class Program:
    """A program with flags, in which {input} and {output} are folders.

    Attributes:
        arguments: the flags.
        target: what it makes, in the output folder.
        is_whole: whether the target appears at once, complete: then a second run refuses it.
    """

    name: str
    arguments: tuple[str, ...]
    target: str
    is_whole: bool = False


_OF_OTHERS = ("hugging_face", "sentence_transformers")


_PREDICT = ("--model={input}/served", "--input={input}/text.txt,{input}/more.txt")


def _convert(to_format: str) -> Program:
    flags = (
        "--checkpoint={input}/run",
        "--output_dir={output}/converted",
        f"--to_format={to_format}",
    )
    flags += ("--allow_partial=.*",)
    return Program("convert_checkpoint", flags, "converted", is_whole=True)


PROGRAMS = {
    "vocabulary": Program(
        "train_vocabulary",
        ("--input={input}/text.txt", "--output_dir={output}/v", "--vocab_size=61"),
        "v",
    ),
    "records": Program(
        "create_pretraining_data",
        (
            *("--input={input}/text.txt", "--vocabulary={input}/records/vocabulary"),
            *("--output_dir={output}/records", "--max_seq_length=16", "--dupe_factor=2"),
            *("--max_predictions_per_seq=3", "--eval_fraction=0.3", "--num_processes=1"),
        ),
        "records",
    ),
    "duplicates": Program(
        "data find_duplicates",
        ("--input={input}/text.txt,{input}/more.txt", "--output_dir={output}/d"),
        "d",
    ),
    "extended vocabulary": Program(
        "extend_vocabulary",
        (
            *("--checkpoint={input}/run", "--input={input}/more.txt", "--num_pieces=9"),
            "--output_dir={output}/extended",
        ),
        "extended",
        is_whole=True,
    ),
    "pretraining": Program(
        "run_pretraining",
        (
            *("--config={input}/pretraining.json", "--train_files={input}/records/train-*"),
            *("--eval_files={input}/records/eval-*", "--output_dir={output}/run"),
        ),
        "run",
    ),
    "finetuning": Program(
        "run_finetuning",
        (
            *("--config={input}/finetuning.json", "--output_dir={output}/run"),
            *("--init_checkpoint={input}/google", "--data_dir={input}", *tiny_program.OWN),
            *("--mode=train,eval,predict", "--cache_dir={output}/cache"),
        ),
        "run",
    ),
    "conversion": _convert("albert_tf"),
    **{f"conversion to {x}": _convert(x) for x in ("google", *_OF_OTHERS)},
    "export": Program(
        "export_saved_model",
        (
            "--checkpoint={input}/run",
            "--kind=fill_mask",
            "--output_dir={output}/models",
            "--version=1",
            "--text=false",
        ),
        "models/1",
        is_whole=True,
    ),
    "Hub module": Program(
        "export",
        (
            "--format=hub_module",
            "--checkpoint={input}/run",
            "--output_dir={output}/hub",
            "--text=false",
        ),
        "hub",
        is_whole=True,
    ),
    "predictions": Program(
        "predict", (*_PREDICT, "--output_dir={output}/predictions"), "predictions"
    ),
    "predictions in one file": Program(
        "predict", (*_PREDICT, "--output={output}/p.jsonl.gz"), "p.jsonl.gz", is_whole=True
    ),
}


def write_inputs(folder: Path) -> None:
    """Writes what the programs read."""
    data = tiny_run.write_data(folder / "records")
    vocabulary = f"{data}/vocabulary"
    shutil.copy(CORPUS, folder / "text.txt")
    (folder / "more.txt").write_text(CORPUS.read_text() * 30)  # more than one block of predictions
    _write_model(folder / "served")
    tiny_program.write_own(folder)
    config = tiny_run.settings(
        num_train_steps=6, save_checkpoints_steps=2, eval_steps=3, keep_checkpoint_max=2
    )
    config_io.save(config, str(folder / "pretraining.json"))
    (folder / "finetuning.json").write_text(json.dumps(tiny_program.SETTINGS))
    for name, to_format in (("google", "google"), ("run", "albert_tf")):
        (folder / name).mkdir()
        formats.get_writer(to_format)(tiny_checkpoints.make(vocabulary), str(folder / name))


def _write_model(folder: Path) -> None:
    """A model of texts that a run loads in no time."""
    module = tf.Module()
    spec = tf.TensorSpec([None], tf.string, name="text")
    serve = tf.function(lambda text: {"length": tf.strings.length(text)}, input_signature=[spec])
    module.serve = serve
    tf.saved_model.save(module, str(folder), signatures={"serving_default": serve})


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a program ended: its exit status or message, or the traceback of an exception."""

    status: object
    output: str
    traceback: str = ""


def run(program: Program, folder: Path) -> Ended:
    """Runs a program in this process; its folders are `in` and `out` in `folder`."""
    places = {"input": folder / "in", "output": folder / "out"}
    arguments = [argument.format(**places) for argument in program.arguments]
    name, *words = program.name.split()
    path, output, status, trace = BIN / name, io.StringIO(), None, ""
    before = set(flags.FLAGS)
    given, sys.argv = sys.argv, [str(path), *words, *arguments]
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        trace = traceback.format_exc()
    finally:
        sys.argv = given
        for name in set(flags.FLAGS) - before:
            delattr(flags.FLAGS, name)
        flags.FLAGS.unparse_flags()
    return Ended(status, output.getvalue(), trace)


def read_result(folder: Path) -> dict[str, bytes]:
    """{file: content} of a folder, without what differs between two equal runs."""
    result = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or any(x in name for x in _IGNORED):
            continue
        content = path.read_bytes()
        if path.name == "metrics.jsonl":
            content = b"".join(_leave_out_times(line) for line in content.splitlines(True))
        elif path.name == files.HASHES:
            content = _leave_out_hashes(content)
        elif path.name in _NUMBERED:
            content = _leave_out_numbers(content, _NUMBERED[path.name])
        result[name] = content
    return result


def _leave_out_times(line: bytes) -> bytes:
    with contextlib.suppress(ValueError):
        record = json.loads(line)
        kept = {name: value for name, value in record.items() if name not in _MEASURED}
        return json.dumps(kept).encode() + b"\n"
    return line


def _leave_out_hashes(content: bytes) -> bytes:
    """The hashes without those of graphs; a damaged list as it is."""
    with contextlib.suppress(ValueError):
        hashes = json.loads(content)
        kept = {x: hash for x, hash in hashes.items() if os.path.basename(x) not in _NUMBERED}
        return json.dumps(kept).encode()
    return content


def _leave_out_numbers(content: bytes, message: type) -> bytes:
    """The lines of a graph without the numbers that TensorFlow gives functions, in order."""
    lines = re.sub(r"\d+|\\\d{3}", "", str(message.FromString(content))).splitlines()
    return "\n".join(sorted(lines)).encode()


def keep_compiled() -> None:
    """From now on a run of training takes the model and the compiled updates of the one before.

    Its variables get their initial values again. A run takes a tenth of the time.
    """
    make_state = train_state.make_train_state
    states: dict[str, tuple] = {}

    def make_train_state(config, *rest):
        if (key := repr(config)) not in states:
            state = make_state(config, *rest)
            variables = [*state.model.variables, *state.optimizer.variables]
            values = [variable.value.numpy() for variable in variables]
            states[key] = state, variables, values
        state, variables, values = states[key]
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        state.position.assign(0)
        return state

    train_state.make_train_state = make_train_state
    train_step.make_run_updates = _keep(train_step.make_run_updates)
    eval_step.make_evaluate = _keep(eval_step.make_evaluate, 1)
    eval_step.make_predict = _keep(eval_step.make_predict, 1)
    Task.make_model = _keep(Task.make_model, 1)


def _keep(make: Callable, position: int = 0) -> Callable:
    """`make`, which gives the same for the same object or config at this position."""
    made: dict[object, tuple] = {}

    @functools.wraps(make)
    def keep(*arguments, **options):
        subject = arguments[position]
        key = repr(subject) if isinstance(subject, TrainConfig) else id(subject)
        if key not in made:
            made[key] = subject, make(*arguments, **options)
        return made[key][1]

    return keep
