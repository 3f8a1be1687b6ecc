"""`pipeline(...)` of transformers answers as `albert_tf.load`, from the folders that we write.

Skipped without environments/interop.txt. The newest transformers has no pipeline for questions:
there its model is compared.
"""

import dataclasses

import numpy as np
import pytest
import tiny_checkpoints
import tiny_runs
from optional import huggingface_hub, torch, transformers

import albert_tf
from albert_tf.checkpoints import formats
from albert_tf.kinds import task_table

TEXTS = ["the cat and the dog", "Überaus gut, nicht?", "the"]
PAIRS = [("the cat", "a dog"), ("the dog and the cat", "the")]
TOLERANCE = 2e-6


@pytest.fixture
def convert(tmp_path, vocabulary):
    """Returns our model of a run, and the folder of transformers made of it."""

    def convert(part, task=None, classes=0, **changes):
        changes = {"max_position_embeddings": 40, **changes}
        made = tiny_checkpoints.make(vocabulary, model=part, **changes)
        if classes:
            head = {x: made.weights[x][:classes] for x in ("output_weights", "output_bias")}
            made = dataclasses.replace(made, weights={**made.weights, **head})
        source, target = str(tmp_path / "run"), str(tmp_path / "theirs")
        tiny_runs.write(source, made, vocabulary, task)
        formats.convert(source, target, to_format="hugging_face")
        return albert_tf.load(source), target

    return convert


def test_text_classification(convert):
    task = task_table.make_own("classification", ["no", "yes", "it depends"], has_pairs=False)
    ours, folder = convert("classifier", task, classes=3, **tiny_checkpoints.GROUPED)
    theirs = transformers.pipeline("text-classification", folder, top_k=None)
    texts = [*TEXTS, "the dog " * 30]  # too long
    answers_of_texts = theirs(texts, truncation=True)
    for expected, answers in zip(ours.predict(texts), answers_of_texts, strict=True):
        assert answers[0]["label"] == expected["prediction"]
        scores = {answer["label"]: answer["score"] for answer in answers}
        actual = [scores[label] for label in task.labels]
        np.testing.assert_allclose(actual, expected["probabilities"], atol=TOLERANCE)


def test_tags_of_words(convert):
    labels = ["O", "B-A", "I-A", "B-B", "I-B"]
    ours, folder = convert("token_classifier", task_table.make_own("token_classification", labels))
    theirs = transformers.pipeline("token-classification", folder, aggregation_strategy="first")
    # Their words are what white space divides, and begin with it; they have a piece "▁" for a word.
    pieces = (ours.tokenizer.id_to_piece(number) for number in range(ours.tokenizer.size))
    words = [piece[1:] for piece in pieces if piece.startswith("▁") and len(piece) > 1]
    texts = [" ".join(words[begin::3]) for begin in range(3)]
    number = 0
    for text, expected, answers in zip(texts, ours.predict(texts), theirs(texts), strict=True):
        spans = expected["prediction"]
        number += len(spans)
        assert [x["entity_group"] for x in answers] == [span["type"] for span in spans]
        actual = [text[x["start"] : x["end"]].strip() for x in answers]
        assert actual == [span["text"] for span in spans]
        assert [x["end"] for x in answers] == [span["end"] for span in spans]
        scores = [span["score"] for span in spans]
        np.testing.assert_allclose([x["score"] for x in answers], scores, atol=TOLERANCE)
    assert number > 3


@pytest.mark.parametrize("name", ["rte", "sts-b"])
def test_labels_and_numbers_of_pairs(convert, name):
    ours, folder = convert("classifier", task_table.get(name), classes=2 if name == "rte" else 1)
    theirs = transformers.pipeline("text-classification", folder)
    answers = theirs([{"text": first, "text_pair": second} for first, second in PAIRS])
    for expected, answer in zip(ours.predict(PAIRS), answers, strict=True):
        score = max(expected["probabilities"]) if name == "rte" else expected["prediction"]
        assert answer["score"] == pytest.approx(score, abs=TOLERANCE)
    if name == "rte":
        labels = [expected["prediction"] for expected in ours.predict(PAIRS)]
        assert [answer["label"] for answer in answers] == labels
        card = huggingface_hub.ModelCard.load(f"{folder}/README.md").data
        assert (card.library_name, card.pipeline_tag) == ("transformers", "text-classification")
        [result] = card.eval_results
        assert (result.dataset_name, result.dataset_split) == ("rte", "dev")
        assert (result.metric_type, result.metric_value) == ("accuracy", 0.75)


@pytest.mark.parametrize("part", [None, "masked_lm"])
def test_fill_mask(convert, part):
    ours, folder = convert(part)
    theirs = transformers.pipeline("fill-mask", folder, top_k=4)
    texts = ["the [MASK] and the dog", "the [MASK].", "[MASK], and", "the [MASK]s", "([MASK])"]
    texts += ["a[MASK]b", "the “[MASK]” dog", " [MASK] the ", "the → [MASK]"]
    for [guesses], answers in zip(ours.fill_mask(texts, top_k=4), theirs(texts), strict=True):
        ids = [ours.tokenizer.piece_to_id(guess.piece) for guess in guesses]
        assert [answer["token"] for answer in answers] == ids
        expected = [guess.probability for guess in guesses]
        np.testing.assert_allclose([x["score"] for x in answers], expected, atol=TOLERANCE)


def test_feature_extraction(convert):
    ours, folder = convert("bare")
    theirs = transformers.pipeline("feature-extraction", folder)
    vectors = [np.mean(vectors[0], axis=0) for vectors in theirs(TEXTS)]
    np.testing.assert_allclose(vectors, ours.embed(TEXTS), atol=TOLERANCE)


def test_answers_to_questions(convert):
    ours, folder = convert("squad1", task_table.get("squad1"))
    question, context = "the cat", "a dog and the cat"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    encoded = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
    offsets = encoded.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        outputs = network(**encoded)
    of_context = [i for i, part in enumerate(encoded.sequence_ids(0)) if part == 1]
    start, end = outputs.start_logits[0], outputs.end_logits[0]
    spans = [(i, j) for i in of_context for j in of_context if i <= j]
    best = max(spans, key=lambda span: float(start[span[0]] + end[span[1]]))
    [expected] = ours.predict([(question, context)])
    answer = context[offsets[best[0]][0] : offsets[best[1]][1]]
    assert answer.strip() == expected["prediction"] != ""
    score = float(start[best[0]] + end[best[1]])
    assert score == pytest.approx(expected["nbest"][0]["score"], abs=1e-5)
