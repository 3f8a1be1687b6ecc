"""Predicts texts with Beam's RunInference: a handler that loads the model once per worker.

python examples/engines/beam_inference.py models/sentiment texts.txt answers
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.ml.inference.base import ModelHandler, PredictionResult, RunInference
from apache_beam.options.pipeline_options import PipelineOptions


class Answers(ModelHandler[str, PredictionResult, Callable]):
    def __init__(self, model: str) -> None:
        super().__init__(min_batch_size=64, max_batch_size=256)
        self._model = model

    def load_model(self) -> Callable:
        from albert_tf.export.export_config import SourceConfig
        from albert_tf.predict import predictor

        return predictor.load(SourceConfig(checkpoint=self._model))

    def run_inference(
        self, batch: Sequence[str], model: Callable, inference_args: Any = None
    ) -> Iterable[PredictionResult]:
        answers = model([{"text": text} for text in batch])
        return [PredictionResult(*pair) for pair in zip(batch, answers, strict=True)]


def to_line(result: PredictionResult) -> str:
    return json.dumps({"text": result.example, **result.inference})


def main(model: str, texts: str, output: str, *options: str) -> None:
    with beam.Pipeline(options=PipelineOptions(options)) as pipeline:
        lines = pipeline | beam.io.ReadFromText(texts) | RunInference(Answers(model))
        lines | beam.Map(to_line) | beam.io.WriteToText(output, ".jsonl")


if __name__ == "__main__":
    main(*sys.argv[1:])
