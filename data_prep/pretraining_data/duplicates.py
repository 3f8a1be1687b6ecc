"""Tells which documents of a corpus were there before, word for word or nearly."""

import hashlib
import re
from collections.abc import Callable

from albert_tf.errors import UserError

KEEP, EXACT, NEAR = DUPLICATES = ("keep", "exact", "near")
_SIMILARITY = 0.8  # Jaccard, of the sets of n-grams of words
_NGRAM = 5
_NUM_HASHES = 128
# A character of Chinese or Japanese is a word: these have no spaces.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|\w+")


def make_filter(kind: str) -> Callable[[bytes], bool]:
    """Returns a function that tells whether a document is new, and then remembers it.

    A document is its UTF-8. `kind` is one of `DUPLICATES`. What is remembered stays in memory.

    Raises:
        UserError: near duplicates, without the library that finds them.
    """
    if kind == KEEP:
        return lambda content: True
    return _make_exact() if kind == EXACT else _make_near()


def _make_exact() -> Callable[[bytes], bool]:
    hashes: set[bytes] = set()

    def is_new(content: bytes) -> bool:
        before = len(hashes)
        hashes.add(hashlib.blake2b(b" ".join(content.split()), digest_size=16).digest())
        return len(hashes) > before

    return is_new


def _make_near() -> Callable[[bytes], bool]:
    """MinHash (Broder, 1997); documents whose hashes agree in a band are compared."""
    try:
        import datasketch
    except ImportError:
        raise UserError(
            "--duplicates=near needs datasketch: pip install -r requirements-corpus.txt"
        ) from None
    index = datasketch.MinHashLSH(threshold=_SIMILARITY, num_perm=_NUM_HASHES)
    signatures: list[datasketch.LeanMinHash] = []
    is_new_exactly = _make_exact()

    def is_new(content: bytes) -> bool:
        if not is_new_exactly(content):
            return False
        words = _WORD.findall(content.decode(errors="replace").lower())
        ngrams = {" ".join(words[k : k + _NGRAM]) for k in range(max(len(words) - _NGRAM, 0) + 1)}
        minhash = datasketch.MinHash(_NUM_HASHES, seed=1)
        minhash.update_batch([ngram.encode() for ngram in sorted(ngrams)])
        signature = datasketch.LeanMinHash(minhash)
        if any(signatures[k].jaccard(signature) >= _SIMILARITY for k in index.query(signature)):
            return False
        index.insert(len(signatures), signature)
        signatures.append(signature)
        return True

    return is_new
