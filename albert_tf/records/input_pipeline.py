"""Makes batches for the replicas of a strategy from TFRecord files.

The order of the data is a pure function of (seed, pass over the files), and batch n is the same for
any number of workers and replicas: every worker reads the whole stream of raw records, which is
cheap, and parses its own rows of each batch. The position of a run in its data is one number.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from albert_tf.errors import UserError
from albert_tf.records import features, manifest

# Files read at a time, and records taken from one before the next: a batch is of different files
# even with a small shuffle buffer.
_CYCLE = 16
_BLOCK = 4
# What reading a damaged file raises, and one that has other than the manifest's number of examples.
DAMAGED = (tf.errors.DataLossError, tf.errors.FailedPreconditionError)
_OTHER_NUMBER = "Input dataset was expected to contain"


def _find_compression(paths: Sequence[str]) -> str:
    kinds = {"GZIP" if path.endswith(".gz") else "" for path in paths}
    if len(kinds) > 1:
        raise UserError("records with and without .gz cannot be mixed. Name one kind.")
    return kinds.pop()


def train_batches(
    paths: Sequence[str], *, batch_size: int, seed: int, shuffle_buffer_size: int, position: int
) -> tf.data.Dataset:
    """Endless shuffled batches of serialised records, [batch_size] strings, for all replicas.

    `seed` orders files and records, each pass otherwise; a manifest lies beside the files.
    `shuffle_buffer_size` counts records; `position` is the number of batches to skip.
    """
    compression = _find_compression(paths)
    num_records = sum(manifest.count_examples(paths))
    first_pass, skipped = divmod(position * batch_size, num_records)

    def one_pass(number: tf.Tensor) -> tf.data.Dataset:
        key = tf.stack([tf.cast(seed, tf.int64), number])
        order = tf.random.experimental.stateless_shuffle(tf.constant(list(paths)), seed=key)
        records = tf.data.Dataset.from_tensor_slices(order).interleave(
            lambda path: tf.data.TFRecordDataset(path, compression_type=compression),
            cycle_length=_CYCLE,
            block_length=_BLOCK,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
        records = records.apply(tf.data.experimental.assert_cardinality(num_records))
        return records.shuffle(shuffle_buffer_size, seed=seed + number)

    passes = tf.data.Dataset.range(first_pass, tf.int64.max)
    return passes.flat_map(one_pass).skip(skipped).batch(batch_size, drop_remainder=True)


def eval_batches(paths: Sequence[str], *, batch_size: int, max_examples: int) -> tf.data.Dataset:
    """Every record once, in order: ([batch_size] strings, [batch_size] is_real_example).

    The last batch is filled with copies whose `is_real_example` is 0. Reads `max_examples`, or all
    if that is 0.
    """
    records = tf.data.TFRecordDataset(list(paths), compression_type=_find_compression(paths))
    num_records = sum(manifest.count_examples(paths))
    records = records.apply(tf.data.experimental.assert_cardinality(num_records))
    if max_examples:
        records = records.take(max_examples)

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
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """`eval_batches` for the replicas of a strategy; see `distribute`."""
    make = functools.partial(eval_batches, paths, batch_size=batch_size, max_examples=max_examples)
    return distribute(strategy, make, spec, batch_size=batch_size)


def distribute(
    strategy: tf.distribute.Strategy,
    make_batches: Callable[[], tf.data.Dataset],
    spec: features.Features,
    *,
    batch_size: int,
) -> tf.data.Dataset | tf.distribute.DistributedDataset:
    """Parses each batch and gives every replica its rows: {name: [batch_size / replicas, ...]}."""
    replicas = strategy.num_replicas_in_sync
    assert batch_size % replicas == 0, "devices.check_batches has to be called before"

    def make_worker_batches(context: tf.distribute.InputContext) -> tf.data.Dataset:
        rows = batch_size // context.num_input_pipelines
        own = slice(context.input_pipeline_id * rows, (context.input_pipeline_id + 1) * rows)

        def parse(raw: tf.Tensor, is_real: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
            batch = features.parse(raw[own], spec)
            return batch if is_real is None else {**batch, features.IS_REAL_EXAMPLE: is_real[own]}

        batches = make_batches().map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        if rows != batch_size // replicas:
            batches = batches.rebatch(batch_size // replicas, drop_remainder=True)
        return batches.prefetch(tf.data.AUTOTUNE)

    return strategy.distribute_datasets_from_function(make_worker_batches)


def is_damage(error: object) -> bool:
    """Whether one of `DAMAGED` is of records; such an error may also come from saving."""
    return not isinstance(error, tf.errors.FailedPreconditionError) or _OTHER_NUMBER in str(error)


def corrupt_error(paths: Sequence[str], error: tf.errors.OpError) -> Exception:
    """Returns the user's error for one of `DAMAGED`, or `error` if that is of something else.

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
    """The number of examples in a file; None if it cannot be read to its end."""
    records = tf.data.TFRecordDataset(path, compression_type=_find_compression([path]))
    try:
        return int(records.reduce(0, lambda number, _: number + 1))
    except tf.errors.DataLossError:
        return None
