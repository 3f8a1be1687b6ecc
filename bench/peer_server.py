"""Serves an ALBERT of transformers by FastAPI: what a user would take instead of bin/serve.

    python -m venv peer
    peer/bin/pip install torch==2.13.0 transformers==5.23.0 fastapi==0.165.0 uvicorn==0.54.0
    peer/bin/python bench/peer_server.py --model=m/transformers [--at_once=2] [--dtype=bfloat16]

Requests are answered by themselves, without padding: --at_once of them, between which the cores are
shared out, so that on two cores 2 has the higher throughput, and 1 the lower latency. Requests and
answers are those of bin/serve (KServe), so that bench/serve_load.py loads both.
"""

import argparse
import asyncio
import concurrent.futures
import os

import torch
import uvicorn
from fastapi import FastAPI, HTTPException
from transformers import AutoModelForSequenceClassification, AutoTokenizer

LENGTH = 384


def make_app(folder, dtype, *, at_once):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=dtype).eval()
    torch.set_num_threads(max(1, os.cpu_count() // at_once))
    pool = concurrent.futures.ThreadPoolExecutor(at_once)
    server = FastAPI()

    def answer(texts):
        inputs = tokenizer(
            texts["text"],
            texts.get("text_pair"),
            truncation=True,
            max_length=LENGTH,
            return_tensors="pt",
        )
        with torch.inference_mode():
            logits = model(**inputs).logits.float()
        outputs = {
            "label": [str(index) for index in logits.argmax(-1).tolist()],
            "logits": logits.flatten().tolist(),
            "probabilities": logits.softmax(-1).flatten().tolist(),
        }
        return {"outputs": [{"name": name, "data": data} for name, data in outputs.items()]}

    @server.post("/v2/models/{name}/infer")
    async def infer(name: str, request: dict):
        if name != "model":
            raise HTTPException(404)
        texts = {x["name"]: x["data"] for x in request["inputs"]}
        return await asyncio.get_running_loop().run_in_executor(pool, answer, texts)

    return server


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--http_port", type=int, default=8000)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--at_once", type=int, default=1, help="requests")
    arguments = parser.parse_args()
    dtype = getattr(torch, arguments.dtype)
    app = make_app(arguments.model, dtype, at_once=arguments.at_once)
    # Clients keep their connections, which may wait for longer than the default of 5 seconds.
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=arguments.http_port,
        log_level="warning",
        timeout_keep_alive=600,
    )


if __name__ == "__main__":
    main()
