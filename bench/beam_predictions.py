"""Times bulk prediction with Beam's RunInference: what bin/predict --runner would be otherwise.

    python bench/beam_predictions.py --model=models/reviews/1 --input=texts.jsonl --output=FOLDER
    time bin/predict --model=models/reviews --input_files=texts.jsonl --runner=DirectRunner ...

RunInference forms batches of the rows as they come. Prints one line of JSON.
"""

import json
import time
from collections.abc import Sequence

import apache_beam as beam
import numpy as np
import tensorflow as tf
from absl import app, flags
from apache_beam.ml.inference.base import ModelHandler, RunInference

from albert_tf.pipelines import bulk_prediction

MODEL = flags.DEFINE_string("model", None, "folder of a version", required=True)
INPUT = flags.DEFINE_string("input", None, "jsonl with a text in each row", required=True)
OUTPUT = flags.DEFINE_string("output", None, "folder for the predictions", required=True)


class Handler(ModelHandler):
    def load_model(self):
        return bulk_prediction.load_text_function(MODEL.value)[0]

    def run_inference(self, batch: Sequence[str], model, inference_args=None):
        outputs = {name: x.numpy() for name, x in model(text=tf.constant(batch)).items()}
        for k in range(len(batch)):
            yield {
                name: np.asarray(value[k]).astype(str).tolist() for name, value in outputs.items()
            }

    def batch_elements_kwargs(self):
        return {"min_batch_size": 32, "max_batch_size": 32}


def main(_):
    start, cpu_start = time.perf_counter(), time.process_time()
    with beam.Pipeline() as pipeline:
        _ = (
            pipeline
            | beam.io.ReadFromText(INPUT.value)
            | beam.Map(lambda line: json.loads(line)["text"])
            | RunInference(Handler())
            | beam.Map(json.dumps)
            | beam.io.WriteToText(f"{OUTPUT.value}/predictions", ".jsonl")
        )
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    print(json.dumps({"seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1)}))


if __name__ == "__main__":
    app.run(main)
