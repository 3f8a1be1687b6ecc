"""A tokenizer in Python and a network: texts become records, and these the network's outputs."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from albert_tf.kinds.base import Kind, Records
from albert_tf.kinds.spans.qa_windows import WINDOWS
from albert_tf.model import xla
from albert_tf.records import features
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import FinetuneConfig

BATCH = 32  # sequences that are computed at once

Arrays = Mapping[str, np.ndarray]  # [N, ...]
Batch = dict[str, tf.Tensor]
Compute = Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]]
Rows = Sequence[Sequence[str]]  # of texts, as `Data.list_texts` orders them


@dataclass(frozen=True)
class TextNetwork:
    """Texts -> the outputs of a network.

    Attributes:
        kind: how texts become records.
        tokenizer: of the vocabulary.
        labels: of the task, in the order of their ids.
        config: lengths of the records.
        inputs: names of what the network takes.
        shape: of a batch of ids, [-1, S], or of C choices [-1, C, S].
        compute: token ids -> outputs by name; see `trace`.
    """

    kind: Kind
    tokenizer: Tokenizer
    labels: Sequence[str]
    config: FinetuneConfig
    inputs: Sequence[str]
    shape: Sequence[int]
    compute: Compute

    def run(self, rows: Rows, batch_size: int = BATCH) -> tuple[Records, dict[str, np.ndarray]]:
        """Returns the records of rows and their outputs, [N, ...] by name, in order.

        The longest texts are computed first: a batch is as slow as its longest. Windows of long
        texts are computed `BATCH` at a time, whatever the number of rows.
        """
        records = encode(self.kind, rows, self.tokenizer, self.labels, self.config)
        if self.kind.data.window_noun:
            order, batch_size = np.arange(records.size), BATCH
        else:
            order = np.argsort([-sum(map(len, row)) for row in rows], kind="stable")
        parts = [
            {name: tensor.numpy() for name, tensor in self.compute(batch).items()}
            for batch in self._make_batches(records, order, batch_size)
        ]
        back = np.argsort(order)
        return records, {x: np.concatenate([part[x] for part in parts])[back] for x in parts[0]}

    def _make_batches(self, records: Records, order: np.ndarray, size: int) -> Iterator[Batch]:
        begins = range(0, records.size, size)
        if self.kind.data.window_noun:  # their outputs, of each token, must have one length
            windows = records.arrays[WINDOWS]
            longest = int((windows.firsts + windows.lengths).max()) + 1  # with the last [SEP]
            parts = (records.make_batch(slice(k, k + size)) for k in begins)
            yield from (self.make_batch(part, longest) for part in parts)
        else:
            yield from (self.make_batch(records.make_batch(order[k : k + size])) for k in begins)

    def make_batch(self, arrays: Arrays, longest: int = 2) -> Batch:
        """Returns the inputs, [N, S] or [N, C, S], as long as the longest sequence."""
        given = {x: np.reshape(arrays[x], self.shape) for x in self.inputs if x in arrays}
        longest = max(int(given[features.INPUT_MASK].sum(-1).max()), longest)
        return {name: tf.constant(x[..., :longest], tf.int32) for name, x in given.items()}


def encode(
    kind: Kind, rows: Rows, tokenizer: Tokenizer, labels: Sequence[str], config: FinetuneConfig
) -> Records:
    """Returns the records of rows of texts."""
    examples = [kind.data.make_example(str(number), tuple(row)) for number, row in enumerate(rows)]
    return kind.data.encode(examples, tokenizer, labels, config, trains=True)


def trace(compute: Compute, specs: Mapping[str, tf.TensorSpec]) -> Compute:
    """Returns what computes the same as one graph, in which layers that share weights are a loop.

    `compute` takes checked token ids.
    """

    def run(batch: Mapping[str, tf.Tensor]) -> Mapping[str, tf.Tensor]:
        options = {"custom_gradients": False, "loops_layers": True, "checks_values": False}
        with xla.trace_options(**options):
            return compute(batch)

    # Without `partial` TensorFlow takes graphs of several models for one traced again.
    return tf.function(functools.partial(run), input_signature=[specs], autograph=False)
