"""Differences between the tokenizers of transformers 5 and ours, as rules that make ours equal.

A rule takes a function from text to ids and returns another one. Ties are no such rule: rounding
decides which of two tokenizations with equal scores a program takes; their equality is verified.
"""

import itertools
import math
import operator
import os
import re
import unicodedata
from collections.abc import Callable, Sequence

import sentencepiece

from albert_tf.data_prep.vocabulary import USER_SYMBOLS
from albert_tf.tokenizers import sentencepiece_tokenizer, tokenization, wordpiece_tokenizer
from albert_tf.tokenizers.tokenization import Tokenizer, WordPieceConfig

Encode = Callable[[str], list[int]]
Rule = Callable[[Encode], Encode]
Same = Callable[[list[int], list[int]], bool]

SPECIAL = "special pieces that are typed in a text are special"
SYMBOLS = (
    "a symbol such as ( . - splits the text before normalization: it has no ▁, the next piece has"
)
QUOTES = "`` and '' become a quotation mark"
MARKS = "marks of combining class 0, such as vowel signs, are dropped too"
SIGMA = "no letter sigma is a final one"
SPACES = "U+001C to U+001F are no white space"
DIGITS = "a number with a comma stays whole"
LONG_WORDS = "a word of over 100 characters is unknown, not of over 200"
TIES = "of two tokenizations with the same total score, the other one"


def rules(tokenizer: Tokenizer, like_theirs: Tokenizer) -> dict[str, Rule]:
    """Lists the rules, innermost first; `like_theirs` has `compat` hf_fast, or hf for WordPiece."""
    if isinstance(tokenizer.config, WordPieceConfig):
        return {
            LONG_WORDS: lambda _: like_theirs.encode,
            SPECIAL: _split_at(wordpiece_tokenizer.SPECIAL_PIECES, tokenizer),
        }
    return {
        DIGITS: lambda _: like_theirs.encode,
        MARKS: _change_text(_without_marks),
        SPACES: _change_text(lambda text: re.sub(r"[\x1c-\x1f]", "\ufdd1", text)),
        SIGMA: _change_text(lambda text: text.replace("Σ", "σ")),
        QUOTES: _change_text(lambda text: text.replace("``", '"').replace("''", '"')),
        SYMBOLS: _split_at(USER_SYMBOLS, tokenizer),
        SPECIAL: _split_at(sentencepiece_tokenizer.SPECIAL_PIECES, tokenizer),
    }


def ties(vocabulary: str) -> Same:
    """Returns whether two lists of ids have the same spelling and score, except for rounding."""
    path = os.path.join(vocabulary, tokenization.MODEL)
    model = sentencepiece.SentencePieceProcessor(model_file=path)

    def spelled(ids: list[int]) -> str:
        return "".join(map(model.id_to_piece, ids))

    def score(ids: list[int]) -> float:
        return math.fsum(map(model.get_score, ids))

    return lambda a, b: spelled(a) == spelled(b) and abs(score(a) - score(b)) < 1e-3


def explain(
    text: str, theirs: list[int], encode: Encode, known: dict[str, Rule], tie: Same = operator.eq
) -> list[str] | None:
    """Returns the fewest rules with which ours gives the ids `theirs`, or None.

    If no rules do, `tie` (see `ties`) accepts equally good ids, and `TIES` joins the rules.
    """
    subsets = [s for n in range(len(known) + 1) for s in itertools.combinations(known, n)]
    for same, more in ((operator.eq, ()), (tie, (TIES,))):
        for chosen in subsets:
            function = encode
            for name in chosen:
                function = known[name](function)
            if same(function(text), theirs):
                return [*chosen, *more]
    return None


def _change_text(change: Callable[[str], str]) -> Rule:
    return lambda encode: lambda text: encode(change(text))


def _split_at(pieces: Sequence[str], tokenizer: Tokenizer) -> Rule:
    pattern = re.compile("|".join(re.escape(piece) for piece in pieces) or r"(?!)")

    def rule(encode: Encode) -> Encode:
        def encode_parts(text: str) -> list[int]:
            ids, end = [], 0
            for match in pattern.finditer(text):
                ids += [*encode(text[end : match.start()]), tokenizer.piece_to_id(match[0])]
                end = match.end()
            return ids + encode(text[end:])

        return encode_parts

    return rule


def _without_marks(text: str) -> str:
    return "".join(
        c for c in unicodedata.normalize("NFKD", text) if unicodedata.category(c)[0] != "M"
    )
