"""bin/export_saved_model, as it is called."""

from pathlib import Path

import pytest
import tiny_checkpoints

from albert_tf.checkpoints import formats

MODEL = Path(__file__).parents[2] / "bin" / "export_saved_model"


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "checkpoint").mkdir()
    formats.get_writer("albert_tf")(tiny_checkpoints.make(), str(tmp_path / "checkpoint"))
    return f"{tmp_path}/checkpoint"


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
