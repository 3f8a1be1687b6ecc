"""bin/classify: predictions of a fine-tuned model."""

from pathlib import Path

import pytest
import tiny_program
from tiny_program import OWN, write, write_own

import albert_tf
from albert_tf.checkpoints import formats

checkpoint, run = tiny_program.checkpoint, tiny_program.run
PROGRAM = Path(__file__).parents[2] / "bin" / "classify"


@pytest.mark.slow
def test_it_says_what_predicting_a_file_says(run, run_program, tmp_path, capsys):
    write_own(tmp_path)
    run(*OWN, f"--data_dir={tmp_path}", "--mode=train,predict")
    predicted = tiny_program.read(tmp_path / "run/predictions-test.json")["predictions"]
    rows = albert_tf.load(tmp_path / "run").predict(["good day", "bad day"])
    for row, expected in zip(rows, predicted.values(), strict=True):
        assert row["prediction"] == expected["prediction"]
        assert row["probabilities"] == pytest.approx(expected["probabilities"], rel=1e-6)
    one = (f"--workdir={tmp_path}/run", "--text=good day")
    message = run_program(PROGRAM, *one, "--second_text=bad day")
    assert message == "classify: an input must have 1 text, not 2: 'good day'."
    capsys.readouterr()
    assert not run_program(
        PROGRAM, f"--workdir={tmp_path}/run", "--text=good day", "--text=bad day"
    )
    expected = [
        f"   {prediction['prediction']} ({max(prediction['probabilities']):.3f})"
        for prediction in predicted.values()
    ]
    assert capsys.readouterr().out.splitlines() == [
        "good day",
        expected[0],
        "bad day",
        expected[1],
    ]


@pytest.mark.slow
def test_pairs_and_values(run, run_program, tmp_path, capsys):
    rows = [["good", "day", "1.5"], ["bad", "day", "-1"], ["so so", "it was", "0"]] * 2
    write(tmp_path / "train.tsv", ["one", "other", "value"], *rows)
    columns = ("--text_column=one", "--second_text_column=other", "--label_column=value")
    kind = ("--task=own", "--kind=regression", f"--train_file={tmp_path}/train.tsv")
    run(*kind, *columns, "--mode=train", "--set=eval_steps=0")
    capsys.readouterr()
    about = (f"--workdir={tmp_path}/run", "--text=good")
    assert not run_program(PROGRAM, *about, "--second_text=day")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "good | day"
    assert -9 < float(said[1]) < 9
    for name in ("hugging_face", "albert_tf"):
        formats.convert(f"{tmp_path}/run", f"{tmp_path}/{name}", to_format=name)
        converted = (f"--checkpoint={tmp_path}/{name}", "--text=good", "--second_text=day")
        assert not run_program(PROGRAM, *converted)
        assert float(capsys.readouterr().out.split()[-1]) == pytest.approx(float(said[1]))
    message = run_program(PROGRAM, *about, "--second_text=day", "--second_text=night")
    assert message == "classify: --second_text: give one for each --text."
    message = run_program(PROGRAM, *about)
    assert message == "classify: an input must have 2 texts, not 1: 'good'."


def test_there_must_be_a_run(run_program, tmp_path):
    message = run_program(PROGRAM, f"--workdir={tmp_path}/none", "--text=good")
    assert message.startswith(f"classify: there is nothing at '{tmp_path}/none'")
