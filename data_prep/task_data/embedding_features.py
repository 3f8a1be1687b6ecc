"""Makes the records of sentence embeddings.

To train on, a record has the texts of an example, one sequence each: a text, its counterpart, hard
negatives. To evaluate, a record is one text, as a passage may belong to many questions; a line of
`examples.jsonl` has the numbers of its records:

    {"id": "0", "label": 4.5, "texts": [0, 1], "labelled": true}

The label is how alike the two are; None where the counterpart is searched for.
"""

from collections.abc import Sequence

import numpy as np

from albert_tf.data_prep.task_data import sequence_features
from albert_tf.data_prep.task_data.task_source import Example, TaskSplit
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import Lengths


def count_texts(split: TaskSplit) -> int:
    """Returns the number of texts of a record."""
    return split.task.num_texts if split.name == "train" else 1


def write(
    split: TaskSplit,
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    folder: str,
    lengths: Lengths,
) -> tuple[int, dict[str, int]]:
    """Writes `records.tfrecord` and `examples.jsonl`.

    Returns:
        The number of records, and {"texts": different ones, "truncated": records}.

    Raises:
        UserError: the lengths leave no room for a text.
    """
    numbers: dict[str, int] = {}
    for example in examples:
        for text in example.texts:
            numbers.setdefault(text, len(numbers))
    rows = [[numbers[text] for text in example.texts] for example in examples]
    records, label_ids = examples, np.array(rows, np.int32)
    if split.name != "train":
        records = [Example(str(number), (text,), None) for text, number in numbers.items()]
        label_ids = np.arange(len(numbers), dtype=np.int32)[:, np.newaxis]
    counts = sequence_features.write_records(
        records,
        label_ids,
        tokenizer,
        folder,
        kind=split.task.kind,
        lengths=lengths,
    )
    sequence_features.write_lines(
        (
            {"id": example.id, "label": example.label, "texts": row, "labelled": True}
            for example, row in zip(examples, rows, strict=True)
        ),
        folder,
    )
    return len(records), {"texts": len(numbers), **counts}
