"""Runs the commands of docs/clusters.md without a TPU; checks its versions and quoted messages."""

import ast
import json
import re
import shlex
import types

import numpy as np
import pytest
from refusals import one_line
from repository import ROOT

from albert_tf import config_io
from albert_tf.plan import chips
from albert_tf.train import devices
from albert_tf.train_config import PretrainConfig

PAGE = (ROOT / "docs" / "clusters.md").read_text()
# The page has these words right before a block that no test runs.
NOT_RUN = re.compile(r"not\s+run\s+here", re.IGNORECASE)
BY_HAND = re.compile(r"no\s+test\s+runs", re.IGNORECASE)
# These commands run in tests/train/test_multi_worker.py and test_build.py.
ELSEWHERE = re.compile(r"TF_CONFIG=|bin/export|\.venv/bin/python")
NEEDS_GOOGLE = re.compile(r"gcloud|tensorboard|--tpu|tpu='local'|tf\.distribute\.Server")


def blocks():
    """Returns (commands, paragraph before them) of each block of code; commands as words."""
    result = []
    for match in re.finditer(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        paragraph = PAGE[: match.start()].strip().split("\n\n")[-1]
        lines = match[1].replace("\\\n", " ").splitlines()
        result.append(([shlex.split(line) for line in lines], paragraph))
    return result


def programs():
    """Returns (name, arguments) of each command of bin/ on the page."""
    words = [command for commands, _ in blocks() for command in commands]
    starts = [(i, c) for c in words for i, word in enumerate(c) if word.startswith("bin/")]
    return [(command[i], command[i + 1 :]) for i, command in starts]


def values(arguments, flag):
    """Returns all values of a flag, written --flag=value or --flag value."""
    joined = re.sub(rf"--{flag}\s", f"--{flag}=", "\n".join(arguments))
    return re.findall(rf"^--{flag}=(.*)$", joined, re.MULTILINE)


def test_the_page_says_of_each_block_whether_it_was_run():
    marks = []
    for commands, paragraph in blocks():
        needs_google = any(NEEDS_GOOGLE.search(" ".join(command)) for command in commands)
        assert bool(NOT_RUN.search(paragraph)) == needs_google, commands
        assert not (needs_google and BY_HAND.search(paragraph)), commands
        marks.append(needs_google)
    assert marks.count(True) >= 5
    assert marks.count(False) >= 4


def test_learning_rates_follow_the_rule_of_the_page():
    """The paper's learning rate times sqrt(B / 4096)."""
    for name, arguments in programs():
        if name == "bin/run_pretraining" and "learning_rate" in str(arguments):
            config = config_io.load(PretrainConfig, None, values(arguments, "set"))
            expected = 0.00176 * (config.train_batch_size / 4096) ** 0.5
            assert config.learning_rate == pytest.approx(expected, rel=0.01)


def test_versions_are_those_of_the_requirements():
    requirements = (ROOT / "albert_tf/environments/tpu.txt").read_text()
    lines = [line for line in PAGE.splitlines() if line.startswith("pip install")]
    assert len(lines) == 3
    for line in lines:
        assert f"#   {line}\n" in requirements
    pinned = re.search(r"^tensorflow-tpu==(\d+\.\d+)", requirements, re.MULTILINE)[1]
    assert f"TensorFlow for TPUs ends at {pinned} " in PAGE


def test_slices_are_those_of_the_plan():
    rows = re.findall(r"^\| (v\w+) \|.*\| `(\S+)` \| (\d) (core|chip)s \|$", PAGE, re.MULTILINE)
    assert [kind for kind, *_ in rows] == list(chips.TPUS)
    for kind, name, number, unit in rows:
        slice_ = chips.topology(name)
        assert (slice_.device, slice_.num_devices) == (chips.TPUS[kind], int(number))
        assert slice_.device.per_chip == (2 if unit == "core" else 1)


def constants():
    """Yields all strings of the sources, the parts of f-strings separately."""
    for package in ("albert_tf", "data_prep"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_quoted_messages_are_in_the_code():
    table = PAGE.partition("## Trouble")[2]
    rows = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    assert len(rows) > 4
    ours = [row for row in rows if not re.search(r"\((libtpu|XLA|TensorFlow)\)", row)]
    texts = list(constants())
    for quote in [quote for row in ours for quote in re.findall("`(.*?)`", row)]:
        for part in re.split(r"\.\.\.|'local'|[()]", quote):
            assert any(part.strip() in text for text in texts), part


def test_a_machine_without_a_tpu_prints_the_quoted_messages():
    assert (
        "`--tpu: no TPU 'local' (...). Run on a TPU VM with albert_tf/environments/tpu.txt " in PAGE
    )
    [check] = [c for commands, _ in blocks() for c in commands if "devices.describe" in str(c)]
    with one_line(r"^--tpu: no TPU 'local' \(.*\)\. Run on a TPU VM with al"):
        exec(check[2], {})
    eight = types.SimpleNamespace(num_replicas_in_sync=8)
    assert devices.describe(eight) == "8 x CPU"  # which a TPU would call `TPU core`
    config = config_io.load(PretrainConfig, None, ["train_batch_size=20"])
    with one_line(r"^train_batch_size 20 is not a multiple of 8 \(8 replicas"):
        devices.check_batch(config, eight)


TINY = ["hidden_size=8", "embedding_size=6", "num_hidden_layers=1", "num_attention_heads=2"]
TINY = [f"--set=albert.{value}" for value in (*TINY, "intermediate_size=10", "vocab_size=50")]
SHORT = ["num_train_steps=2", "num_warmup_steps=1", "train_batch_size=4", "eval_batch_size=2"]
SHORT = [f"--set={value}" for value in (*SHORT, "dtype=float32")]


@pytest.mark.full
@pytest.mark.usefixtures("eagerly")
def test_the_commands_run_without_a_tpu(run_program, tmp_path, monkeypatch):
    """Runs the commands of bin/ in order, with a folder as the bucket and a tiny model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "text").mkdir()
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghij"), 4)) for _ in range(30)]
    documents = [[" ".join(rng.choice(words, 9)) for _ in range(30)] for _ in range(30)]
    text = "\n\n".join("\n".join(lines) for lines in documents)
    (tmp_path / "text" / "a.txt").write_text(text)
    extra = {
        "bin/plan_training": [],
        "bin/train_vocabulary": ["--vocab_size=50"],
        "bin/create_pretraining_data": ["--num_processes=1"],
        "bin/run_pretraining": [*TINY, *SHORT],
    }
    done = []
    for commands, paragraph in blocks():
        for name, *arguments in commands if not BY_HAND.search(paragraph) else ():
            if ELSEWHERE.match(name):
                continue
            # Of the commands "not run here", pre-training also runs without --tpu.
            if NOT_RUN.search(paragraph) and name != "bin/run_pretraining":
                continue
            words = [word.replace("gs://my-bucket/", "") for word in arguments if word != "--tpu"]
            assert not run_program(ROOT / name, *words, *extra[name]), name
            done.append(name)
    assert list(dict.fromkeys(done)) == list(extra)
    assert done.count("bin/run_pretraining") == 2
    record = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert record["step"] == 2
    assert "eval_masked_lm_accuracy" in record
    assert (tmp_path / "tried" / "run.json").exists()
