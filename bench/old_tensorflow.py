"""Whether the TensorFlow of an old server answers as this one does what is exported here.

    PYTHONPATH=tests/fixtures python bench/old_tensorflow.py write FOLDER [KIND...]
    old/bin/python bench/old_tensorflow.py read FOLDER    # tensorflow and tensorflow-text 2.12.1

The first exports tiny random models of every kind, or of some, with a SentencePiece and a WordPiece
vocabulary, and keeps a request to each signature with its answer. The second, which needs nothing
else of this project, asks the same in a session of TensorFlow 1, and fails if a number differs by
over 1e-5.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

MODEL, INPUTS, OUTPUTS = "model/1", "inputs", "outputs"


def write(folder: pathlib.Path, *kinds: str) -> None:
    import fuzzing

    from albert_tf.export import model_kinds, signatures

    for vocabulary in fuzzing.VOCABULARIES:
        for kind in kinds or model_kinds.KINDS:
            place = folder / vocabulary / kind
            served = fuzzing.export(kind, vocabulary, str(place))
            for name, signature in signatures.make_signatures(served.source).items():
                request = {key: np.array(value) for key, value in signature.example.items()}
                _keep(place / name / INPUTS, request)
                _keep(place / name / OUTPUTS, served.ask(name, request))
            print(place)


def _keep(folder: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    for name, tensor in tensors.items():
        folder.mkdir(parents=True, exist_ok=True)
        proto = tf.make_tensor_proto(tensor).SerializeToString()
        (folder / name).write_bytes(proto)


def _kept(folder: pathlib.Path) -> dict[str, np.ndarray]:
    read = TensorProto.FromString
    return {path.name: tf.make_ndarray(read(path.read_bytes())) for path in folder.iterdir()}


def read(folder: pathlib.Path) -> None:
    import tensorflow_text  # noqa: F401  (its operations)

    num_wrong = sum(_num_wrong(path.parent.parent) for path in sorted(folder.rglob(MODEL)))
    print(f"TensorFlow {tf.__version__}: {num_wrong} signatures answer otherwise")
    sys.exit(num_wrong > 0)


def _num_wrong(place: pathlib.Path) -> int:
    num_wrong = 0
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(place / MODEL))
        names = [name for name in sorted(meta.signature_def) if (place / name / INPUTS).exists()]
        for name in names:
            signature = meta.signature_def[name]
            feeds = _kept(place / name / INPUTS).items()
            answers = session.run(
                {key: info.name for key, info in signature.outputs.items()},
                {signature.inputs[key].name: value for key, value in feeds},
            )
            wanted = _kept(place / name / OUTPUTS)
            assert answers.keys() == wanted.keys()
            wrong = [key for key in wanted if not _same(answers[key], wanted[key])]
            num_wrong += bool(wrong)
            print(place.name, place.parent.name, name, f"differs: {wrong}" if wrong else "the same")
    return num_wrong


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype.kind == "f":
        return one.shape == other.shape and np.allclose(one, other, rtol=1e-5, atol=1e-5)
    return np.array_equal(one, other)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", folder, *kinds]:
            write(pathlib.Path(folder), *kinds)
        case ["read", folder]:
            read(pathlib.Path(folder))
        case _:
            sys.exit(__doc__)
