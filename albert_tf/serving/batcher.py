"""Joins waiting requests into batches, for the threads that compute them."""

import collections
import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf
from absl import logging

from albert_tf.errors import assertion_message
from albert_tf.serving.refusals import Refusal, invalid
from albert_tf.serving.served_model import Arrays, ServedSignature
from albert_tf.serving.server_metrics import Metrics

# Texts share a batch if the longer has at most twice the bytes of the shorter plus these.
_SLACK_BYTES = 128


@dataclass(eq=False)
class Request:
    """A request that waits for its rows.

    Attributes:
        signature: the signature that answers it.
        deadline: on `time.monotonic`'s clock; after it, the request is not computed.
        future: the future of the outputs, [N, ...] by name.
        parts: outputs, keyed by their first row.
        num_parts: the expected number of parts.
    """

    signature: ServedSignature
    deadline: float
    future: Future = field(default_factory=Future)
    parts: dict[int, Arrays] = field(default_factory=dict)
    num_parts: int = 0

    def is_over(self) -> bool:
        return self.future.done() or time.monotonic() > self.deadline

    def finish(self, begin: int, outputs: Arrays) -> None:
        """Adds the outputs of a part; the last one completes the request."""
        self.parts[begin] = outputs
        if len(self.parts) == self.num_parts:  # not a counter: two threads may be here at once
            parts = [self.parts[key] for key in sorted(self.parts)]
            joined = {name: np.concatenate([x[name] for x in parts]) for name in parts[0]}
            with contextlib.suppress(
                InvalidStateError
            ):  # the client has gone, or it is already set
                self.future.set_result(joined)

    def fail(self, refusal: Exception) -> None:
        with contextlib.suppress(InvalidStateError):
            self.future.set_exception(refusal)


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a request that are computed together: one if its signature is joined, else all."""

    request: Request
    begin: int
    inputs: Arrays
    size: int

    @property
    def group(self) -> object:
        """The key of parts that may share a batch."""
        shapes = tuple(value.shape[1:] for value in self.inputs.values())
        signature = self.request.signature
        return (signature.function, shapes) if signature.is_joined else self


class Batcher:
    """Computes the rows of all models in batches of waiting rows: see `submit`.

    Args:
        max_batch_size: rows per batch.
        max_wait: seconds that a row waits for others.
        max_queue: waiting rows; further rows are refused.
        num_threads: batches computed in parallel.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        max_batch_size: int = 32,
        max_wait: float = 0.0,
        max_queue: int = 1000,
        num_threads: int = 1,
    ) -> None:
        self._max_batch_size, self._max_wait = max_batch_size, max_wait
        self._max_queue, self._metrics = max_queue, metrics
        self._waiting: collections.deque[Part] = collections.deque()
        self._changed = threading.Condition()
        self._ends = False
        self._last_size = 0
        self._threads = [
            threading.Thread(target=self._work, name="model", daemon=True)
            for _ in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def close(self, seconds: float) -> bool:
        """Stops the threads, and returns whether they stopped within `seconds`."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(seconds)
        return not any(thread.is_alive() for thread in self._threads)

    def submit(self, signature: ServedSignature, inputs: Arrays, deadline: float) -> Future:
        """Returns the future of the outputs for inputs [N, ...]; cancel it if nobody waits.

        The future raises `Refusal`; `submit` raises it if too many rows wait.
        """
        request = Request(signature, deadline)
        parts = [*_split(request, inputs)]
        request.num_parts = len(parts)
        with self._changed:
            if len(self._waiting) >= self._max_queue:  # some may be cancelled or late
                self._waiting = collections.deque(
                    x for x in self._waiting if not x.request.is_over()
                )
            if len(self._waiting) + len(parts) > max(self._max_queue, len(parts)):
                raise Refusal(
                    "RESOURCE_EXHAUSTED", f"{len(self._waiting)} texts are already waiting."
                )
            self._waiting.extend(parts)
            self._changed.notify_all()  # one thread may wait for a full batch, another may be free
        self._metrics.queue.set(len(self._waiting))
        return request.future

    def _work(self) -> None:
        while batch := self._take():
            try:
                self._compute(batch)
            except Exception as error:  # a bug must not end the thread
                # The error text may contain a request's text.
                logging.error("A batch failed: %s.", type(error).__name__)
                for part in batch:
                    part.request.fail(Refusal("INTERNAL", "The model failed."))

    def _take(self) -> Sequence[Part]:
        """Waits for parts and returns a batch: the oldest part, and similar ones.

        Returns an empty batch after `close`.
        """
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting or self._ends)
                if self._ends:
                    return ()
                # A single client would wait for nothing.
                if self._max_wait and self._last_size + len(self._waiting) > 2:
                    is_full = lambda: len(self._waiting) >= self._max_batch_size  # noqa: E731
                    self._changed.wait_for(is_full, self._max_wait)
                waiting = [part for part in self._waiting if not part.request.is_over()]
                batch = _choose(waiting, self._max_batch_size)
                chosen = set(map(id, batch))
                self._waiting = collections.deque(x for x in waiting if id(x) not in chosen)
                self._metrics.queue.set(len(self._waiting))
                if batch:
                    self._changed.notify_all()  # other threads handle the rest
                    return batch

    def _compute(self, batch: Sequence[Part]) -> None:
        signature = batch[0].request.signature
        inputs = {
            name: np.concatenate([part.inputs[name] for part in batch]) for name in signature.inputs
        }
        try:
            with self._metrics.stage("compute"):
                outputs = signature.run(inputs)
        except tf.errors.InvalidArgumentError as error:
            if len(batch) == 1:
                batch[0].request.fail(invalid(assertion_message(error)))
                return
            for part in batch:  # one bad part must not fail the others
                self._compute([part])
            return
        self._last_size = size = sum(part.size for part in batch)
        self._metrics.batch_size.observe(size)
        begin = 0
        for part in batch:
            end = begin + part.size
            part.request.finish(part.begin, {x: y[begin:end] for x, y in outputs.items()})
            begin = end


def _split(request: Request, inputs: Arrays) -> Iterator[Part]:
    size = len(next(iter(inputs.values())))
    step = 1 if request.signature.is_joined else size
    for begin in range(0, size, step):
        rows = {name: value[begin : begin + step] for name, value in inputs.items()}
        yield Part(request, begin, rows, step)


def _choose(waiting: Sequence[Part], max_size: int) -> Sequence[Part]:
    """Returns the first part and the parts of its group with the most similar lengths."""
    if not waiting:
        return ()
    first, group = waiting[0], waiting[0].group
    length = _count_bytes(first)
    lengths = [(_count_bytes(x), x) for x in waiting if x is first or x.group == group]
    fit = [
        (abs(number - length), part)
        for number, part in lengths
        if max(number, length) <= 2 * min(number, length) + _SLACK_BYTES
    ]
    return [part for _, part in sorted(fit, key=lambda x: (x[1] is not first, x[0]))[:max_size]]


def _count_bytes(part: Part) -> int:
    """Returns the bytes of a part's texts, or the sizes of its other inputs."""
    return sum(sum(map(len, x.flat)) if x.dtype == object else x.size for x in part.inputs.values())
