"""Text to records, offline. Nothing here needs Keras."""

import albert_tf  # noqa: F401  (first: it imports TensorFlow quietly)
