"""Says what a vocabulary can be used for, and why it cannot be used for the rest.

WordPiece, and the unigram models from `bin/train_vocabulary`, can be used for everything; a list of
symbols only for records of phonemes.
"""

from typing import Any, NamedTuple

from albert_tf.errors import UserError
from albert_tf.tokenizers import sentencepiece_proto as proto
from albert_tf.tokenizers.sentencepiece_tokenizer import SentencePieceTokenizer
from albert_tf.tokenizers.symbols_tokenizer import SymbolsTokenizer
from albert_tf.tokenizers.tokenization import Tokenizer
from albert_tf.train_config import WORDS_BEHIND

_NOT_UNIGRAM, _WORDS = "pieces that are not from a unigram model", "pieces that are whole words"
_BYTES = "byte fallback"
_NO_PREFIX, _SPACES = "no space before the text", "white space that counts"
_SYMBOLS = "user-defined symbols of several characters"
_FROZEN = f"{_SYMBOLS} in a model that is not unigram, or that normalizes text"


class Use(NamedTuple):
    """A use of a vocabulary: the start of its error message, what it refuses, and the remedy."""

    error: str
    refused: tuple[str, ...]
    remedy: str


GRAPH = Use(
    "a graph cannot tokenize text for",
    (_NOT_UNIGRAM, _BYTES, _NO_PREFIX, _SPACES, _SYMBOLS),
    "Export with --text=false.",
)
TOKENIZER_JSON = Use(
    "transformers has no tokenizer for",
    (_WORDS, _FROZEN),
    "Use another --to_format.",
)
GROWTH = Use(
    "tokens cannot be added to",
    (_NOT_UNIGRAM, _BYTES, _NO_PREFIX),
    "Use WordPiece, or a vocabulary from bin/train_vocabulary.",
)
# Lines are joined: without a space before it, a line would continue the last word.
PRETRAINING = Use(
    "lines of text cannot be joined with",
    (_NO_PREFIX,),
    f"Train it with add_dummy_prefix; symbols are for --sentence_task={WORDS_BEHIND}.",
)
SYMBOLS = Use(f"{WORDS_BEHIND} need a list of symbols, not", (), "Pass a folder with symbols.txt.")


def check(use: Use, tokenizer: Tokenizer) -> None:
    """Raises `UserError` if the vocabulary does not support this use."""
    if problem := find_problem(use, tokenizer):
        raise UserError(f"{problem}. {use.remedy}")


def find_problem(use: Use, tokenizer: Tokenizer) -> str | None:
    """Returns why the vocabulary does not support this use, or None."""
    if isinstance(tokenizer.backend, SymbolsTokenizer) != (use is SYMBOLS):
        return f"{use.error} {'pieces of text' if use is SYMBOLS else 'a list of symbols'}"
    if not isinstance(tokenizer.backend, SentencePieceTokenizer):
        return None
    features = _find_features(read_model(tokenizer.backend))
    reasons = [name for name in use.refused if features[name]]
    return f"{use.error} a vocabulary with {' and '.join(reasons)}" if reasons else None


def read_model(backend: SentencePieceTokenizer) -> Any:
    """Returns the parsed model."""
    return proto.ModelProto.FromString(backend.processor.serialized_model_proto())


def _find_features(model: Any) -> dict[str, bool]:
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    symbols = [piece.piece for piece in model.pieces if piece.type == proto.USER_DEFINED]
    is_unigram, has_symbols = trainer.model_type == proto.UNIGRAM, any(len(x) > 1 for x in symbols)
    return {
        _NOT_UNIGRAM: not is_unigram,
        _WORDS: trainer.model_type == proto.WORD,
        _BYTES: trainer.byte_fallback,
        _NO_PREFIX: not normalizer.add_dummy_prefix,
        _SPACES: not normalizer.remove_extra_whitespaces,
        _SYMBOLS: has_symbols,
        _FROZEN: has_symbols and (not is_unigram or bool(normalizer.precompiled_charsmap)),
    }
