"""Adds what MediaPipe's text tasks need to a LiteRT file: tokenizer, labels, roles of tensors.

MediaPipe has its own tokenizer for a SentencePiece model or a `vocab.txt`, and lower-cases only
ASCII letters. So the packed SentencePiece model normalizes text with its own table.
"""

import importlib.util
import os
import sys
import tempfile
import types
from collections.abc import Mapping
from typing import Any

from albert_tf import files
from albert_tf.errors import UserError, require
from albert_tf.export import litert
from albert_tf.export.model_kinds import ExportedModel
from albert_tf.export.serving_api import TOKEN_IDS
from albert_tf.records.model_inputs import TOKENS
from albert_tf.tokenizers import tokenization, tokenizer_json
from albert_tf.tokenizers.normalization import TokenizerConfig

# {kind: the outputs that a task reads; it would treat any other as a second head}
OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "classification": ("probabilities",),
    "multi_label": ("probabilities",),
    "sentence_embedding": ("embedding",),
    "span": ("start_logits", "end_logits"),
}
NOTE = """\
The file includes its tokenizer and labels, for MediaPipe's text tasks, whose batch size is 1.
MediaPipe truncates at the length below and reads one text (segment 0). With a SentencePiece
vocabulary it produces the same tokens. With a WordPiece vocabulary it neither drops accents nor
lower-cases letters beyond ASCII, so such texts get other tokens."""


def check(model: ExportedModel) -> None:
    """Raises `UserError` for a kind without a task, or a vocabulary that it reads differently."""
    kind, tokenizer, source = model.options.kind, model.tokenizer, model.source
    require(
        kind in OUTPUTS,
        f"--mediapipe is for {', '.join(OUTPUTS)}: MediaPipe has no task for {kind}.",
    )
    if tokenizer is None:
        raise UserError(f"{source} has no vocabulary. Put it there, or leave out --mediapipe.")
    require(
        getattr(tokenizer.config, "lower_case", False),
        f"{source}: MediaPipe lower-cases all text, but the vocabulary is cased. Leave out "
        "--mediapipe.",
    )
    require(
        tokenizer.pad_id == 0,
        f"{source}: MediaPipe pads with id 0, which is {tokenizer.id_to_piece(0)!r} here. Leave "
        "out --mediapipe.",
    )
    try:
        import mediapipe  # noqa: F401
    except ImportError:
        raise UserError("--mediapipe needs a package: pip install mediapipe") from None


def convert(model: ExportedModel, quantize: str = "none") -> bytes:
    """Returns the content of a .tflite file for MediaPipe; `UserError` as in `check`."""
    check(model)
    outputs = OUTPUTS[model.options.kind]
    return _pack(model, litert.convert(model, quantize, outputs=outputs))


def import_writer() -> Any:
    """Returns MediaPipe's module; package 1.2.3 lacks a compiled function that it imports."""
    name = "mediapipe.tasks.cc.metadata.python"
    if importlib.util.find_spec("mediapipe.tasks.cc") is None:
        # The oldest version that can read these roles and tokenizers.
        version = types.SimpleNamespace(GetMinimumMetadataParserVersion=lambda metadata: "1.1.0")
        module: Any = types.ModuleType(name)
        module._pywrap_metadata_version = version
        sys.modules.setdefault(name, module)
    from mediapipe.tasks.python.metadata.metadata_writers import metadata_writer

    return metadata_writer


def _pack(model: ExportedModel, content: bytes) -> bytes:
    """Returns the content of a .tflite file with metadata; it is also a zip file."""
    metadata_writer = import_writer()
    assert model.tokenizer is not None
    config = model.tokenizer.config
    interpreter = litert.open_file(content)
    runner = interpreter.get_signature_runner(TOKEN_IDS)
    names = [runner.get_input_details()[name]["name"] for name in TOKENS]
    outputs = {x["index"]: name for name, x in runner.get_output_details().items()}
    writer = metadata_writer.MetadataWriter(bytearray(content))
    writer.add_general_info("albert_tf", f"a model of kind {model.options.kind}")
    is_sentencepiece = isinstance(config, TokenizerConfig)
    name = tokenization.MODEL if is_sentencepiece else tokenization.WORDPIECE
    vocabulary = model.vocabulary[name]
    with tempfile.TemporaryDirectory(prefix="albert-mediapipe-") as folder:
        path = os.path.join(folder, name)
        if isinstance(config, TokenizerConfig):
            vocabulary = tokenizer_json.normalize_in_model(vocabulary, config)
        files.write_bytes(path, vocabulary)
        kind = "SentencePieceTokenizer" if is_sentencepiece else "BertTokenizer"
        writer.add_bert_text_input(getattr(metadata_writer, kind)(path), *names)
        if model.options.labels:
            labels = metadata_writer.Labels().add([*model.options.labels])
            writer.add_classification_output(labels)
        else:
            for tensor in interpreter.get_output_details():  # in file order
                writer.add_feature_output(outputs[tensor["index"]])
        return bytes(writer.populate()[0])
