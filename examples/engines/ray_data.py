"""Predicts texts with Ray Data: one model per worker, from batches of texts to answers.

python examples/engines/ray_data.py models/sentiment texts.txt answers
"""

import json
import sys
from typing import Any

import ray


class Answers:
    """A worker, which loads the model once."""

    def __init__(self, model: str) -> None:
        from albert_tf.export.export_config import SourceConfig
        from albert_tf.predict import predictor

        self._predictor = predictor.load(SourceConfig(checkpoint=model))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        answers = self._predictor([{"text": text} for text in batch["text"]])
        return {"text": batch["text"], "answer": [json.dumps(row) for row in answers]}


def main(model: str, texts: str, output: str) -> None:
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    rows = ray.data.read_text(texts)
    # If workers used all cores, none would be left to read the texts.
    options = {"batch_size": 256, "concurrency": 2, "num_cpus": 0.5}
    rows.map_batches(Answers, fn_constructor_args=(model,), **options).write_json(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
