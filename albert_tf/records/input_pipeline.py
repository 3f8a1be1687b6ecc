"""Makes batches for the replicas of a strategy from TFRecord files.

The order of the data is a pure function of (seed, pass over the files), and batch n is the same for
any number of workers and replicas: every worker reads the whole stream of raw records, which is
cheap, and parses its own rows of each batch. The position of a run in its data is one number.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.records import features, manifest
from albert_tf.records.online_masking import OnlineMasking

# Files read at a time, and records from one file before the next: so a batch comes from different
# files even with a small shuffle buffer.
_CYCLE = 16
_BLOCK = 4
# Batches whose records are sorted by length together.
_WINDOW = 50
_MASKED = 512  # records masked at once
_RAW, _NUMBERS = "raw", "numbers"  # parts of a batch before masking
_PARSED = 4096  # records parsed at once, to count their tokens
# The errors when reading a damaged file, a file whose number of examples differs from the manifest,
# and a file with an invalid record.
DAMAGED = (
    tf.errors.DataLossError,
    tf.errors.FailedPreconditionError,
    tf.errors.InvalidArgumentError,
)
_OTHER_NUMBER = "Input dataset was expected to contain"
# For dataset functions: there is nothing to convert, and the search takes seconds.
_as_it_is = tf.autograph.experimental.do_not_convert


def _find_compression(paths: Sequence[str]) -> str:
    kinds = {"GZIP" if path.endswith(".gz") else "" for path in paths}
    if len(kinds) > 1:
        raise UserError("records with and without .gz cannot be mixed. Pass one kind.")
    return kinds.pop()


def read(paths: Sequence[str]) -> tf.data.Dataset:
    """The serialized records of files, in their order; `UserError` if some alone are .gz."""
    return tf.data.TFRecordDataset(list(paths), compression_type=_find_compression(paths))


def train_batches(
    paths: Sequence[str],
    *,
    batch_size: int,
    seed: int,
    shuffle_buffer_size: int,
    position: int,
    group_by_length: features.Features | None = None,
) -> tf.data.Dataset:
    """Endless shuffled batches of serialized records, [batch_size] strings, for all replicas.

    `seed` determines the order of files and records, different in each pass; the manifest is next
    to the files. `shuffle_buffer_size` counts records; `position` is the number of batches to skip:
    this reads at most one group of files. With the features of the records in `group_by_length`,
    batches have records of similar length.
    """
    counts = manifest.count_examples(paths)
    num_records = sum(counts)
    # Created here, the list is an input of the graph; inside, each function would hold it.
    files = tf.constant(list(paths)), _find_compression(paths)
    one_pass = functools.partial(_one_pass, files, counts, seed, shuffle_buffer_size)

    if group_by_length and num_records >= batch_size:
        spec = group_by_length
        first_pass = ((position + 1) * batch_size - 1) // num_records
        skipped = position - first_pass * num_records // batch_size

        @_as_it_is
        def one_grouped_pass(number: tf.Tensor) -> tf.data.Dataset:
            # Records that do not fill a batch at the end of a pass belong to the next pass.
            carried, left = (n * num_records % batch_size for n in (number, number + 1))
            before = one_pass(number - 1).skip(num_records - carried).take(carried)
            records = before.concatenate(one_pass(number).take(num_records - left))
            return _group_by_length(records, spec, batch_size, [seed, number])

        passes = tf.data.Dataset.range(first_pass, tf.int64.max)
        return passes.flat_map(one_grouped_pass).skip(skipped)

    first_pass, skipped = divmod(position * batch_size, num_records)
    passes = tf.data.Dataset.range(first_pass + 1, tf.int64.max).flat_map(one_pass)
    records = one_pass(tf.constant(first_pass, tf.int64), skipped).concatenate(passes)
    return records.batch(batch_size, drop_remainder=True)


@_as_it_is
def _one_pass(
    files: tuple[tf.Tensor, str],
    counts: Sequence[int],
    seed: int,
    buffer_size: int,
    number: tf.Tensor,
    skipped: int = 0,
) -> tf.data.Dataset:
    """All records of a pass except the first `skipped`; `files` are paths and their compression.

    The pass determines the order of the files, which are read in groups. The records of a group are
    divided into buffers, each shuffled separately: no record depends on an earlier group.
    """
    key = tf.stack([tf.cast(seed, tf.int64), number])
    order = tf.random.experimental.stateless_shuffle(tf.range(len(counts)), seed=key)
    first_group, expected = 0, sum(counts)
    if skipped:
        ends = np.cumsum(np.array(counts)[order])
        first_group = int(np.searchsorted(ends, skipped, "right")) // _CYCLE
        before = int(ends[first_group * _CYCLE - 1]) if first_group else 0
        expected, skipped = expected - before, skipped - before
    paths, compression = files

    @_as_it_is
    def read_group(group: tf.Tensor, paths: tf.Tensor) -> tf.data.Dataset:
        def permute(buffer: tf.Tensor, records: tf.Tensor) -> tf.data.Dataset:
            own = tf.random.fold_in(tf.random.fold_in(key, group), buffer)
            places = tf.random.experimental.stateless_shuffle(tf.range(tf.size(records)), seed=own)
            return tf.data.Dataset.from_tensor_slices(tf.gather(records, places))

        records = tf.data.Dataset.from_tensor_slices(paths).interleave(
            lambda path: tf.data.TFRecordDataset(path, compression_type=compression),
            cycle_length=_CYCLE,
            block_length=_BLOCK,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        return records.batch(buffer_size).enumerate().prefetch(1).flat_map(permute)

    ordered = tf.data.Dataset.from_tensor_slices(tf.gather(paths, order))
    records = ordered.batch(_CYCLE).enumerate().skip(first_group).flat_map(read_group)
    return records.apply(tf.data.experimental.assert_cardinality(expected)).skip(skipped)


def _group_by_length(
    records: tf.data.Dataset, spec: features.Features, batch_size: int, key: Sequence
) -> tf.data.Dataset:
    """Batches of records with similar lengths, in random order within each window of batches."""

    @_as_it_is
    def sort_window(number: tf.Tensor, window: tf.Tensor) -> tf.data.Dataset:
        lengths = features.count_tokens(window, spec)
        order = tf.reshape(tf.argsort(lengths, stable=True), [-1, batch_size])
        seed = tf.stack([tf.cast(key[0], tf.int64), key[1] * 2**32 + number])
        order = tf.random.experimental.stateless_shuffle(order, seed=seed)
        return tf.data.Dataset.from_tensor_slices(tf.gather(window, order))

    return records.batch(_WINDOW * batch_size).enumerate().flat_map(sort_window)


def eval_batches(paths: Sequence[str], *, batch_size: int, max_examples: int) -> tf.data.Dataset:
    """Every record once, in order: ([batch_size] strings, [batch_size] is_real_example).

    The last batch is filled with copies whose `is_real_example` is 0. Reads `max_examples`, or all
    if that is 0.
    """
    records = read(paths)
    num_records = sum(manifest.count_examples(paths))
    records = records.apply(tf.data.experimental.assert_cardinality(num_records))
    if max_examples:
        records = records.take(max_examples)

    @_as_it_is
    def fill(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        rows, last = tf.range(batch_size), tf.shape(batch)[0] - 1
        return tf.gather(batch, tf.minimum(rows, last)), tf.cast(rows <= last, tf.float32)

    return records.batch(batch_size).map(fill)


def distribute_eval(
    strategy: tf.distribute.Strategy,
    paths: Sequence[str],
    spec: features.Features,
    *,
    batch_size: int,
    max_examples: int = 0,
    masking: OnlineMasking | None = None,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """`eval_batches` for the replicas of a strategy, with equally many rows; see `distribute`."""
    batch_size += -batch_size % strategy.num_replicas_in_sync
    make = functools.partial(eval_batches, paths, batch_size=batch_size, max_examples=max_examples)
    return distribute(strategy, make, spec, masking=masking)


def load(path: str) -> tf.Tensor:
    """Returns the serialized records of a file, [N] strings."""
    return tf.constant([*read([path]).as_numpy_iterator()], tf.string)


def count_tokens(records: tf.Tensor, spec: features.Features) -> np.ndarray:
    """[N] strings -> [N] int32, the tokens of the longest sequence of each record."""
    parts = (records[i : i + _PARSED] for i in range(0, len(records), _PARSED))
    return np.concatenate([features.count_tokens(part, spec) for part in parts])


def sorted_eval_batches(
    path: str,
    spec: features.Features,
    *,
    max_tokens: int,
    buckets: Sequence[int],
    divisor: int,
    fills: bool,
) -> tuple[tf.data.Dataset, np.ndarray]:
    """Every record once, longest first, in batches from the same bucket of `buckets`.

    A batch has at most `max_tokens`, including padding, but at least `divisor` rows and a multiple
    of it; with `fills`, all batches of a bucket have the same number. Returns the dataset, with
    elements as in `eval_batches`, and the index of each record in the file. Keeps all records in
    memory.
    """
    records = load(path)
    lengths = count_tokens(records, spec)
    order = np.argsort(-lengths, kind="stable")
    places = np.searchsorted(buckets, lengths[order])
    batches: list[tuple[int, int, int]] = []
    for place in np.unique(places)[::-1]:
        begin, last = np.flatnonzero(places == place)[[0, -1]]
        rows = max(1, max_tokens // buckets[place] // divisor) * divisor
        for first in range(begin, last + 1, rows):
            end = min(first + rows, last + 1)
            batches.append((first, end, rows if fills else -(-(end - first) // divisor) * divisor))
    records = tf.gather(records, order)

    @_as_it_is
    def fill(batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        begin, end, rows = tf.unstack(batch)
        places = tf.range(begin, begin + rows)
        return tf.gather(records, tf.minimum(places, end - 1)), tf.cast(places < end, tf.float32)

    return tf.data.Dataset.from_tensor_slices(np.array(batches, np.int32)).map(fill), order


def distribute(
    strategy: tf.distribute.Strategy,
    make_batches: Callable[[], tf.data.Dataset],
    spec: features.Features,
    *,
    buckets: Sequence[int] = (),
    static_shapes: bool = False,
    masking: OnlineMasking | None = None,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Parses each batch and gives each replica its rows: {name: [batch_size / replicas, ...]}.

    The sequences of a batch are padded to the shortest of the `buckets` that fits all. With
    `static_shapes` they keep `max_seq_length`, and that length is the feature `BATCH_LENGTH`.
    Records without masks need `masking`; training batches then come from `number_rows`.
    """
    replicas = strategy.num_replicas_in_sync

    def make_worker_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        workers, worker = context.num_input_pipelines, context.input_pipeline_id

        @_as_it_is
        def parse(
            raw: tf.Tensor, is_real: tf.Tensor | None = None, numbers: tf.Tensor | None = None
        ) -> dict[str, tf.Tensor]:
            length = _choose_bucket(features.count_tokens(raw, spec), buckets) if buckets else None
            own = tf.split(raw, workers)[worker]
            if masking:
                batch = {_RAW: own}
                if numbers is not None:
                    batch[_NUMBERS] = tf.split(numbers, workers)[worker]
            else:
                batch = features.parse(own, spec, None if static_shapes else length)
            if static_shapes and buckets:
                batch[features.BATCH_LENGTH] = length
            if is_real is not None:
                batch[features.IS_REAL_EXAMPLE] = tf.split(is_real, workers)[worker]
            return batch

        batches = make_batches().map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        if masking:
            batches = _mask(batches, masking)
        if (parts := replicas // workers) > 1:
            batches = batches.flat_map(functools.partial(_split_rows, parts=parts))
        return batches.prefetch(tf.data.AUTOTUNE)

    return strategy.distribute_datasets_from_function(make_worker_batches)


def _mask(batches: tf.data.Dataset, masking: OnlineMasking) -> tf.data.Dataset:
    """Masks many rows at once, whatever the batch size: operations have a fixed cost."""

    @_as_it_is
    def read(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        rows = dict(rows)
        return {**masking.read(rows.pop(_RAW), rows.pop(_NUMBERS, None)), **rows}

    size = batches.element_spec[_RAW].shape[0]
    rows = batches.rebatch(_MASKED).map(read, num_parallel_calls=tf.data.AUTOTUNE)
    return rows.rebatch(size, drop_remainder=True)


def _choose_bucket(lengths: tf.Tensor, buckets: Sequence[int]) -> tf.Tensor:
    place = tf.searchsorted(tf.constant(buckets), [tf.reduce_max(lengths)])[0]
    return tf.constant(buckets)[tf.minimum(place, len(buckets) - 1)]


@_as_it_is
def _split_rows(batch: dict[str, tf.Tensor], *, parts: int) -> tf.data.Dataset:
    split = {
        name: tf.stack(tf.split(x, parts) if x.shape.rank else [x] * parts)
        for name, x in batch.items()
    }
    return tf.data.Dataset.from_tensor_slices(split)


def is_damage(error: object) -> bool:
    """Whether an error of `DAMAGED` is about records; it may also come from saving."""
    if isinstance(error, tf.errors.DataLossError):
        return True
    return any(reason in str(error) for reason in (_OTHER_NUMBER, features.UNSOUND))


def corrupt_error(paths: Sequence[str], error: tf.errors.OpError) -> Exception:
    """Returns a `UserError` for an error of `DAMAGED`, or `error` if it has another cause.

    Reads all files to find the damaged one.
    """
    if not is_damage(error):
        return error
    problem = str(error).strip().splitlines()[0]
    corrupt, expected = "a record file", 0
    for path, expected in zip(paths, manifest.count_examples(paths), strict=True):
        if (number := _count_readable(path)) != expected:
            corrupt = path
            problem = problem if number is None else f"{number:,} examples"
            break
    if _OTHER_NUMBER in str(error):
        problem += f" where its {manifest.NAME} says {expected:,}"
    return UserError(f"{corrupt} is truncated or corrupt ({problem}). {manifest.REMAKE}")


def _count_readable(path: str) -> int | None:
    """Returns the number of examples in a file; None if it cannot be read to the end."""
    try:
        return int(read([path]).reduce(0, lambda number, _: number + 1))
    except tf.errors.DataLossError:
        return None
