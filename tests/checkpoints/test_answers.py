"""What decides an answer passes through every format and back, or a line names it.

Without StyleTTS2's format, which needs PyTorch and has no tasks.
"""

import dataclasses
import json
import types

import numpy as np
import pytest
import tiny_checkpoints
import tiny_finetuning

import albert_tf
from albert_tf import config_io
from albert_tf.checkpoints import answers, formats, hugging_face_vocabulary, model_checkpoint
from albert_tf.errors import UserError
from albert_tf.export import export_source
from albert_tf.model import weight_names
from albert_tf.tasks import finetuned_model
from albert_tf.tokenizers import tokenization
from albert_tf.train_config import SentenceVectors

FORMATS = ("albert_tf", "google", "hugging_face", "sentence_transformers")
LABELS = ("no", "yes", "a", "b", "c")
TAGS = ("O", "B-A", "I-A", "B-B", "I-B")
ONE = {"output_weights": (1, 8), "output_bias": (1,)}
FIVE = {"output_weights": (5, 8), "output_bias": (5,)}
EXITS = {"exits/output_weights": (5, 8), "exits/output_bias": (5,)}
TEXTS = ["The cat sat.", "a dòg THE cat the the cat"]
PAIRS = [("The cat", "a dog"), ("the", "the cat the")]
CLASSIFIER, SPANS = {"model": "classifier"}, {"model": "squad1"}
WITH_EXITS = {**CLASSIFIER, "more": EXITS, "num_hidden_layers": 2}
QUESTIONS = [("the cat", "a the cat the dog")]
NUMBER = {"model": "bare", "more": ONE}
# {name: (kind, labels, weights, inputs, settings of the run)}
TASKS = {
    "labels": ("classification", LABELS, CLASSIFIER, TEXTS, {}),
    "pairs": ("classification", LABELS, CLASSIFIER, PAIRS, {"max_seq_length": 7}),
    "leftovers": ("classification", LABELS, {"more": FIVE}, TEXTS, {}),
    "exits": ("classification", LABELS, WITH_EXITS, TEXTS, {"early_exit": True}),
    "thresholds": ("multi_label", LABELS, CLASSIFIER, TEXTS, {}),
    "number": ("regression", (), NUMBER, PAIRS, {}),
    "choices": ("multiple_choice", ("A", "B"), NUMBER, [("a", "b", "c")], {}),
    "tags": ("token_classification", TAGS, {"model": "token_classifier"}, TEXTS, {}),
    "answers": ("span", (), SPANS, QUESTIONS, {"max_answer_length": 2, "doc_stride": 4}),
    "none": ("span_or_none", (), SPANS, QUESTIONS, {"null_answer": "null_score"}),
    "embedding": ("sentence_embedding", (), {"model": "bare"}, TEXTS, {"pooling": "pooler"}),
}
VECTORS = {
    "pretrained": {},
    "vectors": {"pooling": "pooler", "normalize": True, "max_seq_length": 7},
    "mean": {"pooling": "mean", "max_seq_length": 9},
}
CASED = {"lower_case": False, "keep_accents": True}


def make_task(vocabulary, kind, labels, weights, settings):
    """A fine-tuned checkpoint, as it is read of a run."""
    made = tiny_checkpoints.make(vocabulary, **weights)
    config = tiny_finetuning.settings(albert=made.config, **settings)
    published = {"span": "squad1", "span_or_none": "squad2"}
    metrics = {"task": "own", "split": "dev", "num_examples": 8, "metrics": {"x": 0.5}}
    if kind == "multi_label":
        metrics["thresholds"] = dict(zip(labels, (0.1, 0.9, 0.4, 0.6, 0.5), strict=True))
    metrics |= {"thresholds": {"null_odds": -0.7}} if kind == "span_or_none" else {}
    metrics |= {"patience": 1} if config.early_exit else {}
    header = {"task": published.get(kind, "own"), "kind": kind, "labels": [*labels]}
    if kind in ("classification", "regression"):
        header["has_pairs"] = "max_seq_length" in settings or kind == "regression"
    run = {"task": header, "config": config_io.to_dict(config), "metrics": [metrics], "step": 3}
    vectors = SentenceVectors(pooling=config.pooling, max_seq_length=config.max_seq_length)
    return dataclasses.replace(made, run=run, vectors=vectors)


@pytest.fixture(params=[*TASKS, *VECTORS])
def case(request, vocabulary):
    """A checkpoint with a vocabulary of its own normalization, and inputs."""
    if request.param in TASKS:
        *task, inputs, settings = TASKS[request.param]
        made = make_task(vocabulary, *task, settings)
    else:
        vectors = SentenceVectors(**VECTORS[request.param])
        made = tiny_checkpoints.make(vocabulary, vectors=vectors)
        inputs = TEXTS
    files = {**made.vocabulary, tokenization.NORMALIZATION: json.dumps(CASED).encode()}
    return request.param, dataclasses.replace(made, vocabulary=files), inputs


@pytest.fixture(autouse=True)
def _without_tokenizer_json(monkeypatch):
    """It takes most of the time, and nothing here reads it."""
    monkeypatch.setattr(hugging_face_vocabulary, "_write_fast", lambda *_: None)


def decide(path):
    """What decides the answers of a checkpoint."""
    checkpoint = formats.read(str(path))
    task, config = export_source.configure(checkpoint, None, ["dtype=float32"])
    tokenizer = model_checkpoint.load_tokenizer(checkpoint)
    tuned = finetuned_model.read_dev_metrics(checkpoint)
    return types.SimpleNamespace(
        weights=checkpoint.weights,
        task=task and (task, task.has_pairs, task.num_texts),
        config=config,
        vectors=(config.pooling, config.max_seq_length, bool(checkpoint.vectors.normalize)),
        tuned=[tuned.get(x) for x in ("thresholds", "patience")],
        ids=[tokenizer.encode(text) for text in (*TEXTS, "ÀÉ ﬁ THE")],
        places=[formats.FORMATS[x].list_places(checkpoint) for x in FORMATS[2:]],
    )


def check(found, start, places):
    """All that decides is equal, but for the parts that have no place."""
    kept = start.weights.keys() & places
    assert found.weights.keys() == kept
    assert all(np.array_equal(found.weights[name], start.weights[name]) for name in kept)
    assert (found.ids, found.vectors) == (start.ids, start.vectors)
    parts = weight_names.parts(start.config.albert)
    heads = {x for part in weight_names.TASK_HEADS for x in parts[part]}
    if heads & start.weights.keys() - kept:
        assert found.task is None
        return
    assert found.task == start.task
    has_exits = "exits/output_bias" in kept
    config = start.config if has_exits else start.config.with_all_layers()
    assert found.config == config
    assert found.tuned == (start.tuned if config == start.config else [None, None])


def pair_formats(case):
    """Yields each format and another one: all pairs in three cases, and in each Google's of one."""
    step = 1 + [*TASKS, *VECTORS].index(case) % 3
    for number, one in enumerate(FORMATS):
        yield one, FORMATS[(number + (1 if one == "google" else step)) % len(FORMATS)]


@pytest.mark.usefixtures("eagerly")
def test_what_decides_an_answer_passes_through_every_format_and_back(tmp_path, case, capsys):
    name, made, inputs = case
    formats.write_folder(made, str(tmp_path / "start"))
    start = decide(tmp_path / "start")
    places = dict.fromkeys(FORMATS[:2], start.weights.keys())
    places |= dict(zip(FORMATS[2:], start.places, strict=True))
    for one, other in pair_formats(name):
        folder, between, back = (tmp_path / x for x in (one, f"{one}-{other}", f"{one}-back"))
        try:
            formats.convert(str(tmp_path / "start"), str(folder), to_format=one)
            check(decide(folder), start, places[one])
            lines = capsys.readouterr().err
            for part, shapes in weight_names.parts(made.config).items():
                lost = shapes.keys() & start.weights.keys() - places[one]
                assert (f"{part} ({len(lost)}" in lines) is bool(lost)
            formats.convert(str(folder), str(between), to_format=other)
        except UserError as error:  # without the pooler
            assert "sentence_transformers" in (one, other), error
            assert "no transformers class has" in str(error)
            continue
        formats.convert(str(between), str(back), to_format=one)
        check(decide(back), start, places[one] & places[other])
    loaded = [albert_tf.load(str(tmp_path / x)) for x in ("start", "google-back")]
    if start.task and not start.task[0].kind.answer.gives_vectors:
        if not start.config.early_exit:  # transformers runs all layers
            assert loaded[0].predict(inputs) == loaded[1].predict(inputs)
    else:
        np.testing.assert_array_equal(*(model.embed(inputs) for model in loaded))


@pytest.mark.parametrize(
    ("name", "to_format", "lacking"),
    [
        ("thresholds", "hugging_face", "thresholds"),
        ("pairs", "google", "task, labels, max_seq_length"),
        ("exits", "google", "task, labels, patience, max_seq_length"),
        ("embedding", "hugging_face", "pooling"),
    ],
)
def test_what_other_programs_lack_is_named(tmp_path, vocabulary, capsys, name, to_format, lacking):
    *task, _, settings = TASKS[name]
    formats.write_folder(make_task(vocabulary, *task, settings), str(tmp_path / "x"), to_format)
    shown = f"other programs that read {to_format} do not know: {lacking}\n"
    assert shown in capsys.readouterr().err


@pytest.fixture
def tuned(tmp_path, vocabulary):
    """A folder for transformers of a model of several labels, which may be edited."""
    *task, _, settings = TASKS["thresholds"]
    formats.write_folder(make_task(vocabulary, *task, settings), str(tmp_path / "x"), FORMATS[2])
    (tmp_path / "x" / "sha256.json").unlink()
    return tmp_path / "x"


def test_a_model_of_several_labels_is_one_for_transformers_again(tuned):
    (tuned / answers.NAME).unlink()  # as transformers writes it
    source = tuned
    for name in FORMATS[:3]:
        formats.convert(str(source), str(tuned.with_name(name)), to_format=name)
        source = tuned.with_name(name)
    values = json.loads((source / "config.json").read_text())
    assert values["problem_type"] == "multi_label_classification"
    assert [*values["id2label"].values()] == [*LABELS]


def test_the_card_has_the_thresholds_and_the_files_of_the_format_win(tuned, capsys):
    card, path = (tuned / "README.md").read_text(), tuned / "config.json"
    assert "tuned on dev (no 0.1, yes 0.9, a 0.4, b 0.6, c 0.5)" in card
    assert '"name": "x (tuned thresholds)"' in card
    path.write_text(path.read_text().replace('"yes"', '"maybe"'))
    assert formats.read(str(tuned)).labels == ("no", "maybe", "a", "b", "c")
    message = "albert_tf.json is not used: the other files are for another task"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("version", "names", "joins"),
    [
        ("5.23.0", None, True),
        ("5.23.0", ["input_ids", "token_type_ids"], False),
        ("4.40.0", None, False),
        ("4.40.0", ["input_ids", "attention_mask"], True),
    ],
)
def test_segments_are_those_of_the_folder(tmp_path, vocabulary, version, names, joins):
    """`transformers` 5.23 gives ALBERT's tokenizer no segments where its config lists no inputs."""
    made = tiny_checkpoints.make(vocabulary, model="classifier")
    table = "bert/embeddings/token_type_embeddings"
    for model in (made, tiny_checkpoints.make(vocabulary)):
        folder = tmp_path / str(len(model.weights))
        tiny_checkpoints.write(folder, model, "hugging_face")
        config, tokenizer = folder / "config.json", folder / "tokenizer_config.json"
        values = json.loads(config.read_text()) | {"transformers_version": version}
        config.write_text(json.dumps(values))
        values = json.loads(tokenizer.read_text()) | {"model_input_names": names}
        tokenizer.write_text(json.dumps({key: x for key, x in values.items() if x is not None}))
        expected = model.weights[table]
        if joins and model is made:  # an encoder keeps both, for what is to be learnt
            expected = expected[[0, 0]]
        np.testing.assert_array_equal(formats.read(str(folder)).weights[table], expected)
