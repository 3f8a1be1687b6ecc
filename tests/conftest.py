"""All tests see two CPUs, so that two replicas can be had anywhere. Must come before TensorFlow counts its devices."""

import albert_tf  # noqa: F401  (first: imports TensorFlow without its start-up notices)
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
