"""Turns texts that were typed into requests, and outputs of a model into what the page shows.

An answer is a list of parts, which JSON can hold:

* {"kind": "bars", "title", "bars": [{"label", "value"}]}, values in [0, 1], best first;
* {"kind": "text", "title", "segments": [{"text", "mark"?, "score"?, "weight"?}]}, a text cut into
  segments: `mark` names what it is, `weight` in [-1, 1] says how much it counts;
* {"kind": "value", "title", "value"}.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.errors import SURROGATES, UserError, find_sentence, require
from albert_tf.serving import ask

Part = dict[str, Any]
Run = Callable[..., Mapping[str, tf.Tensor]]
Outputs = Mapping[str, np.ndarray]

MAX_WORDS = 64  # of which each is left out in turn
MAX_LINES = 200
_WORD = re.compile(r"\S+")
_NUM_BARS = 12
_SENTENCES = (
    "The kitchen closes at ten.\nShe plays the violin in an orchestra.\n"
    "Prices rose faster than wages last year.\nDinner is served until late in the evening.\n"
    "The concert begins at eight."
)
_PASSAGE = (
    "The museum opens at nine and closes at five. On Fridays it stays open until eight, and "
    "students pay half the price."
)
_NAMES = (
    "Ann Lee moved from Oslo to New York in May, to work for the United Nations.",
    "Mozart was born in Salzburg and died in Vienna.",
)
_BLANKS = (
    "The [MASK] opens at nine in the [MASK].",
    "She [MASK] the violin in an orchestra.",
    "This function returns the [MASK] of the list.",
)
_SEARCHES = ("When can we eat?", "Where is music?", "Life gets more expensive.")


class Field(NamedTuple):
    """A field of the page: its label, texts to try, the first of which it holds, and its height."""

    label: str
    examples: Sequence[str]
    rows: int = 3


# Fields by their names: those of a model's inputs, and `lines`.
FIELDS: Mapping[str, Field] = {
    "text": Field(
        "Text",
        (
            "A wonderful evening, though the soup was a little cold.",
            "It is slow, it crashes, and nobody answers.",
            "The documentation is clear and the examples are helpful.",
        ),
    ),
    "text_pair": Field("Second text", ("It was a bad evening.",), 2),
    "question": Field(
        "Question", ("When does the museum open?", "Who pays half the price?", "Why is it open?"), 1
    ),
    "context": Field("Passage", (_PASSAGE,), 6),
    "passage": Field("Passage", (_PASSAGE,), 6),
    "options": Field("Answers to choose from, one a line", (), 4),
    "lines": Field("Sentences to search, one a line", (_SENTENCES,), 6),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoModel:
    """A function of texts, and how the page shows its outputs.

    Attributes:
        about: what the model does; completes the sentence "An ALBERT that ...".
        view: a key of `VIEWS`.
        labels: in the order of their probabilities; empty if there are none.
        run: {name: [B] strings; options [B, C]} as keywords -> outputs.
    """

    name: str
    about: str = ""
    view: str
    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    run: Run


class View(NamedTuple):
    """How outputs are shown.

    Attributes:
        tab: what a person does with the model.
        title: of the page.
        show: (model, inputs, outputs) -> parts.
        examples: texts to try, where those of `FIELDS` do not suit it.
        weighs_words: whether it can show how much each word counts.
    """

    tab: str
    title: str
    show: Callable[[DemoModel, Mapping[str, str], Outputs], list[Part]]
    examples: Sequence[str] = ()
    weighs_words: bool = False


def describe(model: DemoModel) -> dict[str, Any]:
    """Returns what the page needs to know of a model, for JSON."""
    view = VIEWS[model.view]
    examples = {name: field.examples for name, field in FIELDS.items()}
    examples["text"] = view.examples or examples["text"]
    examples["options"] = ["\n".join(f"At {hour}." for hour in range(9, 9 + len(model.labels)))]
    labels = f" Labels: {', '.join(model.labels)}." if model.labels else ""
    return {
        "name": model.name,
        "tab": view.tab,
        "about": f"An ALBERT that {model.about}.{labels}" if model.about else "",
        "title": view.title,
        "fields": [
            {"name": name, **FIELDS[name]._replace(examples=examples[name])._asdict()}
            for name in _field_names(model)
        ],
        "weighs_words": view.weighs_words,
    }


def answer(model: DemoModel, inputs: Any, *, weigh_words: bool = False) -> list[Part]:
    """Returns the parts of the answer to texts that were typed.

    Raises `UserError` if the inputs do not fit the model.
    """
    texts = _check(model, inputs)
    outputs = _run(model, [texts])
    parts = VIEWS[model.view].show(model, texts, outputs)
    if weigh_words and VIEWS[model.view].weighs_words:
        parts.append(_weigh_words(model, texts, outputs))
    return parts


def _field_names(model: DemoModel) -> tuple[str, ...]:
    names = (*model.inputs, "lines") if model.view == "nearest" else model.inputs
    return tuple(sorted(names, key=[*FIELDS].index))


def _check(model: DemoModel, inputs: Any) -> dict[str, str]:
    require(isinstance(inputs, dict), "inputs must be an object of texts.")
    texts = {}
    for name in _field_names(model):
        text = inputs.get(name)
        label = FIELDS[name].label.partition(",")[0]
        require(isinstance(text, str) and bool(text.strip()), f"{label}: type something first.")
        require(not SURROGATES.search(text), f"{label}: it has half of a character.")
        texts[name] = text
    return texts


def _split_lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _run(model: DemoModel, rows: Sequence[Mapping[str, str]]) -> dict[str, np.ndarray]:
    """Runs the model on rows of texts; returns arrays, of text as str."""
    batch = {
        name: [_split_lines(row[name]) if name == "options" else row[name] for row in rows]
        for name in model.inputs
    }
    try:
        return ask.run_function(model.run, batch)
    except tf.errors.OpError as error:
        raise UserError(find_sentence(error)) from None


def _make_bars(title: str, labels: Sequence[str], values: Sequence[float], most=_NUM_BARS) -> Part:
    pairs = sorted(zip(labels, map(float, values), strict=True), key=lambda pair: -pair[1])
    return {
        "kind": "bars",
        "title": title,
        "bars": [{"label": label, "value": value} for label, value in pairs[:most]],
    }


def _name_labels(model: DemoModel, number: int) -> Sequence[str]:
    return model.labels if len(model.labels) == number else [str(k) for k in range(number)]


def _show_labels(model: DemoModel, inputs: Mapping[str, str], outputs: Outputs) -> list[Part]:
    [values] = outputs["probabilities"]
    return [_make_bars("Probabilities", _name_labels(model, len(values)), values)]


def _show_choices(model: DemoModel, inputs: Mapping[str, str], outputs: Outputs) -> list[Part]:
    options = _split_lines(inputs["options"])
    return [_make_bars("Probabilities", options, outputs["probabilities"][0])]


def _show_value(model: DemoModel, inputs: Mapping[str, str], outputs: Outputs) -> list[Part]:
    return [{"kind": "value", "title": "Value", "value": float(outputs["value"][0])}]


def _show_guesses(model: DemoModel, inputs: Mapping[str, str], outputs: Outputs) -> list[Part]:
    [tokens], [values] = outputs["tokens"], outputs["probabilities"]
    if not len(tokens):
        raise UserError("Write [MASK] where a word is to be guessed.")
    parts = []
    for number, (row, probabilities) in enumerate(zip(tokens, values, strict=True), 1):
        labels = [str(piece).replace("▁", " ").strip() or "a space" for piece in row]
        parts.append(_make_bars(f"[MASK] {number}", labels, probabilities))
    return parts


def _show_answer(model: DemoModel, inputs: Mapping[str, str], outputs: Outputs) -> list[Part]:
    start, end = int(outputs["start"][0]), int(outputs["end"][0])
    spans = [(start, end, {"mark": "answer", "score": None})] if end > start else []
    title = str(outputs["answer"][0]) if spans else "The passage has no answer."
    values = [
        {"kind": "value", "title": name.replace("_", " "), "value": float(outputs[name][0])}
        for name in ("probability", "null_odds")
        if name in outputs
    ]
    return [_cut(title, inputs["context"], spans), *values]


def _show_spans(model: DemoModel, inputs: Mapping[str, str], outputs: Outputs) -> list[Part]:
    names = ("span_starts", "span_ends", "span_types", "span_scores")
    rows = zip(*(outputs[name][0] for name in names), strict=True)
    number = int(outputs["num_spans"][0])
    spans = [(int(a), int(b), {"mark": str(kind), "score": float(x)}) for a, b, kind, x in rows]
    title = f"{number} span{'' if number == 1 else 's'}"
    return [_cut(title, inputs["text"], spans[:number])]


def _cut(title: str, text: str, spans: Sequence[tuple[int, int, dict[str, Any]]]) -> Part:
    """Cuts a text into segments; spans are (start, end, what is said of it), in characters."""
    segments: list[dict[str, Any]] = []
    place = 0
    for start, end, said in spans:
        segments += [{"text": text[place:start]}, {"text": text[start:end], **said}]
        place = end
    segments.append({"text": text[place:]})
    return {"kind": "text", "title": title, "segments": [x for x in segments if x["text"]]}


def _show_nearest(model: DemoModel, inputs: Mapping[str, str], outputs: Outputs) -> list[Part]:
    lines = _split_lines(inputs["lines"])
    require(len(lines) <= MAX_LINES, f"At most {MAX_LINES} sentences at once.")
    vectors = _embed(_run(model, [{"text": text} for text in (inputs["text"], *lines)]))
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.maximum(lengths, 1e-12)
    return [_make_bars("Cosine similarity", lines, vectors[1:] @ vectors[0], MAX_LINES)]


def _embed(outputs: Outputs) -> np.ndarray:
    """[N, D], of an encoder the mean over the tokens of each text."""
    if "embedding" in outputs:
        return outputs["embedding"].astype(np.float64)
    mask = outputs["input_mask"][..., np.newaxis].astype(np.float64)
    return (outputs["sequence_output"] * mask).sum(1) / np.maximum(mask.sum(1), 1)


def _weigh_words(model: DemoModel, inputs: Mapping[str, str], outputs: Outputs) -> Part:
    """Leaves out each word in turn: a word counts as much as the likeliest label loses without it.

    Costs a batch of as many texts as there are words, and needs nothing but the model's outputs.
    """
    text = inputs["text"]
    words = list(_WORD.finditer(text))
    require(len(words) <= MAX_WORDS, f"Words are weighed in texts of at most {MAX_WORDS} words.")
    rows = [{**inputs, "text": text[: w.start()] + text[w.end() :]} for w in words]
    [values] = outputs["probabilities"]
    best = int(np.argmax(values))
    without = _run(model, rows)["probabilities"][:, best]
    spans = [
        (word.start(), word.end(), {"weight": float(values[best] - value)})
        for word, value in zip(words, without, strict=True)
    ]
    label = _name_labels(model, len(values))[best]
    return _cut(f"What {label!r} gains from each word", text, spans)


VIEWS: Mapping[str, View] = {
    "spans": View("Find names", "What is named?", _show_spans, _NAMES),
    "answer": View("Answer a question", "Where is the answer?", _show_answer),
    "guesses": View("Guess a word", "Which word?", _show_guesses, _BLANKS),
    "choice": View("Choose an answer", "Which answer?", _show_choices),
    "labels": View("Label a text", "Which labels apply?", _show_labels),
    "label": View("Classify a text", "Which class?", _show_labels, weighs_words=True),
    "value": View("Rate a text", "Which number?", _show_value),
    "nearest": View("Search sentences", "Which sentences are alike?", _show_nearest, _SEARCHES),
}
