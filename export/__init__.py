"""Exports trained models; their users need none of this code."""

import albert_tf  # noqa: F401  (first: it imports TensorFlow quietly)
