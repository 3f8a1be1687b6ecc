"""Writes lamb_tfa.npz: five steps of tensorflow-addons' LAMB, a second implementation of the paper.

tensorflow-addons is at its end of life and wants an old TensorFlow: an environment of its own.

    python3.11 -m venv tfa && tfa/bin/pip install tensorflow-cpu==2.15.1 tensorflow-addons==0.23.0
    tfa/bin/python tests/goldens/make_lamb_tfa.py

Arrays are stacked over the steps. `initial/NAME` and `gradient/NAME` are the inputs; the gradient
of `embeddings` is sparse, its `indices` have duplicates. `decay/NAME` (0.2, strong enough to be
seen) and `no_decay/NAME` are the weights after each step.
"""

import pathlib

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa

STEPS = 5
SHAPES = {
    "dense/kernel": (5, 4),
    "dense/bias": (4,),
    "LayerNorm/gamma": (4,),
    "LayerNorm/beta": (4,),
    "embeddings": (7, 3),
    "zero": (3, 2),
}
SCALES = {"dense/kernel": 0.5, "LayerNorm/beta": 0.0, "embeddings": 3.0, "zero": 0.0}
INDICES = [[0, 3, 3, 6], [1, 1, 1, 2], [6, 5, 4, 3], [0, 0, 2, 2], [4, 3, 4, 0]]


def wave(shape, phase):
    """Irregular numbers in [-1, 1] without a random generator."""
    return np.sin(phase + 1.7 * np.arange(np.prod(shape)) ** 1.3).reshape(shape).astype(np.float32)


def inputs():
    arrays = {"indices": np.array(INDICES)}
    for number, (name, shape) in enumerate(SHAPES.items()):
        arrays[f"initial/{name}"] = np.float32(SCALES.get(name, 1.0)) * wave(shape, number)
        rows = len(INDICES[0]) if name == "embeddings" else shape[0]
        arrays[f"gradient/{name}"] = np.float32(0.1) * np.stack(
            [wave((rows, *shape[1:]), 10 * step + number) for step in range(STEPS)]
        )
    return arrays


def gradient(arrays, name, step):
    values = tf.constant(arrays[f"gradient/{name}"][step])
    if name == "embeddings":
        return tf.IndexedSlices(values, tf.constant(INDICES[step]), tf.constant(SHAPES[name]))
    return values


def run(arrays, weight_decay):
    variables = {name: tf.Variable(arrays[f"initial/{name}"], name=name) for name in SHAPES}
    optimizer = tfa.optimizers.LAMB(
        learning_rate=0.01,
        weight_decay=weight_decay,
        epsilon=1e-6,
        exclude_from_weight_decay=["LayerNorm", "bias"],
        exclude_from_layer_adaptation=["LayerNorm", "bias"],
    )
    steps = []
    for step in range(STEPS):
        optimizer.apply_gradients([(gradient(arrays, n, step), variables[n]) for n in variables])
        steps.append({name: variable.numpy() for name, variable in variables.items()})
    return {name: np.stack([step[name] for step in steps]) for name in SHAPES}


def main():
    arrays = inputs()
    trajectories = {"decay": run(arrays, 0.2), "no_decay": run(arrays, 0.0)}
    for kind, weights in trajectories.items():
        arrays |= {f"{kind}/{name}": values for name, values in weights.items()}
    np.savez_compressed(pathlib.Path(__file__).with_name("lamb_tfa.npz"), **arrays)


if __name__ == "__main__":
    main()
