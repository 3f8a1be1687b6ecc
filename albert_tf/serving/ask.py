"""Sends texts to an exported model, without a server and without this project.

It needs the folder that bin/export_saved_model wrote, TensorFlow and tensorflow-text:

    python albert_tf/serving/ask.py --model=models/reviews/1 --text='Cold soup.' --text='Lovely!'
    python albert_tf/serving/ask.py --model=models/squad/1 --question='Who?' --context='Ann came.'

Flags are the inputs of a signature, which MODEL.md beside the model lists; --second_text is its
text_pair. Each may be repeated, for as many answers; --options are those of one question.
"""

import argparse
import contextlib
import io
import os
import re
import sys

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@contextlib.contextmanager
def silence():
    """Silences TensorFlow's notices at its start, which bypass Python."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


with silence():
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers its operations)

    tf.config.list_physical_devices("GPU")

TEXTS = ("text", "text_pair", "question", "context", "passage")
OPTIONS = "options"
FLAGS = {"text_pair": "second_text"}  # others have the name of the input


def read_flags():
    """Returns the folder of the model, and the texts under the names of their flags."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw, allow_abbrev=False)
    parser.add_argument("--model", required=True, help="folder of a version of the model")
    for name in (*TEXTS, OPTIONS):
        flag = FLAGS.get(name, name)
        parser.add_argument(f"--{flag}", dest=name, action="append", help="repeatable")
    given = {name: value for name, value in vars(parser.parse_args()).items() if value}
    return given.pop("model"), given


def run_model(folder, texts):
    """Returns the outputs of the signature that takes just these texts: {name: [B, ...] array}."""
    if not os.path.exists(os.path.join(folder, "saved_model.pb")):
        raise ValueError(f"--model: {folder} is no version of a model; {folder}/1 may be one.")
    try:
        signatures = tf.saved_model.load(folder).signatures.values()
    except (RuntimeError, IndexError, ValueError) as error:
        raise OSError(error) from error
    taken = [function.structured_input_signature[1].keys() for function in signatures]
    if texts.keys() not in taken:
        raise ValueError(f"the model takes other flags: see {folder}/MODEL.md.")
    return run_function(list(signatures)[taken.index(texts.keys())], texts)


def run_function(function, texts):
    """Returns the outputs of a signature, {name: [B, ...] array}."""
    outputs = function(**{name: tf.constant(value) for name, value in texts.items()})
    return {name: decode(value.numpy()) for name, value in outputs.items()}


def decode(array):
    return np.char.decode(array.astype(bytes), "utf-8") if array.dtype == object else array


def find_mistake(error):
    """Returns the sentence of a failed check, which TensorFlow puts into brackets."""
    match = re.search(r"assertion failed: \[(.*?)\]", str(error))
    return match[1] if match else str(error)


def print_answers(rows, outputs):
    """Prints each row of inputs, and the answer to it."""
    np.set_printoptions(precision=3, suppress=True, threshold=20, linewidth=100)
    for row, inputs in enumerate(rows):
        print(" | ".join(inputs))
        print_answer(outputs, row)


def print_answer(outputs, row):
    """Prints the answer to a row: a label and its probability, or all outputs."""
    for name in ("label", "choice"):
        if name in outputs:
            print(f"   {outputs[name][row]} ({outputs['probabilities'][row].max():.3f})")
            return
    for name in sorted(outputs, key=lambda name: (name not in ("answer", "tokens"), name)):
        print(f"   {name}: {outputs[name][row]}")


def main():
    if isinstance(sys.stdout, io.TextIOWrapper):  # perhaps a terminal that is not of UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    program = os.path.basename(sys.argv[0])
    folder, texts = read_flags()
    rows = list(zip(*(texts[name] for name in TEXTS if name in texts), strict=False))
    if OPTIONS in texts:
        texts[OPTIONS] = [texts[OPTIONS]]
    try:
        outputs = run_model(folder, texts)
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        return f"{program}: {find_mistake(error)}"
    except (OSError, tf.errors.OpError) as error:
        reason = str(error).partition("\n")[0]
        return f"{program}: --model: {folder} is damaged: {reason}"
    print_answers(rows, outputs)
    return None


if __name__ == "__main__":
    sys.exit(main())
