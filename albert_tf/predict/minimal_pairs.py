"""Scores minimal pairs: does the model prefer the correct sentence?

A sentence is scored by its pseudo-log-likelihood (Salazar et al. 2020): each token is masked in
turn, and the log probabilities of the tokens at their masks are summed. Later tokens of the same
word are also masked (Kauf and Ivanova 2023): otherwise they give long words away.
"""

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf import files, metrics
from albert_tf.data_prep.corpus import corpus_files, documents
from albert_tf.errors import UserError, require
from albert_tf.model import encoder
from albert_tf.model.albert_model import AlbertForPretraining
from albert_tf.predict import loaded_model
from albert_tf.records import features
from albert_tf.run_files import BEST
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import PAIR_RULES

_GOOD, _BAD = "sentence_good", "sentence_bad"
# {group for which accuracies are reported: the field of a row with its name}
_GROUPS = {"field": "field", "phenomenon": "linguistics_term", "paradigm": "UID"}
_BATCH_TOKENS = 8192


class Pair(NamedTuple):
    """A row of a file of pairs; `groups` are its field, phenomenon and paradigm."""

    good: str
    bad: str
    groups: tuple[str, ...]


def read(patterns: Sequence[str], max_pairs: int | None = None) -> list[Pair]:
    """Returns the pairs in .jsonl files or folders of them, in BLiMP's form.

    A row has `sentence_good` and `sentence_bad`. Optional `field`, `linguistics_term` and `UID`
    name its groups; the default paradigm is the file. With `max_pairs`, each paradigm is a random
    sample of at most this many pairs.

    Raises `UserError` if there are no pairs, or a row lacks a sentence.
    """
    if not patterns:
        return []
    folders = [os.path.join(x, "*.jsonl*") if tf.io.gfile.isdir(x) else x for x in patterns]
    paradigms: dict[tuple[str, ...], list[Pair]] = {}
    for path in files.expand(folders, "--minimal_pairs"):
        require(
            corpus_files.is_table(path),
            f"--minimal_pairs: {path} is not a .jsonl file. Pass .jsonl files or a folder of them.",
        )
        name = os.path.basename(path).split(".")[0]
        fields = [_GOOD, _BAD, *_GROUPS.values()]
        for number, row in corpus_files.read_objects(path, fields, lambda _: None):
            for field in (_GOOD, _BAD):
                text = row.get(field)
                if not isinstance(text, str) or not text.strip():
                    raise UserError(f"{path}, row {number} has no text {field!r}. Add it.")
            groups = tuple(str(row.get(field, name)) for field in _GROUPS.values())
            paradigms.setdefault(groups, []).append(Pair(row[_GOOD], row[_BAD], groups))
    require(bool(paradigms), f"--minimal_pairs: {', '.join(patterns)} holds no pairs.")
    rng = np.random.default_rng(0)
    chosen = []
    for pairs in paradigms.values():
        places = np.arange(len(pairs))
        if max_pairs is not None and max_pairs < len(pairs):
            places = np.sort(rng.choice(len(pairs), max_pairs, replace=False))
        chosen += [pairs[place] for place in places]
    return chosen


def evaluate_checkpoint(
    path: str,
    pairs: Sequence[Pair],
    *,
    which: str = BEST,
    rule: str = PAIR_RULES[0],
    by_layer: bool = False,
) -> dict[str, Any]:
    """Returns {"checkpoint": prefix, "minimal_pairs": see `evaluate`}; computes in float32.

    With `by_layer`, "minimal_pairs" also has "by_layer": {"accuracy": a list}, with the head
    applied to the output of each layer.

    Raises `UserError` if the checkpoint has no masked-LM head or no vocabulary.
    """
    loaded = loaded_model.load(path, which=which)
    if not isinstance(loaded.model, AlbertForPretraining) or loaded.tokenizer is None:
        lack = "vocabulary" if loaded.tokenizer is None else "masked-LM head"
        raise UserError(
            f"{path} has no {lack}, which --minimal_pairs needs. Use another checkpoint."
        )
    compute = functools.partial(evaluate, loaded.model, loaded.tokenizer, pairs, rule=rule)
    results = compute()
    if by_layer:
        ends = encoder.list_ends(loaded.config)
        layers = [*(compute(num_blocks=number) for number in ends), results]
        results["by_layer"] = {"accuracy": [values["accuracy"] for values in layers]}
    return {"checkpoint": loaded.checkpoint.source, "minimal_pairs": results}


def describe(results: Mapping[str, Any]) -> str:
    """Returns lines for the terminal: the accuracy in total, by field and by phenomenon."""
    rows = [("minimal pairs", results)]
    rows += [row for group in ("field", "phenomenon") for row in results[group].items()]
    return "\n".join(
        f"{name:28s} {100 * row['accuracy']:5.1f} % of {row['num_pairs']:,} pairs, "
        f"{100 * row['interval'][0]:.1f} to {100 * row['interval'][1]:.1f}"
        for name, row in rows
    )


def evaluate(
    model: AlbertForPretraining,
    tokenizer: Tokenizer,
    pairs: Sequence[Pair],
    *,
    rule: str = PAIR_RULES[0],
    num_blocks: int | None = None,
) -> dict[str, Any]:
    """Returns the accuracy of a model, or of its first blocks, on pairs, in total and by group.

    A pair counts 1 if its good sentence has the higher score, and one half if both are equal.
    Intervals are 95 % bootstrap intervals over the pairs.

    Returns:
        {"accuracy", "interval": [low, high], "num_pairs", "rule", "field": {name: {"accuracy",
        "interval", "num_pairs"}}, "phenomenon": ..., "paradigm": ...}.

    Raises `UserError` if a sentence is too long for the model.
    """
    sentences = [*dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad))]
    numbers = score(model, tokenizer, sentences, rule=rule, num_blocks=num_blocks)
    scores = dict(zip(sentences, numbers, strict=True))
    wins = np.array([(np.sign(scores[x.good] - scores[x.bad]) + 1) / 2 for x in pairs])
    results: dict[str, Any] = {**_summarize(wins), "rule": rule}
    for place, group in enumerate(_GROUPS):
        names = np.array([pair.groups[place] for pair in pairs])
        results[group] = {str(name): _summarize(wins[names == name]) for name in np.unique(names)}
    return results


def score(
    model: AlbertForPretraining,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    rule: str = PAIR_RULES[0],
    num_blocks: int | None = None,
) -> np.ndarray:
    """Returns the pseudo-log-likelihood of each sentence, in nats: [N] float64.

    Sentences with the same ids are computed once, so that they have the same score.

    Raises `UserError` if a sentence is too long for the model, or has no tokens.
    """
    all_ids = [tuple(ids) for ids in tokenizer.encode_batch(sentences)]
    longest = model.albert.config.max_position_embeddings - 2
    for text, own in zip(sentences, all_ids, strict=True):
        require(
            0 < len(own) <= longest,
            f"{text[:60]!r} has {len(own)} tokens: a sentence must have 1 to {longest}. Take it "
            "out.",
        )
    encoded = [*dict.fromkeys(all_ids)]
    lengths = np.array([len(ids) for ids in encoded])
    compute = _make_compute(model, num_blocks)
    scores = np.zeros(len(encoded))
    with documents.progress_bar(len(encoded), unit=" sentences", description="pairs") as bar:
        for places, ids, positions, targets in _make_batches(encoded, lengths, tokenizer, rule):
            log_probabilities = compute(ids, positions, targets).numpy().astype(np.float64)
            np.add.at(scores, places, log_probabilities)
            bar.update(len(np.unique(places)))
    numbers = dict(zip(encoded, scores, strict=True))
    return np.array([numbers[own] for own in all_ids])


def _make_compute(model: AlbertForPretraining, num_blocks: int | None) -> Callable[..., tf.Tensor]:
    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None, 1], tf.int32),
            tf.TensorSpec([None], tf.int32),
        ]
    )
    def compute(ids, positions, targets):  # [R, S], [R, 1], [R] -> [R]
        batch = {features.INPUT_IDS: ids, features.MASKED_LM_POSITIONS: positions}
        outputs = model(batch, num_blocks=num_blocks)
        logits = tf.cast(outputs["masked_lm_logits"][:, 0], tf.float32)
        # Twice as fast as TensorFlow's cross entropy, which also computes a gradient.
        return tf.gather(logits, targets, batch_dims=1) - tf.reduce_logsumexp(logits, axis=1)

    return compute


def _make_batches(
    encoded: Sequence[Sequence[int]], lengths: np.ndarray, tokenizer: Tokenizer, rule: str
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yields (sentences [R], ids [R, S], positions [R, 1], targets [R]): one row per mask.

    Batches have sentences of equal length, without padding.
    """
    for length in np.unique(lengths):
        equal = np.flatnonzero(lengths == length)
        size = max(1, _BATCH_TOKENS // int(length * (length + 2)))
        for begin in range(0, len(equal), size):
            places = equal[begin : begin + size]
            ids = np.array([encoded[place] for place in places], np.int32)  # [N, L]
            masked = np.eye(length, dtype=bool)[np.newaxis]
            if rule == "within_word":
                words = np.cumsum(tokenizer.is_word_start[ids], axis=1)
                is_same = words[:, :, np.newaxis] == words[:, np.newaxis]
                masked = np.triu(is_same)  # [N, L, L]: for each masked token, the hidden tokens
            rows = np.where(masked, tokenizer.mask_id, ids[:, np.newaxis])
            rows = np.pad(rows, [(0, 0), (0, 0), (1, 1)])
            rows[..., 0], rows[..., -1] = tokenizer.cls_id, tokenizer.sep_id
            positions = np.tile(np.arange(1, length + 1, dtype=np.int32), len(places))
            yield (
                np.repeat(places, length),
                rows.reshape(-1, length + 2).astype(np.int32),
                positions[:, np.newaxis],
                ids.reshape(-1),
            )


def _summarize(wins: np.ndarray) -> dict[str, Any]:
    accuracy = float(np.mean(wins))
    interval = [accuracy, accuracy]
    if len(wins) > 1:
        places = np.arange(len(wins))
        interval = [*metrics.compute_interval(lambda rows: np.mean(wins[rows]), places, seed=0)]
    return {"accuracy": accuracy, "interval": interval, "num_pairs": len(wins)}
