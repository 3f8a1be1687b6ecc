"""Question answering: a span of a context answers a question, or there may be no answer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from albert_tf import lazy_tensorflow as tf
from albert_tf.kinds import base, learn
from albert_tf.kinds.answer import (
    QUESTION,
    SENTENCE,
    WINDOWS,
    Answer,
    average_field,
    is_number,
    is_probability,
)
from albert_tf.kinds.base import (
    Gold,
    Mistake,
    Outputs,
    Prediction,
    Predictions,
    ReplyOptions,
    Task,
    Tensors,
)
from albert_tf.kinds.data import Data
from albert_tf.kinds.learn import Learn
from albert_tf.kinds.spans import qa_windows, replies, span_features, squad_metrics
from albert_tf.kinds.spans.qa_windows import AnswerOptions
from albert_tf.kinds.spans.replies import Row
from albert_tf.kinds.spans.span_features import Question
from albert_tf.records import features
from albert_tf.run_files import NULL_ODDS
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig, Lengths

# The losses.
SPAN, ANSWER_CLASS = "span", "answer_class"
_SPAN_LABELS = {"start_logits": features.START_POSITIONS, "end_logits": features.END_POSITIONS}


class SpanData(Data):
    """Examples are questions about contexts, which are read in windows."""

    window_noun = "questions"
    files = (qa_windows.WINDOWS,)
    lengths = ("doc_stride", "max_query_length")
    crowded_text = "context"

    def count_texts(self, task: Task) -> int:
        return 2

    def text_capacity(self, lengths: Lengths) -> int:
        special = features.NUM_SPECIAL_TOKENS
        return lengths.max_seq_length - lengths.max_query_length - special

    def make_example(self, name: str, texts: tuple[str, ...]) -> Question:
        question, context = texts
        return Question(name, question, context, (), False, False)

    def to_line(self, example: Question) -> dict[str, Any]:
        return {**example._asdict(), "answers": [text for text, _ in example.answers]}

    def encode(
        self,
        examples: Sequence[Question],
        tokenizer: Tokenizer,
        labels: Sequence[str],
        lengths: Lengths,
        *,
        trains: bool = False,
    ) -> base.Records:
        """Returns one record per window."""
        tokens = span_features.tokenize(examples, tokenizer, lengths.max_query_length)
        windows = span_features.split_into_windows(tokens, lengths)
        places = span_features.label(examples, tokens, windows)
        has_answer = np.array([bool(question.answers) for question in examples])
        is_held = np.bincount(windows.questions, places.start_positions > 0) > 0
        counts = {
            "windows": len(windows.unique_ids),
            "truncated_questions": tokens.num_truncated,
            "inexact_answers": int(np.count_nonzero(~places.is_exact)),
            "windows_without_answer": int(np.count_nonzero(places.is_impossible)),
        }
        if num_lost := int(np.count_nonzero(has_answer & ~is_held)):
            counts[span_features.ANSWERS_IN_NO_WINDOW] = num_lost
        return base.Records(
            len(windows.unique_ids),
            lambda rows: span_features.make_features(
                rows, tokens, windows, places, lengths.max_seq_length
            ),
            [self.to_line(question) for question in examples],
            counts,
            {qa_windows.WINDOWS: windows},
        )

    def make_targets(self, tokens: features.TokenFeature, num_classes: int) -> features.Features:
        """`p_mask` is 1 where no answer can be; start and end are 0 if a window has no answer."""
        one = tf.io.FixedLenFeature([1], tf.int64)
        names = (features.START_POSITIONS, features.END_POSITIONS, features.IS_IMPOSSIBLE)
        answer = dict.fromkeys((features.UNIQUE_IDS, *names), one)
        return {features.P_MASK: tokens._replace(padding=1), **answer}


def _has_classifier(config: FinetuneConfig, *, may_be_none: bool) -> bool:
    """Whether the head classifies "no answer"; otherwise scores are compared with [CLS]."""
    return may_be_none and config.null_answer == "answer_class"


@dataclass(frozen=True)
class SpanLearn(Learn):
    """The start and end of an answer; the scores of the official script.

    Attributes:
        null_threshold: null odds above it mean "no answer".
    """

    null_threshold: float = 0.0

    may_be_none: ClassVar[bool] = False
    is_percent = True
    may_lack_predictions = True

    def list_losses(self, config: FinetuneConfig) -> tuple[str, ...]:
        return (
            (SPAN, ANSWER_CLASS)
            if _has_classifier(config, may_be_none=self.may_be_none)
            else (SPAN,)
        )

    def sum_losses(
        self, outputs: Tensors, batch: Tensors, weights: Any, config: FinetuneConfig
    ) -> dict[str, Any]:
        """Start and end weigh one half each; `span_correct` counts windows with both right.

        The answer class of SQuAD 2.0 weighs half as much as the span. The span is [CLS] if there is
        no answer.
        """
        from albert_tf.model import losses, ops

        entropy, correct = tf.zeros_like(weights), tf.ones_like(weights)
        for end, positions in _SPAN_LABELS.items():
            logits, labels = outputs[end], batch[positions][:, 0]
            entropy += 0.5 * ops.cross_entropy(logits, labels)
            correct *= losses.is_correct(logits, labels)
        sums = {
            f"{SPAN}_loss": tf.reduce_sum(entropy * weights),
            f"{SPAN}_correct": tf.reduce_sum(correct * weights),
        }
        if not _has_classifier(config, may_be_none=self.may_be_none):
            return sums
        logits = outputs["cls_logits"]
        labels = tf.cast(batch[features.IS_IMPOSSIBLE][:, 0], tf.float32)
        entropy = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
        correct = tf.cast(tf.equal(logits > 0, labels > 0), tf.float32)
        return {
            **sums,
            f"{ANSWER_CLASS}_loss": 0.5 * tf.reduce_sum(entropy * weights),
            f"{ANSWER_CLASS}_correct": tf.reduce_sum(correct * weights),
        }

    def describe_constant(self, labels: Sequence[Any], values: Sequence[Any]) -> None:
        return None

    def score(self, task: Task, gold: Gold, predictions: Predictions) -> base.Scores:
        """The scores of the official script; exact and f1 are means over questions."""
        texts, odds = self._split(predictions)
        scores = squad_metrics.score_questions(gold, texts, odds, threshold=self.null_threshold)
        values = {
            name: 100 * np.array([getattr(score, name) for score in scores.values()])
            for name in ("exact", "f1")
        }
        _, statistics = learn.compute_scores(
            values, len(gold), lambda name, rows: float(values[name][rows].mean())
        )
        return squad_metrics.evaluate(gold, texts, odds, threshold=self.null_threshold), statistics

    def find_mistakes(self, task: Task, gold: Gold, predictions: Predictions) -> Iterator[Mistake]:
        """The more confident the model was in words outside the right answer, the worse.

        The first occurrence of a text in the context is marked.
        """
        texts, odds = self._split({x["id"]: predictions[x["id"]] for x in gold})
        scores = squad_metrics.score_questions(gold, texts, odds)
        for example in gold:
            prediction, f1 = predictions[example["id"]], scores[example["id"]].f1
            if f1 < 1:
                answer = prediction["prediction"]
                if odds and prediction[NULL_ODDS] > 0:
                    answer = ""
                sure = max((x["probability"] for x in prediction["nbest"]), default=0.0)
                actual = " / ".join(dict.fromkeys(example["answers"])) or "no answer"
                size = (1 - f1) * (sure if answer else 1.0)
                names = {**dict.fromkeys(example["answers"], "label"), answer: "predicted"}
                starts = {text: example["context"].find(text) for text in names if text}
                places = [(x, x + len(text), names[text]) for text, x in starts.items() if x >= 0]
                yield Mistake(example["id"], actual, answer or "no answer", size, places)

    def tune_thresholds(self, task: Task, gold: Gold, predictions: Predictions) -> dict[str, float]:
        """Returns the best threshold of null odds for these questions."""
        texts, odds = self._split(predictions)
        if odds is None:
            return {}
        return {NULL_ODDS: squad_metrics.choose_threshold(gold, texts, odds)}

    def _split(self, predictions: Predictions) -> tuple[dict[str, str], dict[str, float] | None]:
        """Returns the texts of predictions, and their null odds."""
        texts = {id_: x["prediction"] for id_, x in predictions.items()}
        odds = {id_: x[NULL_ODDS] for id_, x in predictions.items()} if self.may_be_none else None
        return texts, odds


class SpanOrNoneLearn(SpanLearn):
    """Spans, and whether there is an answer at all."""

    may_be_none = True


class SpanAnswer(Answer):
    """A prediction is {"prediction": text, "nbest": [{"text", "probability", ...}]}.

    If `may_be_none` (the context may hold no answer), it also has "null_odds", a number.
    """

    may_be_none: ClassVar[bool] = False
    head = "Span"
    description = "finds the answer to a question in a text"
    parts = frozenset({"encoder", "squad1"})
    truncation_note = WINDOWS
    view = "answer"
    asked = "questions"

    def list_requests(self) -> dict[str, dict[str, list[Any]]]:
        return {"question": {"question": [QUESTION], "context": [SENTENCE]}}

    def predict(
        self, answers: Outputs, gold: Gold, options: ReplyOptions, arrays: base.Arrays
    ) -> list[Prediction]:
        from albert_tf.kinds.spans import span_decoding

        config = options.run_config
        sizes = config.n_best_size, config.max_answer_length
        choices = AnswerOptions(self.has_null_odds(options), *sizes)
        windows = arrays[qa_windows.WINDOWS]
        return [*span_decoding.predict(answers, windows, gold, choices).values()]

    def reply(
        self, answers: Outputs, gold: Gold, options: ReplyOptions, arrays: base.Arrays
    ) -> list[Row]:
        """The best answer to each question; none if its null odds are above the threshold."""
        rows = []
        for prediction in self.predict(answers, gold, options, arrays):
            best = prediction["nbest"][0]
            row = {"answer": best["text"], **{x: y for x, y in best.items() if x != "text"}}
            if self.has_null_odds(options):
                row[NULL_ODDS] = prediction[NULL_ODDS]
                if row[NULL_ODDS] > (options.null_threshold or 0.0):
                    row |= replies.NO_ANSWER
            rows.append(replies.round_as_float32(row))
        return rows

    def has_null_odds(self, options: ReplyOptions) -> bool:
        """Whether there may be no answer; the head of SQuAD 1.1 also works for such tasks."""
        return self.may_be_none or options.null_threshold is not None

    def is_sound(self, prediction: Prediction, labels: Sequence[str]) -> bool:
        nbest = prediction.get("nbest")
        return (
            isinstance(prediction.get("prediction"), str)
            and isinstance(nbest, list)
            and all(isinstance(answer, dict) for answer in nbest)
            and all(isinstance(answer.get("text"), str) for answer in nbest)
            and all(is_probability(answer.get("probability")) for answer in nbest)
            and (not self.may_be_none or is_number(prediction.get(NULL_ODDS)))
        )

    def is_plain(self, value: Any, labels: Sequence[str]) -> bool:
        return isinstance(value, str)

    def average(self, members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
        """Returns the text with the highest sum of probabilities, and the mean of the null odds."""
        answers: dict[str, dict[str, Any]] = {}
        for member in members:
            for answer in member["nbest"]:
                # Its offsets come from the first member: scores of two networks do not mix.
                known = answers.setdefault(answer["text"], {**answer, "probability": 0.0})
                known["probability"] += answer["probability"] / len(members)
        size = max(len(member["nbest"]) for member in members)
        nbest = sorted(answers.values(), key=lambda answer: -answer["probability"])[:size]
        odds = average_field(members, NULL_ODDS) if self.may_be_none else {}
        return {"prediction": nbest[0]["text"] if nbest else "", "nbest": nbest, **odds}


class SpanOrNoneAnswer(SpanAnswer):
    """Spans, with null odds."""

    may_be_none = True
    description = f"{SpanAnswer.description}, or says that there is none"
    parts = frozenset({"encoder", "squad2"})
    more_inputs = (features.P_MASK,)

    def choose_head(self, config: FinetuneConfig) -> Any:
        from albert_tf.model import task_heads

        has_classifier = _has_classifier(config, may_be_none=True)
        return task_heads.SpanOrNone if has_classifier else super().choose_head(config)


KIND = base.Kind("span", SpanData("span"), SpanLearn("span"), SpanAnswer("span"))
OR_NONE = base.Kind(
    "span_or_none",
    SpanData("span_or_none"),
    SpanOrNoneLearn("span_or_none"),
    SpanOrNoneAnswer("span_or_none"),
)


def may_be_none(kind: base.Kind) -> bool:
    """Whether a question may have no answer in its context."""
    return isinstance(kind.answer, SpanOrNoneAnswer)


def with_null_threshold(task: Task, threshold: float) -> Task:
    """Returns a question task that scores null odds above the threshold as "no answer"."""
    assert isinstance(task.kind.learn, SpanLearn), "the threshold is for questions"
    scores = replace(task.kind.learn, null_threshold=threshold)
    return replace(task, kind=replace(task.kind, learn=scores))
