"""Sentence embeddings: texts that belong together have similar embeddings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, require
from albert_tf.kinds import answer, base, learn
from albert_tf.kinds.answer import Answer
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
from albert_tf.kinds.learn import Learn
from albert_tf.kinds.spans.qa_windows import VECTORS, Vectors
from albert_tf.kinds.tables import task_rows, teacher_vectors
from albert_tf.kinds.tables.task_rows import Columns
from albert_tf.kinds.text_data import TextData
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig, Lengths

NAME = "sentence_embedding"

CONTRASTIVE = "contrastive"  # the loss
_QUERIES = 1024  # searched at once
_CONSTANT_COSINES = 1e-4
# For pairs with a similarity; otherwise the counterpart is searched for.
SIMILARITY_METRICS = ("spearman", "pearson")


class SentenceEmbeddingData(TextData):
    """An example is a text, its counterpart, and optional hard negatives."""

    num_labels = 0
    has_several_sequences = True
    columns = ("second_text", "negatives", "simcse")

    def count_texts(self, task: Task) -> int:
        return 1

    def describe_columns(self, columns: Columns) -> dict[str, Any]:
        return {"num_texts": 2 + len(columns.negatives)}

    def choose_columns(
        self, split: base.TaskSplit, known: Sequence[str], path: str
    ) -> tuple[list[str], str | None]:
        """Hard negatives are needed for training only; a similarity is never needed."""
        columns, trains = split.source.columns, split.name == "train"
        if trains and columns.simcse:
            require(not columns.negatives, "--simcse has no hard negatives: leave one of them out.")
            return [columns.text, columns.text], None
        if split.is_taught:
            return [columns.text], None
        if columns.second_text is None:
            end = ", or use --simcse or --teacher." if trains else "."
            needs = f"{self.kind} needs pairs of texts: pass --second_text_column"
            raise UserError(f"{path}: {needs}{end}")
        negatives = [x for x in columns.negatives if trains or x in known]
        label = None if trains or columns.label not in known else columns.label
        return [columns.text, columns.second_text, *negatives], label

    def read_label(
        self, row: Mapping[str, Any], column: str | None, split: base.TaskSplit, place: str
    ) -> base.Label | None:
        if column is None:
            return None
        return split.task.parse_label(task_rows.to_label(row[column], column, place), place)

    def read(self, split: base.TaskSplit, path: str) -> list[base.Example]:
        examples, source = super().read(split, path), split.source.teacher_vectors
        if not source or split.name != "train":
            return examples
        vectors = teacher_vectors.read(source, [example.id for example in examples])
        return [x._replace(teacher=row) for x, row in zip(examples, vectors, strict=True)]

    def encode(
        self,
        examples: Sequence[base.Example],
        tokenizer: Tokenizer,
        labels: Sequence[str],
        lengths: Lengths,
        *,
        trains: bool = False,
    ) -> base.Records:
        """Returns one record per example for training, otherwise one per text.

        A training record has a text, its counterpart and hard negatives, one sequence each. For
        evaluation, a passage may belong to many questions, so lines hold the indices of records:

            {"id": "0", "label": 4.5, "texts": [0, 1], "labelled": true}

        The label is the similarity of the two; None if the counterpart is searched for. With a
        teacher's embeddings, a training record has a text and its nearest neighbours.
        """
        if trains and examples[0].teacher is not None:
            return self._encode_neighbours(examples, tokenizer, lengths)
        numbers: dict[str, int] = {}
        for example in examples:
            for text in example.texts:
                numbers.setdefault(text, len(numbers))
        rows = [[numbers[text] for text in example.texts] for example in examples]
        texts = [example.texts for example in examples] if trains else [(x,) for x in numbers]
        ids = np.array(rows, np.int32) if trains else np.arange(len(texts), dtype=np.int32)[:, None]
        records = self.encode_texts(texts, ids, tokenizer, lengths)
        lines = [
            {**self.to_line(example), "texts": row, "labelled": True}
            for example, row in zip(examples, rows, strict=True)
        ]
        records.counts["texts"] = len(numbers)
        return records._replace(lines=lines, settings={"num_texts": ids.shape[1]})

    def _encode_neighbours(
        self, examples: Sequence[base.Example], tokenizer: Tokenizer, lengths: Lengths
    ) -> base.Records:
        examples, vectors, groups = teacher_vectors.group(examples)
        texts = [[examples[number].texts[0] for number in numbers] for numbers in groups]
        lines = [{**self.to_line(example), "labelled": True} for example in examples]
        return self.encode_texts(texts, groups, tokenizer, lengths)._replace(
            lines=lines,
            settings={"num_texts": groups.shape[1], "teacher_size": vectors.shape[1]},
            arrays={VECTORS: Vectors(vectors)},
        )

    def make_targets(self, tokens: features.TokenFeature, num_classes: int) -> features.Features:
        """Ids of texts: equal texts have equal ids."""
        return {features.LABEL_IDS: tf.io.FixedLenFeature([num_classes], tf.int64)}

    def truncate(
        self, rows: Sequence[Sequence[base.Tokens]], lengths: Lengths
    ) -> tuple[list[Sequence[base.Tokens]], dict[str, int]]:
        """Each text is one sequence, truncated at its end."""
        room = lengths.max_seq_length - features.NUM_TEXT_TOKENS
        sequences: list[Sequence[base.Tokens]] = [(text[:room],) for row in rows for text in row]
        num_truncated = sum(any(len(text) > room for text in row) for row in rows)
        return sequences, {"truncated": num_truncated}


class SentenceEmbeddingLearn(Learn):
    """Pulls texts that belong together closer; correlations, or ranks of the counterparts."""

    metrics = ("mrr", "recall@1", "recall@5", "recall@10")
    has_teacher = True

    def list_losses(self, config: FinetuneConfig) -> tuple[str, ...]:
        return (CONTRASTIVE,)

    def make_loss(self, config: FinetuneConfig) -> Any:
        return super().make_loss(config)._replace(compares_rows=True)

    def sum_losses(
        self, outputs: Tensors, batch: Tensors, weights: Any, config: FinetuneConfig
    ) -> dict[str, Any]:
        """Contrasts texts that belong together with all others in the batch (InfoNCE).

        An example is a text, its counterpart and optional hard negatives. The cosine of a text and
        its counterpart, divided by the temperature, competes in a softmax with the cosines of the
        text and every other counterpart and hard negative in the same replica and micro-batch: no
        embedding travels between devices, and more micro-batches mean fewer negatives. A text equal
        to the first text or to its counterpart is not used as a negative.
        """
        from albert_tf.model import losses, ops

        numbers = batch[features.LABEL_IDS]  # [B, C]
        rows, texts = tf.shape(numbers)[0], numbers.shape[1]
        vectors = tf.math.l2_normalize(tf.cast(outputs["embedding"], tf.float32), -1)
        vectors = tf.reshape(vectors, [rows, texts, vectors.shape[-1]])
        # All counterparts, then all first hard negatives, and so on: [B * (C - 1), ...].
        others = tf.reshape(tf.transpose(vectors[:, 1:], [1, 0, 2]), [-1, vectors.shape[-1]])
        other_numbers = tf.reshape(tf.transpose(numbers[:, 1:]), [1, -1])
        logits = tf.matmul(vectors[:, 0], others, transpose_b=True) / config.temperature
        is_equal = (other_numbers == numbers[:, :1]) | (other_numbers == numbers[:, 1:2])
        is_own = tf.eye(rows, tf.shape(others)[0], dtype=tf.bool)
        logits = tf.where(is_equal & ~is_own, -1e30, logits)
        entropy = ops.cross_entropy(logits, tf.range(rows))
        correct = losses.is_correct(logits, tf.range(rows))
        return {
            f"{CONTRASTIVE}_loss": tf.reduce_sum(entropy * weights),
            f"{CONTRASTIVE}_correct": tf.reduce_sum(correct * weights),
        }

    def describe_constant(self, labels: Sequence[Any], values: Sequence[Any]) -> str | None:
        if len(values) > 1 and np.ptp(values) < _CONSTANT_COSINES:
            return f"about {np.mean(values):.4g}"
        return None

    def score(self, task: Task, gold: Gold, predictions: Predictions) -> base.Scores:
        """Correlations of cosines and labels; without labels, the mean reciprocal rank and recall.

        Recall is the share of ranks up to 1, 5 and 10.
        """
        if gold[0]["label"] is not None:
            return learn.score_values(task, SIMILARITY_METRICS, gold, predictions)
        ids = [example["id"] for example in gold]
        learn.check_ids(dict.fromkeys(ids), predictions, "the predictions")
        if missing := [id_ for id_ in ids if "rank" not in predictions[id_]]:
            raise UserError(
                f"the prediction of {missing[0]!r} has no rank: predict the split again."
            )
        ranks = np.array([predictions[id_]["rank"] for id_ in ids])
        values = {"mrr": 1 / ranks, **{f"recall@{k}": (ranks <= k) * 1.0 for k in (1, 5, 10)}}
        return learn.compute_scores(
            task.metrics, len(gold), lambda name, rows: float(values[name][rows].mean())
        )

    def choose_best_by(self, task: Task, gold: Gold) -> str:
        return task.best_by if gold[0].get("label") is None else SIMILARITY_METRICS[0]

    def find_mistakes(self, task: Task, gold: Gold, predictions: Predictions) -> Iterator[Mistake]:
        """The worst ranks; for labelled pairs, cosines whose rank is farthest from the label's."""
        values = [predictions[example["id"]] for example in gold]
        if gold and gold[0]["label"] is not None:
            import scipy

            labels = [example["label"] for example in gold]
            cosines = [value["prediction"] for value in values]
            ranks = [scipy.stats.rankdata(numbers) for numbers in (labels, cosines)]
            for example, label, cosine, one, other in zip(
                gold, labels, cosines, *ranks, strict=True
            ):
                if one != other:
                    actual, guessed = f"{label:.4g}, rank {one:g}", f"{cosine:.4g}, rank {other:g}"
                    yield Mistake(example["id"], actual, guessed, abs(one - other))
            return
        for example, value in zip(gold, values, strict=True):
            if (rank := value.get("rank", 1)) > 1:
                yield Mistake(example["id"], "rank 1", f"rank {rank:,}", rank)


class SentenceEmbeddingAnswer(Answer):
    """A prediction is {"prediction": cosine of the two texts, "rank": number}.

    The rank of the second text among all second texts of the file, by cosine, counts from 1.
    """

    gives_vectors = True
    description = "gives one embedding for a text"
    parts = frozenset({"encoder"})
    choices = ("pooling", "normalize")

    def list_weights(
        self, weights: Mapping[str, Any], config: FinetuneConfig, source: str
    ) -> dict[str, tuple[int, ...]]:
        from albert_tf.model import weight_names

        more = {weight_names.POOLER} if config.pooling == "pooler" else set()
        more |= {weight_names.EMBEDDING} if config.embedding_size else set()
        return weight_names.list_shapes(config.albert, *self.parts, *more)

    def apply(self, network: Any, ids: Tensors, options: ReplyOptions) -> dict[str, Any]:
        """Any network gives embeddings, whatever its head; the head may have a linear layer."""
        from albert_tf.model import albert_model, task_heads

        encoder = getattr(network, "albert", network)
        if options.pooling != "mean":
            positions = albert_model.no_positions(ids)
            outputs = encoder(ids, positions=positions, skips_padding=True)
            is_raw, last = options.pooling == "cls", outputs["encoder_outputs"][-1]
            first = last[:, 0] if is_raw else outputs["pooled_output"]
            vectors = tf.cast(first, tf.float32)
        else:
            tokens = encoder(ids, skips_padding=True, pooled=False)["sequence_output"]
            vectors = task_heads.average_tokens(tokens, ids[features.INPUT_MASK])
        if isinstance(head := getattr(network, "head", None), task_heads.MeanEmbedding):
            vectors = head.project(vectors)
        return {"embedding": vectors}

    def make_network(self, config: Any, options: Any) -> Any:
        from albert_tf.model import task_heads, task_model

        if not options.run_config.embedding_size:
            return super().make_network(config, options)
        sizes = task_heads.HeadSizes.from_config(1, options.run_config)
        head = task_heads.EMBEDDINGS[options.pooling]
        return task_model.AlbertForTask(config, head, sizes, seed=None, dtype=options.dtype)

    def respond(self, outputs: Tensors, options: ReplyOptions) -> dict[str, Any]:
        vectors = outputs["embedding"]
        return {"embedding": tf.math.l2_normalize(vectors, -1) if options.normalize else vectors}

    def choose_head(self, config: FinetuneConfig) -> Any:
        from albert_tf.model import task_heads

        return task_heads.EMBEDDINGS[config.pooling]

    def predict(
        self, answers: Outputs, gold: Gold, options: ReplyOptions, arrays: base.Arrays
    ) -> list[Prediction]:
        """Ranks the second text of an example among all of them.

        A text equal to the first one is left out. Of equal or non-finite cosines, the counterpart
        ranks last: embeddings that are all the same find nothing.
        """
        vectors = answers["embedding"].astype(np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
        candidates = np.unique([k for example in gold for k in example["texts"][1:]])
        predictions: list[Prediction] = []
        for begin in range(0, len(gold), _QUERIES):
            block = gold[begin : begin + _QUERIES]
            first, second = np.array([example["texts"][:2] for example in block]).T
            cosines = vectors[first] @ vectors[candidates].T  # [Q, M]
            places = np.searchsorted(candidates, second)
            own = cosines[np.arange(len(block)), places]
            is_other = (candidates != first[:, np.newaxis]) | (candidates == second[:, np.newaxis])
            ranks = (~(cosines < own[:, np.newaxis]) & is_other).sum(1)
            pairs = zip(own.tolist(), ranks.tolist(), strict=True)
            predictions += [{"prediction": cosine, "rank": rank} for cosine, rank in pairs]
        return predictions

    def is_sound(self, prediction: Prediction, labels: Sequence[str]) -> bool:
        rank = prediction.get("rank", 1)
        return answer.is_number(prediction.get("prediction")) and type(rank) is int and rank > 0


KIND = base.Kind(
    NAME, SentenceEmbeddingData(NAME), SentenceEmbeddingLearn(NAME), SentenceEmbeddingAnswer(NAME)
)
