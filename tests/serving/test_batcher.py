"""Requests that wait are computed together, and one is no worse for another."""

import concurrent.futures
import time

import numpy as np
import pytest
import tiny_server

from albert_tf.serving.batcher import Batcher
from albert_tf.serving.refusals import Refusal
from albert_tf.serving.server_metrics import Metrics


@pytest.fixture
def batcher():
    made = Batcher(Metrics(), max_batch_size=4, max_queue=20)
    yield made
    assert made.close(20)


@pytest.fixture
def held(batcher):
    """A function that asks while the model is at work on b"first", and the signature it asks."""
    signature = tiny_server.fake_signature()
    signature.function.opens.clear()

    def submit(*texts, seconds=20, to=signature):
        inputs = {"text": np.array(texts, object)}
        return batcher.submit(to, inputs, time.monotonic() + seconds)

    submit(b"first")
    assert signature.function.started.acquire(timeout=20)
    return submit, signature.function


def test_threads_that_share_a_request_complete_it():
    batcher = Batcher(Metrics(), max_batch_size=1, num_threads=4)
    texts = [b"x" * n for n in range(300)]
    for _ in range(5):
        inputs = {"text": np.array(texts, object)}
        future = batcher.submit(tiny_server.fake_signature(), inputs, time.monotonic() + 20)
        assert future.result(20)["bytes"].tolist() == [*map(len, texts)]
    assert batcher.close(20)


def test_waiting_requests_are_joined_and_split_again(held):
    submit, function = held
    futures = [submit(*[b"x" * n for n in sizes]) for sizes in ([1, 2], [3], [4, 5, 6], [7])]
    function.opens.set()
    answers = [x.result(20)["bytes"].tolist() for x in futures]
    assert answers == [[1, 2], [3], [4, 5, 6], [7]]
    assert [len(x) for x in function.batches] == [1, 4, 3]


def test_long_texts_do_not_wait_in_the_batch_of_short_ones(held):
    submit, function = held
    futures = [submit(b"x" * n) for n in (10, 5000, 12, 4000, 200)]
    function.opens.set()
    assert [x.result(20)["bytes"][0] for x in futures] == [10, 5000, 12, 4000, 200]
    assert function.batches[1:] == [[10, 12], [5000, 4000], [200]]


def test_the_nearest_lengths_go_first(held):
    submit, function = held
    futures = [submit(b"x" * n) for n in (50, 90, 51, 80, 49, 52)]
    function.opens.set()
    concurrent.futures.wait(futures)
    assert function.batches[1:] == [[50, 51, 49, 52], [90, 80]]


def test_a_bad_request_or_a_defect_does_no_harm_to_others(held):
    submit, function = held
    good, bad, other = submit(b"good"), submit(b"bad"), submit(b"other")
    function.opens.set()
    assert [good.result(20)["bytes"][0], other.result(20)["bytes"][0]] == [4, 5]
    with pytest.raises(Refusal, match=r"^a bad text\.$"):
        bad.result(20)
    with pytest.raises(Refusal, match=r"^The model failed\.$"):
        submit(b"defect").result(20)
    assert submit(b"later").result(20)["bytes"] == [5]


def test_the_queue_is_bounded_but_takes_any_request_when_it_is_empty(held):
    submit, function = held
    whole = submit(*[b"x"] * 30)
    with pytest.raises(Refusal, match=r"^30 texts are already waiting\.$") as caught:
        submit(b"y")
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
    function.opens.set()
    assert len(whole.result(20)["bytes"]) == 30
    assert submit(b"y").result(20)["bytes"] == [1]


def test_what_nobody_waits_for_is_not_computed(held):
    submit, function = held
    gone, late, kept = submit(b"gone!"), submit(b"late", seconds=-1), submit(b"kept on")
    gone.cancel()
    function.opens.set()
    assert kept.result(20)["bytes"] == [7]
    assert function.batches == [[5], [7]]
    assert not late.done()


def test_requests_of_open_shapes_and_of_other_models_are_not_joined(held):
    submit, function = held
    alone, other = tiny_server.fake_signature([None]), tiny_server.fake_signature()
    futures = [submit(b"a", b"bc", to=alone), submit(b"d", to=alone), submit(b"e", to=other)]
    futures.append(submit(b"fg"))
    function.opens.set()
    concurrent.futures.wait(futures)
    assert alone.function.batches == [[1, 2], [1]]
    assert other.function.batches == [[1]]
    assert function.batches == [[5], [2]]


def test_texts_wait_for_others_unless_a_client_asks_alone():
    batcher = Batcher(Metrics(), max_batch_size=4, max_wait=20, num_threads=2)
    signature = tiny_server.fake_signature()
    for sizes in ([1], [3, 1]):
        futures = [
            batcher.submit(signature, {"text": np.array([b"a"] * n, object)}, time.monotonic() + 20)
            for n in sizes
        ]
        assert [len(x.result(10)["bytes"]) for x in futures] == sizes
    assert signature.function.batches == [[1], [1] * 4]
    assert batcher.close(20)
