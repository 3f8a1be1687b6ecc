"""Serves an export with Ray Serve: replicas on a Ray cluster, with batched requests.

pip install 'ray[serve]==2.60.0'
MODEL=models/sentiment serve run examples.serving.ray_serve:application
curl -d '{"instances": [{"text": "Cold soup."}]}' http://127.0.0.1:8000/
"""

import asyncio
import os
from typing import Any

from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

Row = dict[str, Any]


@serve.deployment(num_replicas=2, max_ongoing_requests=64)
class Answers:
    """A replica: one `Predictor`, which gets rows in batches."""

    def __init__(self, model: str) -> None:
        from albert_tf.export.export_config import SourceConfig
        from albert_tf.predict import predictor

        self._predictor = predictor.load(SourceConfig(checkpoint=model))

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.005)
    async def answer(self, rows: list[Row]) -> list[Row | Exception]:
        """Returns an answer or an error for each row."""
        return await asyncio.to_thread(self._answer, rows)

    def _answer(self, rows: list[Row]) -> list[Row | Exception]:
        import tensorflow as tf

        try:
            return [*self._predictor(rows)]
        except (KeyError, TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            if len(rows) == 1:
                return [ValueError(str(error).splitlines()[0])]
            return [answer for row in rows for answer in self._answer([row])]

    async def __call__(self, request: Request) -> JSONResponse:
        try:
            rows = (await request.json())["instances"]
            answers = await asyncio.gather(*(self.answer(row) for row in rows))
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
            return JSONResponse({"predictions": answers})
        except (KeyError, TypeError, ValueError) as error:
            return JSONResponse({"error": str(error)}, 400)


application = Answers.bind(os.environ["MODEL"])
