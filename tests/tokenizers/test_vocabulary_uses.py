"""Tests of vocabularies beyond the published recipe: what each can be used for."""

import numpy as np
import pytest
import vocabularies
from refusals import one_line
from vocabularies import KINDS, PUBLISHED

from albert_tf.errors import UserError
from albert_tf.tokenizers import sentencepiece_proto, tokenization, vocabulary_uses
from albert_tf.tokenizers.vocabulary_uses import GRAPH, GROWTH, PRETRAINING, TOKENIZER_JSON

# The others can be used for all.
REFUSED = {
    "bpe": {GRAPH, GROWTH},
    "char": {GRAPH, GROWTH},
    "word": {GRAPH, GROWTH, TOKENIZER_JSON},
    "symbols": {GRAPH},
    "bpe_symbols": {GRAPH, GROWTH, TOKENIZER_JSON},
    "nfkc_symbols": {GRAPH, TOKENIZER_JSON},
    "bytes": {GRAPH, GROWTH},
    "bpe_bytes": {GRAPH, GROWTH},
    "no_prefix": {GRAPH, GROWTH, PRETRAINING},
}


def make(kind):
    return tokenization.make_tokenizer(vocabularies.train_kind(kind), PUBLISHED)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_vocabulary_can_be_used_for(kind):
    tokenizer, refused = make(kind), set()
    for use in (GRAPH, GROWTH, PRETRAINING, TOKENIZER_JSON):
        try:
            vocabulary_uses.check(use, tokenizer)
        except UserError as error:
            assert str(error).startswith(use.error)
            assert str(error).endswith(use.remedy)
            refused.add(use)
    assert refused == REFUSED.get(kind, set())


def test_byte_pieces_of_a_character_are_one_word():
    tokenizer = make("bytes")
    ids = np.array(tokenizer.encode("the 鱻a"))
    pieces = [tokenizer.id_to_piece(i) for i in ids]
    assert pieces[-4:] == ["<0xE9>", "<0xB1>", "<0xBB>", "a"]
    starts = tokenizer.is_word_start[ids]
    assert starts[-4:].tolist() == [True, False, False, False]
    assert set(ids) <= set(tokenizer.replacement_ids)


@pytest.mark.parametrize(
    ("part", "name", "message"),
    [
        ("normalizer_spec", "escape_whitespaces", "does not write spaces as ▁"),
        ("trainer_spec", "treat_whitespace_as_suffix", "writes ▁ after words"),
    ],
)
def test_other_ways_to_write_spaces_are_refused(part, name, message):
    model = sentencepiece_proto.ModelProto.FromString(vocabularies.train_kind("unigram"))
    setattr(getattr(model, part), name, not getattr(getattr(model, part), name))
    with one_line(message):
        tokenization.make_tokenizer(model.SerializeToString(), PUBLISHED)
