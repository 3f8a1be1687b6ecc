"""Builds the page of bin/demo with gradio: a tab for each thing that a model can do."""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from albert_tf.errors import UserError, reason
from albert_tf.kinds.answer import QUESTION, SENTENCE
from albert_tf.predict.loaded_model import LoadedModel

HOST = "127.0.0.1"


def _predict(model: LoadedModel, *texts: str) -> dict[str, Any]:
    return model.predict([texts if len(texts) > 1 else texts[0]])[0]


def _show_labels(model: LoadedModel, *texts: str) -> dict[str, float]:
    labels = model.task.labels if model.task else ()
    return dict(zip(labels, _predict(model, *texts)["probabilities"], strict=True))


def _show_choices(model: LoadedModel, passage: str, endings: str) -> dict[str, float]:
    lines = endings.splitlines()
    return dict(zip(lines, _predict(model, passage, *lines)["probabilities"], strict=True))


def _show_value(model: LoadedModel, *texts: str) -> float:
    return _predict(model, *texts)["prediction"]


def _show_answer(model: LoadedModel, question: str, passage: str) -> dict[str, Any]:
    prediction = _predict(model, question, passage)
    odds = f", null odds {prediction['null_odds']:.2f}" if "null_odds" in prediction else ""
    best = [x for x in prediction["nbest"][:1] if x["text"]]
    marks = [{**x, "entity": f"answer {x['probability']:.2f}{odds}"} for x in best]
    return {"text": passage, "entities": marks}


def _show_spans(model: LoadedModel, text: str) -> dict[str, Any]:
    spans = _predict(model, text)["prediction"]
    return {"text": text, "entities": [{**x, "entity": x["type"]} for x in spans]}


def _show_guesses(model: LoadedModel, text: str) -> dict[str, Any]:
    [masks] = model.fill_mask([text])
    rows = [[place, *guess] for place, guesses in enumerate(masks, 1) for guess in guesses]
    return {"headers": ["[MASK]", "token", "probability"], "data": rows}


def _show_nearest(model: LoadedModel, text: str, texts: str) -> dict[str, Any]:
    [found] = model.search([text], texts.splitlines(), top_k=12)
    return {"headers": ["cosine", "text"], "data": [[x.score, x.text] for x in found]}


_PAIR = {"Text": SENTENCE, "Second text": SENTENCE}  # only the first for single-text models
_CHOICE = {"Text": SENTENCE, "Endings, one per line": "At nine.\nAt five."}
_QUESTION = {"Question": QUESTION, "Passage": SENTENCE}
_MASKED = {"Text": "The [MASK] opens at nine."}
_SEARCH = {"Text": "When can we eat?", "Texts, one per line": "We close at ten.\nShe sings."}
# {`Answer.view`: (title, function, gradio component for its result, fields)}
VIEWS: Mapping[str, tuple[str, Callable[..., Any], str, Mapping[str, str]]] = {
    "label": ("Classify", _show_labels, "Label", _PAIR),
    "labels": ("Label", _show_labels, "Label", _PAIR),
    "value": ("Rate", _show_value, "Number", _PAIR),
    "choice": ("Choose", _show_choices, "Label", _CHOICE),
    "answer": ("Answer", _show_answer, "HighlightedText", _QUESTION),
    "spans": ("Find spans", _show_spans, "HighlightedText", {"Text": SENTENCE}),
    "guesses": ("Guess", _show_guesses, "Dataframe", _MASKED),
    "nearest": ("Search", _show_nearest, "Dataframe", _SEARCH),
}


def launch(models: Mapping[str, LoadedModel], port: int) -> Any:
    """Starts the page for models, given their paths, on this machine; returns the `gradio.Blocks`.

    Raises `UserError` if gradio is missing, or the port is taken.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read at import
    try:
        import gradio
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware
    except ImportError as error:
        raise UserError(f"the page needs gradio ({reason(error)}): pip install gradio") from None
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    tabs = [tab for x in models.items() for tab in _make_tabs(gradio, *x)]
    page = gradio.TabbedInterface([tab for _, tab in tabs], [title for title, _ in tabs], "ALBERT")
    options = {"ssr_mode": False, "footer_links": [], "quiet": True, "prevent_thread_lock": True}
    options["theme"] = gradio.themes.Default(font=["sans-serif"], font_mono=["monospace"])
    options["app_kwargs"] = {"middleware": [hosts]}
    try:
        page.launch(server_name=HOST, server_port=port, **options)
    except OSError as error:
        raise UserError(
            f"--port: {port} cannot be used ({reason(error)}). Pass another one."
        ) from None
    print(f"http://{HOST}:{port}", flush=True)
    return page


def _make_tabs(gradio: Any, path: str, model: LoadedModel) -> Iterator[tuple[str, Any]]:
    """Yields each tab of a model with its title."""
    views = (
        [model.task.kind.answer.view]
        if model.task
        else ["guesses"] * model.is_masked_lm + ["nearest"]
    )
    for name in views:
        title, show, component, fields = VIEWS[name]

        def answer(*texts: str, show: Callable[..., Any] = show) -> Any:
            try:
                return show(model, *texts)
            except UserError as error:
                raise gradio.Error(str(error), print_exception=False) from None

        boxes = [gradio.Textbox(text, label=label, lines=3) for label, text in fields.items()]
        if fields is _PAIR and model.task and not model.task.has_pairs:
            boxes = boxes[:1]
        output = getattr(gradio, component)(label=title)
        tab = gradio.Interface(answer, boxes, output, api_name=name, flagging_mode="never")
        yield f"{title}: {os.path.basename(os.path.normpath(path))}", tab
