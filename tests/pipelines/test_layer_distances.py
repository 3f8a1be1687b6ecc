"""How far each layer moves its input: the paper's figure 1."""

import itertools

import numpy as np
import tensorflow as tf
import tiny

from albert_tf.model.albert_model import Albert
from albert_tf.pipelines import pretraining_evaluation


def test_distances_are_means_over_the_tokens():
    model = Albert(tiny.config())
    tiny.fill(model)
    batches = [tiny.batch(0), tiny.batch(1)]
    l2, angles = [], []
    for batch in batches:
        embeddings = model.embeddings(
            *(batch["input_ids"], batch["segment_ids"]),
            layout=model._make_layout(batch["input_mask"], False, False),
        )
        first = model.encoder.projection(embeddings).numpy().reshape([3, 7, 8])
        vectors = [first, *(x.numpy() for x in model(batch)["encoder_outputs"])]
        rows = [x[batch["input_mask"].numpy() == 1].astype(np.float64) for x in vectors]
        assert rows[0].shape == (16, 8)
        for before, after in itertools.pairwise(rows):
            norms = np.linalg.norm(before, axis=-1) * np.linalg.norm(after, axis=-1)
            l2.append(np.linalg.norm(after - before, axis=-1))
            angles.append(np.degrees(np.arccos((before * after).sum(-1) / norms)))
    copies = {name: tf.repeat(x[:1], 5, axis=0) for name, x in batches[0].items()}
    copies["is_real_example"] = tf.zeros([5])  # which fill up a last batch
    measured = pretraining_evaluation.measure_layers(model, [*batches, copies])
    for name, values in (("l2", l2), ("angle", angles)):
        expected = [np.concatenate(values[layer::3]).mean() for layer in range(3)]
        np.testing.assert_allclose(measured[name], expected, rtol=1e-4)
