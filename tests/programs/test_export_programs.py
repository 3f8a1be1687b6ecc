"""bin/export_saved_model, as it is called."""

from pathlib import Path

import numpy as np
import pytest
import tiny_checkpoints
import tiny_exports

from albert_tf.checkpoints import formats

MODEL = Path(__file__).parents[2] / "bin" / "export_saved_model"


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    formats.get_writer("albert_tf")(tiny_checkpoints.make(), str(tmp_path / "checkpoint"))
    return f"{tmp_path}/checkpoint"


def answers(folder, path, kind, **choices):
    """What the SavedModel says of ids, and what the network does."""
    model = tiny_exports.read(path, kind, text=False, **choices)
    ids = tiny_exports.ids(model)
    return tiny_exports.ask_session(folder, {"token_ids": ids})["token_ids"], (
        tiny_exports.expected(model, ids)
    )


CHOICES = {
    "first": ("sentence_embedding", {"pooling": "first"}),
    "three": ("fill_mask", {"top_k": 3}),
}


@pytest.mark.full
@pytest.mark.parametrize(("kind", "choices"), CHOICES.values(), ids=CHOICES)
def test_a_model_of_its_choices(run_program, checkpoint, tmp_path, capsys, kind, choices):
    flags = [f"--{name}={value}" for name, value in choices.items()]
    about = [f"--checkpoint={checkpoint}", f"--output_dir={tmp_path}/models", "--text=false"]
    assert not run_program(MODEL, *about, f"--kind={kind}", "--version=7", *flags)
    assert capsys.readouterr().out == f"{tmp_path}/models/7\n"
    made, wanted = answers(f"{tmp_path}/models/7", checkpoint, kind, **choices)
    tiny_exports.assert_same(made, wanted)
    if kind == "fill_mask":
        assert made["top_ids"].shape[-1] == choices["top_k"]
    else:
        _, unlike = answers(f"{tmp_path}/models/7", checkpoint, kind, pooling="mean")
        assert np.abs(made["embedding"] - unlike["embedding"]).max() > 1e-3


@pytest.mark.full
def test_a_model_of_a_run_has_the_threshold_that_is_given(
    run_program, vocabulary, tmp_path, capsys
):
    run = tiny_exports.write_run(tmp_path / "run", "span_or_none", vocabulary)
    texts = {"question": ["a"], "context": ["b c d"]}
    about = [f"--checkpoint={run}", f"--output_dir={tmp_path}/models"]
    assert not run_program(MODEL, *about, "--null_threshold=1e9")
    folder = capsys.readouterr().out.split()[-1]
    outputs = tiny_exports.ask_session(folder, {"question": texts})["question"]
    assert outputs["answer"][0] != b""
    assert outputs["null_odds"][0] > 0  # over the threshold that is not given


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--kind=span_or_none", "--null_threshold=0", "--text=false"], "--null_threshold is for"),
        (
            ["--checkpoint=nowhere", "--output_dir=README.md"],
            "--output_dir: 'README.md' is not a f",
        ),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(
    run_program, checkpoint, tmp_path, flags, sentence
):
    """A file as the folder is refused before the checkpoint is read."""
    about = [f"--checkpoint={checkpoint}", f"--output_dir={tmp_path}/models"]
    assert run_program(MODEL, *about, *flags).startswith(f"export_saved_model: {sentence}")
    assert not (tmp_path / "models").exists()
