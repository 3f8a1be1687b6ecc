"""bin/predict: predictions of a fine-tuned model."""

import pytest
import tensorflow as tf
import tiny_exports
import tiny_program
import tiny_runs
from repository import ROOT
from tiny_program import OWN, write_own

import albert_tf
from albert_tf.checkpoints import formats
from albert_tf.kinds import task_table

PROGRAM = ROOT / "bin/predict"


@pytest.mark.full
@pytest.mark.usefixtures("eagerly")
def test_it_says_what_predicting_a_file_says(run, run_program, tmp_path, capsys):
    write_own(tmp_path)
    run(*OWN, f"--data_dir={tmp_path}", "--mode=train,predict")
    predicted = tiny_program.read(tmp_path / "run/predictions-test.json")["predictions"]
    rows = albert_tf.load(tmp_path / "run").predict(["good day", "bad day"])
    for row, expected in zip(rows, predicted.values(), strict=True):
        assert row["prediction"] == expected["prediction"]
        assert row["probabilities"] == pytest.approx(expected["probabilities"], rel=1e-6)
    one = (f"--model={tmp_path}/run", "--text=good day")
    message = run_program(PROGRAM, *one, "--second_text=bad day")
    assert message == "predict: an input must have 1 text, not 2: 'good day'."
    capsys.readouterr()
    assert not run_program(PROGRAM, *one, "--text=bad day")
    said = [f"   {x['prediction']} ({max(x['probabilities']):.3f})" for x in predicted.values()]
    assert capsys.readouterr().out.splitlines() == ["good day", said[0], "bad day", said[1]]


def test_pairs_and_values(run_program, vocabulary, tmp_path, capsys):
    pairs = {"has_pairs": True}
    run = tiny_exports.write_run(tmp_path / "run", "regression", vocabulary, more=pairs)
    about = (f"--model={run}", "--text=good")
    assert not run_program(PROGRAM, *about, "--second_text=day")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "good | day"
    for name in ("hugging_face", "albert_tf"):
        formats.convert(run, f"{tmp_path}/{name}", to_format=name)
        converted = (f"--model={tmp_path}/{name}", "--text=good", "--second_text=day")
        assert not run_program(PROGRAM, *converted)
        assert float(capsys.readouterr().out.split()[-1]) == pytest.approx(float(said[1]))
    message = run_program(PROGRAM, *about, "--second_text=day", "--second_text=night")
    assert message == "predict: --second_text: pass one for each --text."
    assert run_program(PROGRAM, *about) == "predict: an input must have 2 texts, not 1: 'good'."


@pytest.mark.parametrize("is_empty", [False, True])
@pytest.mark.parametrize("kind", ["multi_label", "token_classification"])
def test_labels_and_spans_are_lines(kind, is_empty, run_program, checkpoint, tmp_path, capsys):
    """From a run, and tags also from a folder of transformers, which keeps no names."""
    labels = tiny_exports.LABELS[kind]
    task = task_table.make_own(kind, labels)
    made = tiny_exports.contents(kind, f"{checkpoint}/vocabulary")
    if is_empty:  # no label applies, every word has the first tag
        [bias] = (x for name, x in made.weights.items() if name.endswith("output_bias"))
        bias += [9] + [0] * 4 if kind == "token_classification" else -9
    tiny_runs.write(str(tmp_path / "run"), made, f"{checkpoint}/vocabulary", task)
    texts = ["good day", "bad day and night", "so so"]
    expected = []
    for text, row in zip(texts, albert_tf.load(tmp_path / "run").predict(texts), strict=True):
        values = dict(zip(labels, row.get("probabilities", ()), strict=False))
        if kind == "multi_label":
            lines = [", ".join(f"{x} ({values[x]:.3f})" for x in row["prediction"])]
        else:
            line = "{type}: {text} [{start}-{end}] ({score:.3f})"
            lines = [line.format(**span) for span in row["prediction"]]
        expected += [text, *(f"   {line or 'none'}" for line in lines or [""])]
    text_flags = [f"--text={text}" for text in texts]
    assert not run_program(PROGRAM, f"--model={tmp_path}/run", *text_flags)
    assert capsys.readouterr().out.splitlines() == expected
    assert is_empty == all(line == "   none" for line in expected[1::2])
    if kind == "token_classification":
        formats.convert(f"{tmp_path}/run", f"{tmp_path}/theirs", to_format="hugging_face")
        named = (f"--model={tmp_path}/theirs", f"--kind={kind}", f"--labels={','.join(labels)}")
        assert not run_program(PROGRAM, *named, *text_flags)
        assert capsys.readouterr().out.splitlines() == expected


def test_a_pretrained_model_guesses_words(run_program, checkpoint, capsys):
    model = f"--model={checkpoint}/google"
    assert not run_program(PROGRAM, model, "--text=a good [MASK]", "--top_k=2")
    text, guesses = capsys.readouterr().out.splitlines()
    assert text == "a good [MASK]"
    expected = albert_tf.load(f"{checkpoint}/google").fill_mask("a good [MASK]", top_k=2)[0][0]
    assert guesses == "   " + "  ".join(f"{x.piece} {x.probability:.3f}" for x in expected)
    message = run_program(PROGRAM, model, "--text=a good day")
    assert message.startswith("predict: no [MASK] in 'a good day'. Put [MASK]")


@pytest.mark.parametrize(
    ("names", "texts"),
    [
        (("text",), ["--text=a day"]),
        (("text", "text_pair"), ["--text=a", "--second_text= day"]),
        (("context", "question"), ["--text=a", "--second_text= day"]),
    ],
)
def test_an_export_answers_texts(names, texts, run_program, tmp_path, capsys):
    specs = [tf.TensorSpec([None], tf.string, name=name) for name in names]
    module = tf.Module()
    module.serve = tf.function(
        lambda *rows: {"length": tf.strings.length(tf.strings.join(rows))}, input_signature=specs
    )
    tf.saved_model.save(module, f"{tmp_path}/models/3", signatures=module.serve)
    model = f"--model={tmp_path}/models"
    assert not run_program(PROGRAM, model, *texts)
    assert capsys.readouterr().out.splitlines()[1] == "   length: 5"
    message = run_program(PROGRAM, model, *texts, "--top_k=3")
    assert message == "predict: --top_k is for a checkpoint. Leave it out."
    other = texts[:1] if len(names) > 1 else [*texts, "--second_text=a"]
    refused = "has other inputs than --text, or --text and --second_text"
    assert refused in run_program(PROGRAM, model, *other)
    tf.saved_model.save(tf.Module(), f"{tmp_path}/models/4")  # as a module of TF Hub
    assert refused in run_program(PROGRAM, model, *texts)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "pass either --text, or files with --input."),
        (["--text=a", "--output=b"], "--output is for --input, not for --text. Leave it out."),
        (["--input=a", "--top_k=3"], "--top_k is for --text, not for --input. Leave it out."),
        (["--text=a", "--input=b"], "pass either --text, or files with --input."),
        (["--input=a"], "pass either --output, a file, or --output_dir, a folder."),
        (["--text=a", "--top_k=0"], "top_k must be at least 1, not 0."),
    ],
)
def test_texts_and_files_are_not_mixed(run_program, words, message):
    assert run_program(PROGRAM, "--model=nowhere", *words) == f"predict: {message}"
