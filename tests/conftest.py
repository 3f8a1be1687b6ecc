"""All tests see two CPUs: two replicas anywhere. It must be said before TensorFlow starts."""

import albert_tf  # noqa: F401, I001  (first: it imports TensorFlow quietly)
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
