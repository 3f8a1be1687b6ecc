"""Token classification: words have tags that mark spans of the text."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import lazy_tensorflow as tf
from albert_tf import metrics
from albert_tf.errors import require
from albert_tf.kinds import answer, base, learn
from albert_tf.kinds.answer import WINDOWS, Answer
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
from albert_tf.kinds.spans import qa_windows, replies, tag_schemes, token_features
from albert_tf.kinds.spans.replies import Row
from albert_tf.kinds.spans.token_features import TaggedText
from albert_tf.kinds.tables import token_tables
from albert_tf.kinds.tables.task_rows import DataSource
from albert_tf.records import features
from albert_tf.tokenizers import text_words
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig, Lengths

NAME = "token_classification"


class TokenClassificationData(Data):
    """Examples are texts with tagged words, which are read in windows."""

    num_labels = 2
    window_noun = "tagged words"
    suffixes = token_tables.SUFFIXES
    files = (qa_windows.WINDOWS, qa_windows.WORDS)
    lengths = ("label_pieces", "doc_stride")

    def count_texts(self, task: Task) -> int:
        return 1

    def text_capacity(self, lengths: Lengths) -> int:
        return lengths.max_seq_length - features.NUM_TEXT_TOKENS

    def read_labels(self, path: str, source: DataSource) -> tuple[str, ...]:
        return token_tables.read_labels(path, source.columns)

    def read(self, split: base.TaskSplit, path: str) -> list[TaggedText]:
        labels, source = split.task.labels, split.source
        return token_tables.read(path, labels, source, is_test=split.is_test)

    def make_example(self, name: str, texts: tuple[str, ...]) -> TaggedText:
        return TaggedText(name, texts[0], tuple(text_words.find_words(texts[0])), None)

    def to_line(self, example: TaggedText) -> dict[str, Any]:
        return {**example._asdict(), "labelled": example.spans is not None}

    def encode(
        self,
        examples: Sequence[TaggedText],
        tokenizer: Tokenizer,
        labels: Sequence[str],
        lengths: Lengths,
        *,
        trains: bool = False,
    ) -> base.Records:
        """Returns one record per window.

        It counts as `words_without_tokens` the words that the tokenizer drops, and as
        `inexact_spans` the spans that begin or end inside a word.
        """
        tokens, words = token_features.tokenize(examples, tokenizer)
        windows = token_features.split_into_windows(tokens, lengths)
        label_ids, num_inexact = token_features.label_tokens(
            examples, tokens, words, labels, lengths.label_pieces
        )
        counts = {
            "windows": len(windows.unique_ids),
            "words": len(words.texts),
            "words_without_tokens": int(np.count_nonzero(words.tokens < 0)),
            "inexact_spans": num_inexact,
        }
        return base.Records(
            len(windows.unique_ids),
            lambda rows: token_features.make_features(
                rows, tokens, windows, lengths.max_seq_length, label_ids
            ),
            [self.to_line(example) for example in examples],
            counts,
            dict(zip(self.files, (windows, words), strict=True)),
        )

    def make_targets(self, tokens: features.TokenFeature, num_classes: int) -> features.Features:
        """1 + the label of each token, or 0 for a token that is not trained."""
        return {features.LABEL_IDS: tokens}


class TokenClassificationLearn(Learn):
    """Cross entropy over tokens; precision, recall and F1 of spans."""

    metrics = ("f1", "precision", "recall", "accuracy")

    def choose_metrics(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Tags without spans of several words, like parts of speech, have only an accuracy."""
        is_plain = tag_schemes.find_scheme(labels) == tag_schemes.PLAIN
        return ("accuracy",) if is_plain else self.metrics

    def make_loss(self, config: FinetuneConfig) -> Any:
        """Returns a mean over the trained tokens, not over examples."""

        def counts(batch: Tensors) -> dict[str, Any]:
            from albert_tf.model import losses

            return {self.kind: tf.reduce_sum(_trained(batch, losses.example_weights(batch)))}

        return super().make_loss(config)._replace(counts=counts)

    def sum_losses(
        self, outputs: Tensors, batch: Tensors, weights: Any, config: FinetuneConfig
    ) -> dict[str, Any]:
        from albert_tf.model import losses

        labels = tf.maximum(batch[features.LABEL_IDS] - 1, 0)
        return losses.classification_sums(
            self.kind, outputs["logits"], labels, _trained(batch, weights)
        )

    def describe_constant(self, labels: Sequence[Any], values: Sequence[Any]) -> None:
        return None

    def score(self, task: Task, gold: Gold, predictions: Predictions) -> base.Scores:
        """Precision, recall and F1 of spans with the exact ends and type; accuracy of words."""
        learn.check_scorable(gold, predictions, "spans")
        counts = np.array(
            [self._count(task, row, predictions[row["id"]]) for row in gold], np.int64
        )
        return learn.compute_scores(
            task.metrics, len(gold), lambda name, rows: _score_spans(counts[rows])[name]
        )

    def list_marks(
        self, gold: Mapping[str, Any], prediction: Prediction
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        spans = [(x["start"], x["end"], x["type"]) for x in prediction["prediction"]]
        return [tuple(span) for span in gold["spans"]], spans

    def list_types(self, labels: Sequence[str]) -> Sequence[str]:
        return tag_schemes.list_types(labels)

    def count_confusions(self, task: Task, gold: Gold, predictions: Predictions) -> base.Confusions:
        scheme = tag_schemes.find_scheme(task.labels)
        pairs: Counter[tuple[str, str]] = Counter()
        for row in gold:
            target, guess = (
                [tag_schemes.split_tag(tag, scheme)[1] or tag_schemes.OUTSIDE for tag in tags]
                for tags in self.tag_words(task, row, predictions[row["id"]])
            )
            pairs.update(zip(target, guess, strict=True))
        labels = [tag_schemes.OUTSIDE, *self.list_types(task.labels)]
        return base.Confusions("types of the words", labels, pairs)

    def find_mistakes(self, task: Task, gold: Gold, predictions: Predictions) -> Iterator[Mistake]:
        """The more spans are missing or wrong, the worse the mistake."""
        for example in gold:
            marks, guesses = self.list_marks(example, predictions[example["id"]])
            wrong = set(marks) ^ set(guesses)
            if wrong:
                actual, guessed = (
                    ", ".join(
                        f"{example['text'][begin:end]} = {type_}"
                        for begin, end, type_ in spans
                        if (begin, end, type_) in wrong
                    )
                    for spans in (marks, guesses)
                )
                places = [
                    (begin, end, name)
                    for name, spans in (("label", marks), ("predicted", guesses))
                    for begin, end, _ in spans
                ]
                names = actual or "none", guessed or "none"
                yield Mistake(example["id"], *names, len(wrong), places)

    def tag_words(
        self, task: Task, gold: Mapping[str, Any], prediction: Prediction
    ) -> tuple[list[str], list[str]]:
        """Returns the labelled and the predicted tags of the words of a text."""
        words = gold["words"]
        target, guess = (
            tag_schemes.write_tags(
                tag_schemes.to_word_spans(spans, words)[0], len(words), task.labels
            )
            for spans in self.list_marks(gold, prediction)
        )
        return target, guess

    def _count(
        self, task: Task, gold: Mapping[str, Any], prediction: Prediction
    ) -> tuple[int, int, int, int, int]:
        """Counts right, predicted and labelled spans of a text; correctly tagged and all words.

        A span is right if its ends and its type are, as in conlleval and seqeval.
        """
        marks, guesses = self.list_marks(gold, prediction)
        counts = len(set(marks) & set(guesses)), len(guesses), len(marks)
        target, guess = self.tag_words(task, gold, prediction)
        return (*counts, sum(a == b for a, b in zip(target, guess, strict=True)), len(target))


class TokenClassificationAnswer(Answer):
    """A prediction is {"prediction": [{"text", "type", "start", "end", "score"}]}."""

    head = "TokenClassifier"
    description = "marks spans in a text, of any length"
    view = "spans"
    asked = "spans"
    parts = frozenset({"encoder", "token_classifier"})
    labels_weight = "cls/token_classification/output_bias"
    choices = ("labels",)
    truncation_note = WINDOWS

    def apply(self, network: Any, ids: Tensors, options: ReplyOptions) -> dict[str, Any]:
        mask = {features.INPUT_MASK: ids[features.INPUT_MASK]}  # padding has no tags
        return {**super().apply(network, ids, options), **mask}

    def respond(self, outputs: Tensors, options: ReplyOptions) -> dict[str, Any]:
        logits = outputs["logits"]  # [B, S, C]
        best = tf.gather(tf.constant(options.labels), tf.argmax(logits, -1, output_type=tf.int32))
        tags = tf.where(outputs[features.INPUT_MASK] > 0, best, "")
        return {"tags": tags, "probabilities": tf.nn.softmax(logits), "logits": logits}

    def complete_labels(self, labels: tuple[str, ...], size: int, source: str) -> tuple[str, ...]:
        require(bool(labels), f"{source} does not name its tags: pass --labels=O,B-PER,I-PER.")
        tag_schemes.find_scheme(labels)
        return labels

    def predict(
        self, answers: Outputs, gold: Gold, options: ReplyOptions, arrays: base.Arrays
    ) -> list[Prediction]:
        from albert_tf.kinds.spans import tag_decoding

        windows, words = (arrays[name] for name in (qa_windows.WINDOWS, qa_windows.WORDS))
        return [*tag_decoding.predict(answers, windows, words, gold, options.labels).values()]

    def reply(
        self, answers: Outputs, gold: Gold, options: ReplyOptions, arrays: base.Arrays
    ) -> list[Row]:
        rows = []
        for prediction in self.predict(answers, gold, options, arrays):
            spans = prediction["prediction"]
            columns = {name: [span[x] for span in spans] for name, x in replies.SPANS.items()}
            rows.append(replies.round_as_float32({"num_spans": len(spans), **columns}))
        return rows

    def is_sound(self, prediction: Prediction, labels: Sequence[str]) -> bool:
        spans = prediction.get("prediction")
        return isinstance(spans, list) and all(
            _is_span(span)
            and isinstance(span.get("text"), str)
            and answer.is_number(span.get("score"))
            for span in spans
        )

    def is_plain(self, value: Any, labels: Sequence[str]) -> bool:
        return isinstance(value, list) and all(map(_is_span, value))

    def average(self, members: Sequence[Prediction], labels: Sequence[str]) -> Prediction:
        """Returns the spans whose mean score is above one half; a member without a span scores 0.

        Two of them never overlap: some member would have both if more than half have each.
        """
        spans: dict[tuple[int, int, str], dict[str, Any]] = {}
        for member in members:
            for span in member["prediction"]:
                key = span["start"], span["end"], span["type"]
                known = spans.setdefault(key, {**span, "score": 0.0})
                known["score"] += span["score"] / len(members)
        return {"prediction": [spans[key] for key in sorted(spans) if spans[key]["score"] > 0.5]}

    def describe(self, prediction: Prediction, labels: Sequence[str]) -> list[str]:
        return [
            f"{x['type']}: {x['text']} [{x['start']}-{x['end']}] ({x['score']:.3f})"
            for x in prediction["prediction"]
        ] or ["none"]


def _trained(batch: Tensors, weights: Any) -> Any:  # [B, S]
    """Returns 1.0 for a trained token, else 0.0; `weights` [B] are the weights of examples."""
    is_trained = tf.cast(batch[features.LABEL_IDS] > 0, tf.float32)
    return is_trained * weights[:, tf.newaxis]


def _is_span(value: Any) -> bool:
    fields = {"start": int, "end": int, "type": str}
    return isinstance(value, dict) and all(type(value.get(x)) is fields[x] for x in fields)


def _score_spans(counts: np.ndarray) -> dict[str, float]:
    """[N, 5] from `_count` -> precision, recall and F1 of spans, accuracy of words."""
    precision, recall, f1 = metrics.precision_recall_f1(metrics.Counts(*counts[:, :3].T))
    correct, words = counts[:, 3:].sum(0)
    accuracy = float(correct / max(words, 1))
    return {"precision": precision, "recall": recall, "f1": f1, "accuracy": accuracy}


KIND = base.Kind(
    NAME,
    TokenClassificationData(NAME),
    TokenClassificationLearn(NAME),
    TokenClassificationAnswer(NAME),
)
