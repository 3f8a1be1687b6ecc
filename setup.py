"""Puts configs/ into the package, for `--config=tiny_english`; pyproject.toml has the rest."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[*find_namespace_packages(include=["albert_tf*"]), "albert_tf.configs"],
    package_dir={"albert_tf.configs": "configs"},
)
