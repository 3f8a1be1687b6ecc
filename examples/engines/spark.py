"""Predicts texts with Spark: from a column of texts to a column of answers.

python examples/engines/spark.py models/sentiment texts.txt answers
"""

import json
import sys
from collections.abc import Callable

import numpy as np
from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType


def answering(model: str) -> Callable:
    """Returns a function that each worker calls once, and that returns the batch function."""

    def make() -> Callable[[np.ndarray], np.ndarray]:
        from albert_tf.export.export_config import SourceConfig
        from albert_tf.predict import predictor

        answer = predictor.load(SourceConfig(checkpoint=model))

        def predict(texts: np.ndarray) -> np.ndarray:
            return np.array([json.dumps(row) for row in answer([{"text": x} for x in texts])])

        return predict

    return predict_batch_udf(make, return_type=StringType(), batch_size=256)


def main(model: str, texts: str, output: str) -> None:
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    rows = spark.read.text(texts).repartition(2)
    rows.withColumn("answer", answering(model)("value")).write.json(output)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
