"""The numbers of suites: small files that are worth keeping."""

import glob
import itertools
import os
from collections.abc import Mapping
from typing import Any

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.experiments import stages
from albert_tf.experiments.stages import Stage
from albert_tf.experiments.suite import Suite


class Results:
    """The numbers of all suites: a file for each run, in a folder for each suite."""

    def __init__(self, suite: Suite, folder: str) -> None:
        self._folder = os.path.join(folder, suite.name)
        self._root, self._all = folder, os.path.join(glob.escape(folder), "*", "*.json")
        self._loaded: dict[str, tuple[int, dict[str, Any]]] = {}

    def read(self, variant: str, seed: int) -> dict[str, dict[str, Any]]:
        """Returns {stage: what is known of it} of a run."""
        path = self._path(variant, seed)
        return self._load(path) if os.path.exists(path) else {}

    def find(self, variant: str, seed: int, stage: Stage) -> dict[str, Any] | None:
        """Returns what is known of a stage; None if nothing is, for its settings and data.

        The same stage in another suite counts as well.
        """
        own = self.read(variant, seed)
        for known in itertools.chain([own], map(self._load, sorted(glob.glob(self._all)))):
            found = known.get(stage.name, {})
            if found.get("settings") == stage.settings and stage.data in ("", found["data"]):
                return found
        return None

    def add(self, variant: str, seed: int, stage: Stage, values: Mapping[str, Any]) -> None:
        """Writes the numbers of a stage, beside those of others; of other weights none stay."""
        new = {"settings": stage.settings, "data": stage.data, **values}
        with files.locking_folder(self._folder, waits=True):
            known = {} if stage.name == stages.PRETRAINING else self.read(variant, seed)
            content = {"variant": variant, "seed": seed, "stages": {**known, stage.name: new}}
            files.write_json(self._path(variant, seed), content)

    def _path(self, variant: str, seed: int) -> str:
        return os.path.join(self._folder, f"{stages.make_name(variant, seed)}.json")

    def _load(self, path: str) -> dict[str, dict[str, Any]]:
        changed = os.stat(path).st_mtime_ns
        if self._loaded.get(path, (None,))[0] != changed:
            content = files.read_json(path, "results")
            if not isinstance(content, dict) or not isinstance(content.get("stages"), dict):
                raise UserError(f"{path} has no results. Remove it to run them again.")
            self._loaded[path] = changed, content["stages"]
        return self._loaded[path][1]


def round_numbers(value: Any) -> Any:
    """Returns numbers with six digits: people read them, and files keep them."""
    if isinstance(value, dict):
        return {key: round_numbers(x) for key, x in value.items()}
    if isinstance(value, list):
        return [round_numbers(x) for x in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
