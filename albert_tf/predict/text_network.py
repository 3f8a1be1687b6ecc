"""A Python tokenizer and a network: turns texts into records, and these into answers."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.requests import token_ids
from albert_tf.kinds.base import TOKENS, Prediction, Records
from albert_tf.kinds.spans.qa_windows import WINDOWS
from albert_tf.kinds.spans.replies import Row
from albert_tf.model import xla
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer

BATCH = 32  # sequences that are computed at once

Batch = dict[str, tf.Tensor]
Rows = Sequence[Sequence[str]]  # texts, in the order of `Data.list_texts`


@dataclass(frozen=True)
class TextNetwork:
    """Texts -> the answers of a model in memory.

    Attributes:
        model: the network, how it answers, and its tokenizer.
        compute: token ids -> answers by name, as one graph.
    """

    model: ExportedModel
    compute: Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]]

    def predict(self, rows: Rows) -> tuple[list[Prediction], Records]:
        """Returns the predictions for rows, and their records."""
        records, answers = self.run(rows)
        options, arrays = self.model.options, records.arrays
        return self.model.answer.predict(answers, records.lines, options, arrays), records

    def reply(self, rows: Rows, batch_size: int = BATCH) -> list[Row]:
        """Returns the replies that an export of the model would give."""
        records, answers = self.run(rows, batch_size)
        return self.model.answer.reply(answers, records.lines, self.model.options, records.arrays)

    def run(self, rows: Rows, batch_size: int = BATCH) -> tuple[Records, dict[str, np.ndarray]]:
        """Returns the records of rows and their answers, [N, ...] by name, in order.

        The longest texts are computed first: a batch is as slow as its longest text. Windows of
        long texts are computed `BATCH` at a time, whatever the number of rows.
        """
        records = self.encode(rows)
        if self.model.kind.data.window_noun:
            order, batch_size = np.arange(records.size), BATCH
        else:
            order = np.argsort([-sum(map(len, row)) for row in rows], kind="stable")
        parts = [
            {name: tensor.numpy() for name, tensor in self.compute(batch).items()}
            for batch in self._make_batches(records, order, batch_size)
        ]
        back = np.argsort(order)
        return records, {x: np.concatenate([part[x] for part in parts])[back] for x in parts[0]}

    def encode(self, rows: Rows) -> Records:
        """Returns the records of rows of texts."""
        data, options = self.model.kind.data, self.model.options
        examples = [data.make_example(str(number), tuple(row)) for number, row in enumerate(rows)]
        lengths = options.run_config
        return data.encode(examples, self.tokenizer, options.labels, lengths, trains=True)

    @property
    def tokenizer(self) -> Tokenizer:
        assert self.model.tokenizer, "`make` refuses models without it"
        return self.model.tokenizer

    def _make_batches(self, records: Records, order: np.ndarray, size: int) -> Iterator[Batch]:
        begins, longest = range(0, records.size, size), 2
        if self.model.kind.data.window_noun:  # answers per token must have the same length
            windows = records.arrays[WINDOWS]
            longest = int((windows.firsts + windows.lengths).max()) + 1  # including the last [SEP]
        for begin in begins:
            yield self._make_batch(records.make_batch(order[begin : begin + size]), longest)

    def _make_batch(self, arrays: Mapping[str, np.ndarray], longest: int) -> Batch:
        """Returns the inputs, ids [N, S] or [N, C, S], as long as the longest sequence."""
        shape = self.model.shape_ids(-1, self.model.options.run_config.max_seq_length)
        longest = max(int(np.reshape(arrays[features.INPUT_MASK], shape).sum(-1).max()), longest)
        like_ids = (*TOKENS, features.P_MASK)
        return {
            name: tf.constant(
                np.reshape(arrays[name], shape)[..., :longest]
                if name in like_ids
                else arrays[name],
                tf.int32,
            )
            for name in self.model.inputs
        }


def make(model: ExportedModel) -> TextNetwork:
    """Returns the text network of a model; `UserError` if it has no vocabulary.

    It runs as one graph, with a loop over layers that share weights.
    """
    if model.tokenizer is None:
        raise UserError(f"{model.source} has no vocabulary: put it there.")
    tokenizer = model.tokenizer

    def compute(ids: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        options = {"custom_gradients": False, "loops_layers": True, "checks_values": False}
        with xla.trace_options(**options):
            return model.answer.respond_to_texts(model.compute_outputs(ids), ids, tokenizer)

    specs = token_ids.make_specs(model.inputs, model.answer.rank)
    # Without `partial`, TensorFlow mistakes the graphs of several models for retracing.
    traced = tf.function(functools.partial(compute), input_signature=[specs], autograph=False)
    return TextNetwork(model, traced)
