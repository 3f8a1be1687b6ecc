"""Tests of the card of a model in a folder of transformers."""

import dataclasses
import json

import pytest
import tiny_checkpoints
import tiny_runs
from refusals import one_line

from albert_tf.checkpoints import formats, hugging_face, hugging_face_card
from albert_tf.kinds import task_table


def read_head(card):
    """The values of the part between the first two lines of dashes."""
    _, head, _ = card.split("---\n", 2)
    pairs = [line.split(": ", 1) for line in head.splitlines()]
    return {key: json.loads(value) for key, value in pairs}


def convert(folder, made, vocabulary, task=None, commands=()):
    tiny_runs.write(folder / "run", made, vocabulary, task)
    if commands:
        (folder / "run" / "commands.jsonl").write_text("\n".join(commands))
    formats.convert(str(folder / "run"), str(folder / "out"), to_format="hugging_face")
    return (folder / "out" / "README.md").read_text()


def test_a_run_of_a_task_has_data_scores_and_commands(tmp_path, vocabulary):
    labels = ["no", "yes", "a", "b", "c"]
    task = task_table.make_own("classification", labels, has_pairs=True)
    made = tiny_checkpoints.make(vocabulary, model="classifier")
    command = "bin/run_finetuning --task=own '--text_column=the review' --output_dir={}run"
    command += " --train_file={}a.csv,{}b.csv"
    own, shown = command.format(*3 * ["/home/ann/x/"]), command.format(*3 * [""])
    lines = [json.dumps({"command": own})] * 2 + ['{"comm']  # resumed; killed
    card = convert(tmp_path, made, vocabulary, task, lines)
    head = read_head(card)
    assert head["pipeline_tag"] == "text-classification"
    [result] = head["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "accuracy", "value": 0.75, "name": "accuracy"}]
    # Scores of another checkpoint of the run are not of this one.
    assert result["dataset"] == {"name": "own", "type": "own", "split": "dev"}
    assert "| own | dev | 8 | accuracy | 0.75 |" in card
    assert "| test |" not in card
    assert "1,234 training examples of a classification task (`records`)" in card
    assert "Its labels, in the order of their ids: no, yes, a, b, c." in card
    assert '"text_pair": "Another."' in card
    last = "bin/convert_checkpoint --checkpoint=run/model.ckpt-0 --output_dir=FOLDER"
    assert f"## Commands\n\n```\n{shown}\n{last}" in card
    settings = json.loads(card.split("```json\n")[1].split("```")[0])
    assert settings["learning_rate"] == 0.01
    assert f"trained on sequences of at most {settings['max_seq_length']} tokens." in card
    values = json.loads((tmp_path / "out" / "config.json").read_text())
    assert [*values["id2label"].items()] == [(str(k), x) for k, x in enumerate(labels)]
    assert values["label2id"]["c"] == 4


def test_a_checkpoint_that_is_of_no_run_says_so_and_its_card_may_be_edited(tmp_path, vocabulary):
    card = convert(tmp_path, tiny_checkpoints.make(vocabulary), vocabulary)
    expected = {"library_name": "transformers", "pipeline_tag": "fill-mask"}
    assert read_head(card) == {**expected, "tags": ["albert", "tensorflow"]}
    assert "The checkpoint does not say what it was trained on." in card
    assert "No scores were found next to the checkpoint." in card
    assert "The [MASK] of France" in card
    assert "as `AlbertForPreTraining`" in card
    (tmp_path / "out" / "README.md").write_text("Another card.")
    formats.read(str(tmp_path / "out"))
    (tmp_path / "out" / "config.json").write_text("{}")
    with one_line(r"config\.json is damaged"):
        formats.read(str(tmp_path / "out"))


USES = {"squad1": "AutoModelForQuestionAnswering", "race": "AutoModelForMultipleChoice"}
USES["sts-b"] = 'pipeline("text-classification"'


@pytest.mark.parametrize("task", USES)
def test_each_head_shows_its_use(tmp_path, vocabulary, task):
    one = tiny_checkpoints.make_one_output()
    made = tiny_checkpoints.make(model=task) if task == "squad1" else one
    card = convert(tmp_path, made, vocabulary, task_table.get(task))
    assert USES[task] in card
    assert f"fine-tuned on {task}" in card


def test_the_head_of_squad_2_is_refused_in_one_line(tmp_path, vocabulary):
    made = tiny_checkpoints.make(model="squad2")
    with one_line(r"no counterpart in transformers; .*null_score"):
        convert(tmp_path, made, vocabulary, task_table.get("squad2"))
    assert not (tmp_path / "out").exists()


def test_labels_that_do_not_fit_the_head_are_not_written():
    made = tiny_checkpoints.make(model="classifier")
    made = dataclasses.replace(made, run={"task": {"task": "rte", "labels": ["no", "yes"]}})
    values = hugging_face.make_config(made, "ForSequenceClassification")
    assert values["id2label"]["4"] == "LABEL_4"


def test_the_card_of_a_pre_trained_model_counts_its_records(tmp_path, vocabulary):
    run = {"train_files": [("train-0", 1200), ("train-1", 34)]}
    made = dataclasses.replace(tiny_checkpoints.make(vocabulary), run=run)
    hugging_face_card.write(made, str(tmp_path))
    assert "1,234 pre-training records in 2 files." in (tmp_path / "README.md").read_text()
