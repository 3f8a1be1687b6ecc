"""Writes shards of records from blocks of text: encodes, pairs, masks and serializes."""

import functools
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from albert_tf.data_prep.corpus import duplicates, shards
from albert_tf.data_prep.corpus.shards import Shard
from albert_tf.data_prep.corpus.sources import Source
from albert_tf.data_prep.pretraining_data import (
    blocks,
    chinese_words,
    masking,
    phoneme_examples,
    record_writer,
    segments,
)
from albert_tf.data_prep.pretraining_data.blocks import Block
from albert_tf.data_prep.pretraining_data.data_config import DataConfig
from albert_tf.data_prep.pretraining_data.masking import Masked
from albert_tf.data_prep.pretraining_data.segments import Encoded, Pair
from albert_tf.errors import UserError
from albert_tf.records import features
from albert_tf.tokenizers import tokenization
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.workfolder import WorkFolder

_BATCH = 256  # sentences to encode, or records to serialize, at once


def make_shard_writer(
    folder: WorkFolder,
    config: DataConfig,
    cut: Sequence[Source],
    vocabulary: str,
    duplicates_dir: str | None,
    words: str | None = None,
) -> shards.Work:
    """Returns `write_shards(source, share, shares)`, which makes the shards of a source.

    With several `shares`, share k makes the blocks k, k + shares and so on. A document gives no
    examples if its segments need another document and its block has none. A list next to the
    shards of a block keeps a resumed program from making them again.

    Raises `UserError` if the vocabulary is not the folder's.
    """
    tokenizer = tokenization.load(vocabulary)
    if tokenizer.sha256 != folder.identity["vocabulary"]["sha256"]:
        raise UserError(f"{vocabulary} has changed since the work started.")
    if words:
        read_table, encode, make_examples = phoneme_examples.load(words, tokenizer, config)
    else:
        segment = chinese_words.load_segmenter(config.word_segmenter)
        encode = functools.partial(
            encode_documents, tokenizer=tokenizer, config=config, segment=segment
        )
        read_table, make_examples = None, _make_examples

    def write_shards(source: int, share: int, shares: int) -> Iterator[Shard]:
        left_out = duplicates.read_left_out(duplicates_dir, source) if duplicates_dir else ()
        is_corpus = len(cut) == 1
        stream = blocks.read_blocks(
            source, cut[source], config, left_out, is_corpus=is_corpus, read_table=read_table
        )
        # Reading ahead finds mistakes in a small corpus before anything is written.
        stream = itertools.chain(list(itertools.islice(stream, 2)), stream)
        for number, block in enumerate(stream):
            if number % shares == share:
                yield from write_block(block)

    def write_block(block: Block) -> Iterator[Shard]:
        names, listed = _name_shards(block, config), f"shards-{block.name}.json"
        made, _ = shards.find_shards(folder, listed)
        if not made.keys() >= set(names):
            encoded, text_counts = encode(block)
        for dupe, name in enumerate(names):
            if name not in made:
                key = [config.seed, blocks.SPLITS.index(block.split), block.number, dupe]
                if block.source:
                    key.append(block.source)
                counts = Counter({"examples": 0, **(text_counts if dupe == 0 else {})})
                rng = np.random.default_rng(key)
                examples = make_examples(encoded, tokenizer, rng, config, counts)
                record_writer.write(folder.join(name), examples)
                made[name] = shards.describe(folder, Shard(name, counts, 0))
                shards.list_shards(folder, listed, made)
            yield Shard(name, made[name], block.num_bytes / len(names))

    return write_shards


def _name_shards(block: Block, config: DataConfig) -> list[str]:
    """Returns the names of a block's shards, one per pass."""
    suffix = ".tfrecord.gz" if config.gzip else ".tfrecord"
    if block.split == "eval":
        return [block.name + suffix]
    assert config.dupe_factor
    return [f"{block.name}-{dupe:02d}{suffix}" for dupe in range(config.dupe_factor)]


def encode_documents(
    block: Block, tokenizer: Tokenizer, config: DataConfig, segment: chinese_words.Cut | None = None
) -> tuple[list[Encoded], Counter[str]]:
    """Encodes the documents of a block; drops sentences and documents without tokens.

    `segment`, if given, finds Chinese words.
    """
    sentences = [text.split("\n") for text in block.texts]
    flat = list(itertools.chain.from_iterable(sentences))
    parts: list[np.ndarray] = []
    lengths: list[int] = []
    # Python integers would take ten times the memory.
    for i in range(0, len(flat), _BATCH):
        texts = flat[i : i + _BATCH]
        if segment:
            batch, continues = chinese_words.encode_batch(texts, tokenizer, segment)
        else:
            batch, continues = tokenizer.encode_batch(texts), np.array(False)
        lengths += map(len, batch)
        ids = np.fromiter(itertools.chain.from_iterable(batch), np.int32)
        parts.append(np.stack([ids, tokenizer.is_word_start[ids] & ~continues]))
    tokens = np.concatenate(parts, axis=1)
    encoded, first, begin = [], 0, 0
    for document, file in zip(sentences, block.files, strict=True):
        last = first + len(document)
        bounds = [0, *itertools.accumulate(n for n in lengths[first:last] if n)]
        if len(bounds) > 1:
            encoded.append(Encoded(tokens[:, begin : begin + bounds[-1]], bounds, file))
        first, begin = last, begin + bounds[-1]
    counts = segments.count_lengths(encoded)
    counts.update(
        documents=len(encoded),
        sentences=sum(len(document.bounds) - 1 for document in encoded),
        text_tokens=tokens.shape[1],
        unknown=int(np.count_nonzero(tokens[0] == tokenizer.unk_id)),
    )
    if alone := sum(segments.is_alone(encoded, index, config) for index in range(len(encoded))):
        counts["alone"] = alone
    return encoded, counts


def _make_examples(
    encoded: Sequence[Encoded],
    tokenizer: Tokenizer,
    rng: np.random.Generator,
    config: DataConfig,
    counts: Counter[str],
) -> Iterator[bytes]:
    """Yields the examples of one pass in random order; adds to `counts`."""
    pairs = []
    for index in range(len(encoded)):
        if segments.is_alone(encoded, index, config):
            continue
        for pair in segments.make_pairs(encoded, index, rng, config):
            pairs.append(segments.truncate_pair(pair, config.max_num_tokens, rng))
            counts["truncated"] += segments.count_tokens(pair) - segments.count_tokens(pairs[-1])
    order = rng.permutation(len(pairs))
    for i in range(0, len(pairs), _BATCH):
        chosen = [pairs[j] for j in order[i : i + _BATCH]]
        lengths = [segments.count_tokens(pair) + features.NUM_SPECIAL_TOKENS for pair in chosen]
        masked = masking.mask(join_pairs(chosen, tokenizer), lengths, tokenizer, rng, config)
        counts.update(_count_tokens(masked, chosen, tokenizer))
        batch, is_token = make_batch(masked, lengths, chosen, config), None
        if config.is_online:
            is_token = batch[features.INPUT_MASK]
            batch = {name: batch[name] for name in features.unmasked(config.max_seq_length)}
        yield from record_writer.serialize(batch, is_token)


def join_pairs(pairs: Sequence[Pair], tokenizer: Tokenizer) -> np.ndarray:
    """Returns the tokens of all pairs, each as [CLS] first [SEP] second [SEP]."""
    cls, sep = [[tokenizer.cls_id], [1]], [[tokenizer.sep_id], [1]]
    parts = [x for pair in pairs for x in (cls, pair.first, sep, pair.second, sep)]
    return np.concatenate(parts, axis=1, dtype=np.int32)


def make_batch(
    masked: Masked, lengths: Sequence[int], pairs: Sequence[Pair], config: DataConfig
) -> dict[str, np.ndarray]:
    """Returns the features of N masked pairs, padded with 0: [N, S], [N, P], and [N, 1] labels."""
    s, p = config.max_seq_length, config.max_predictions_per_seq
    place, ends = np.arange(s), np.cumsum(lengths)
    is_token = place < np.array(lengths)[:, np.newaxis]
    ids, starts = np.zeros(is_token.shape, np.int32), np.zeros_like(is_token)
    ids[is_token], starts[is_token] = masked.ids, masked.word_starts
    rows = np.searchsorted(ends, masked.positions, side="right")
    is_prediction = np.arange(p) < np.bincount(rows, minlength=len(pairs))[:, np.newaxis]
    positions, labels = np.zeros((2, *is_prediction.shape), np.int32)
    positions[is_prediction] = masked.positions - (ends - lengths)[rows]
    labels[is_prediction] = masked.labels
    firsts = np.array([pair.first.shape[1] + 2 for pair in pairs])[:, np.newaxis]
    return {
        features.INPUT_IDS: ids,
        features.INPUT_MASK: is_token,
        features.SEGMENT_IDS: (place >= firsts) & is_token,
        features.TOKEN_BOUNDARY: starts,
        features.MASKED_LM_POSITIONS: positions,
        features.MASKED_LM_IDS: labels,
        features.MASKED_LM_WEIGHTS: is_prediction,
        features.NEXT_SENTENCE_LABELS: np.array([[pair.label] for pair in pairs]),
    }


def _count_tokens(masked: Masked, pairs: Sequence[Pair], tokenizer: Tokenizer) -> Counter[str]:
    """Returns counts of examples, tokens, predictions and their replacements."""
    inputs = masked.ids[masked.positions]
    num_masked = int(np.count_nonzero(inputs == tokenizer.mask_id))
    num_kept = int(np.count_nonzero(inputs == masked.labels))
    return Counter(
        examples=len(pairs),
        tokens=len(masked.ids),
        predictions=len(inputs),
        masked=num_masked,
        kept=num_kept,
        replaced=len(inputs) - num_masked - num_kept,
        label_1=sum(pair.label for pair in pairs),
    )
