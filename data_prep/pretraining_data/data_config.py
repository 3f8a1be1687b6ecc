"""Settings of pre-training records."""

import dataclasses
import locale

from albert_tf import train_config
from albert_tf.errors import require, require_choice, require_range
from albert_tf.kinds import token_lengths

# The codes that Python knows: sentencex splits text of an unknown one by the rules of English.
_LANGUAGES = {name[:2] for name in locale.locale_alias if name[2:3] in ("", "_", ".", "@")}
_RANGES = {
    "max_seq_length": (8, 1_000_000),
    "max_predictions_per_seq": (1, 1_000_000),
    "ngram": (1, 1000),
    "dupe_factor": (1, 1_000_000),
    "seed": (0, 2**63 - 1),
    "shard_megabytes": (0.001, 1_000_000.0),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Settings of pre-training records. Defaults are the published ones.

    Attributes:
        masking: static stores masks; online leaves them to training, which draws them in each pass
        word_segmenter: jieba masks whole words of Chinese, none its pieces; needs rjieba
        max_seq_length: tokens of an example, S
        max_predictions_per_seq: masked tokens of an example, P; 20 caps masked_lm_prob at S = 512
        masked_lm_prob: share of the tokens to mask
        ngram: longest n-gram of words to mask
        short_seq_prob: share of documents cut into shorter examples
        dupe_factor: passes over the text, each with other pairs and masks; default 40, online 1
        sentence_task: sop, nsp or none
        one_segment: chunks of one sentence: split, skip or random (see `segments.make_pairs`)
        split_sentences: lines are paragraphs: split them into sentences
        text_field: where .jsonl and .parquet files have the text of a document, in each row
        report_languages: count the documents of each language; needs py3langid
        language: language whose rules --split_sentences uses
        eval_fraction: share of the documents to hold out; 1 makes no training records
        seed: seed of every random choice; which documents are held out does not depend on it
        gzip: compress the records
        shard_megabytes: megabytes of text in a shard
    """

    masking: str = train_config.STATIC
    word_segmenter: str = "none"
    max_seq_length: int = 512
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    ngram: int = 3
    short_seq_prob: float = 0.1
    dupe_factor: int | None = None
    sentence_task: str = "sop"
    one_segment: str = "split"
    split_sentences: bool = False
    text_field: str = "text"
    report_languages: bool = False
    language: str = "en"
    eval_fraction: float = 0.0
    seed: int = 12345
    gzip: bool = False
    shard_megabytes: float = 16.0

    def __post_init__(self) -> None:
        if self.dupe_factor is None:
            object.__setattr__(self, "dupe_factor", 1 if self.is_online else 40)
        require_choice("masking", self.masking, train_config.MASKINGS)
        require_choice("word_segmenter", self.word_segmenter, ("none", "jieba"))
        require_choice("sentence_task", self.sentence_task, train_config.SENTENCE_TASKS)
        require_choice("one_segment", self.one_segment, ("split", "skip", "random"))
        require(
            self.language in _LANGUAGES,
            f"language: {self.language!r} is no two-letter code of a language (ISO 639-1).",
        )
        for name, bounds in _RANGES.items():
            require_range(name, getattr(self, name), *bounds)
        if self.is_online:
            require_range("ngram", self.ngram, 1, train_config.LONGEST_ONLINE_NGRAM)
        for name in ("masked_lm_prob", "short_seq_prob"):
            require(0 <= getattr(self, name) < 1, f"{name} must be in [0, 1).")
        require(0 <= self.eval_fraction <= 1, "eval_fraction must be in [0, 1].")
        require(
            self.max_predictions_per_seq <= self.max_seq_length,
            f"max_predictions_per_seq {self.max_predictions_per_seq} is more than max_seq_length "
            f"{self.max_seq_length}.",
        )
        require(
            self.sentence_task != "none" or self.one_segment != "random",
            "one_segment=random needs sentence_task sop or nsp, which have labels.",
        )

    @property
    def is_online(self) -> bool:
        return self.masking == train_config.ONLINE

    @property
    def max_num_tokens(self) -> int:
        """Tokens of both segments of an example, without [CLS] and [SEP]."""
        return self.max_seq_length - token_lengths.NUM_SPECIAL_TOKENS

    @property
    def needs_two_documents(self) -> bool:
        return self.sentence_task == "nsp" or self.one_segment == "random"

    @property
    def uncapped_predictions(self) -> int:
        return round(self.max_seq_length * self.masked_lm_prob)

    @property
    def predictions_are_capped(self) -> bool:
        return self.max_predictions_per_seq < self.uncapped_predictions
