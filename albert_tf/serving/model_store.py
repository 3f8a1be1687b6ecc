"""Loads versions of models, and swaps in a new one while the old one answers."""

import contextlib
import ctypes
import dataclasses
import gc
import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import tensorflow as tf
from absl import logging
from google.protobuf import text_format
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from albert_tf import files
from albert_tf.errors import UserError, reason, require
from albert_tf.export import export_source, model_versions, saved_model
from albert_tf.export.export_config import ExportConfig, SourceConfig
from albert_tf.serving import served_model
from albert_tf.serving.refusals import Refusal, not_found
from albert_tf.serving.served_model import ServedModel
from albert_tf.serving.server_metrics import Metrics

LOADING, AVAILABLE, END = "LOADING", "AVAILABLE", "END"


@dataclass(frozen=True)
class State:
    """The state of a version: one of the names above, and the reason if it failed.

    `content` shows whether its folder has changed since: a copy may have been incomplete.
    """

    name: str
    code: str = "OK"
    message: str = ""
    content: object = None


@dataclass
class Entry:
    """A model that is served.

    Attributes:
        name: the name in its URL.
        folder: the folder of an export, of its versions, or of a checkpoint.
        wanted: the versions to serve; empty: the newest `latest`, or all if that is 0.
        latest: how many of the newest versions are served.
        labels: {label: version}.
        loaded: the versions that answer.
        states: of each version.
    """

    name: str
    folder: str
    wanted: Sequence[int] = ()
    latest: int = 1
    labels: dict[str, int] = field(default_factory=dict)
    loaded: dict[int, ServedModel] = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=dict)


def read_config(path: str) -> list[Entry]:
    """Returns the models in a file for `tensorflow_model_server --model_config_file`."""
    try:
        config = text_format.Parse(files.read_bytes(path, "--model_config"), ModelServerConfig())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise UserError(f"--model_config: {path}: {reason(error)}.") from None
    entries = []
    for model in config.model_config_list.config:
        policy, labels = model.model_version_policy, dict(model.version_labels)
        latest = 0 if policy.HasField("all") else policy.latest.num_versions or 1
        versions = tuple(policy.specific.versions)
        entries.append(Entry(model.name, model.base_path, versions, latest, labels))
    names = [entry.name for entry in entries]
    require(bool(names), f"--model_config: {path} lists no models.")
    require(len({*names}) == len(names), f"--model_config: {path} lists a name twice.")
    return entries


class ModelStore:
    """The models of a server.

    A version that cannot be loaded changes nothing: the loaded versions keep answering.
    """

    def __init__(self, entries: Sequence[Entry], metrics: Metrics) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self._metrics = metrics
        self._temporary = tempfile.TemporaryDirectory(prefix="albert-serve-")
        self._stops = threading.Event()

    @property
    def names(self) -> list[str]:
        return [*self._entries]

    def is_ready(self) -> bool:
        """Whether every model answers."""
        return all(entry.loaded for entry in self._entries.values())

    def find(self, name: str, version: int | None = None, label: str = "") -> ServedModel:
        """Returns a version, by default the newest; `Refusal` if it is not available."""
        entry = self._find_entry(name)
        if label:
            version = entry.labels.get(label)
            if version is None:
                raise not_found(f"Unrecognized servable version label: {label}")
        loaded = entry.loaded
        version = version or max(loaded, default=0)
        if version in loaded:
            return loaded[version]
        if not loaded and all(x.name == LOADING for x in entry.states.values()):
            raise Refusal("UNAVAILABLE", f"{name} is being loaded.")
        wanted = f"Specific({name}, {version})" if version else f"Latest({name})"
        raise not_found(f"Servable not found for request: {wanted}")

    def list_states(self, name: str, version: int | None = None) -> dict[int, State]:
        """Returns the states of a model's versions, the newest first."""
        states = self._find_entry(name).states
        if version and version not in states:
            raise not_found(f"Could not find version {version} of model {name}")
        return {x: states[x] for x in sorted(states, reverse=True) if version in (None, x)}

    def _find_entry(self, name: str) -> Entry:
        if name not in self._entries:
            raise not_found(f"Could not find any versions of model {name}")
        return self._entries[name]

    def start(self, poll_seconds: float, on_error: Callable[[Exception], None]) -> None:
        """Loads the models in a thread, and checks for new versions unless `poll_seconds` is 0."""

        def watch() -> None:
            try:
                self._watch(poll_seconds)
            except Exception as error:
                on_error(error)

        self._thread = threading.Thread(target=watch, name="versions", daemon=True)
        self._thread.start()

    def _watch(self, poll_seconds: float) -> None:
        for entry in self._entries.values():
            if not _list_versions(entry.folder):
                self._export(entry)
        while not self._stops.is_set():
            have_dropped = [self.update(entry) for entry in self._entries.values()]
            if not poll_seconds:
                return
            self._stops.wait(poll_seconds)  # meanwhile, the last requests to a dropped version end
            if any(have_dropped):
                _return_memory()

    def close(self, seconds: float) -> bool:
        """Stops the thread, and returns whether it stopped within `seconds`."""
        self._stops.set()
        self._thread.join(seconds)
        self._temporary.cleanup()
        return not self._thread.is_alive()

    def _export(self, entry: Entry) -> None:
        """Exports a checkpoint to serve it; without a task, it guesses [MASK]."""
        source = SourceConfig(checkpoint=entry.folder)
        checkpoint, task, config = export_source.read_source(source)
        if task is None:
            source = dataclasses.replace(source, kind="fill_mask")
        model = export_source.choose(ExportConfig(source=source), checkpoint, task, config)
        entry.folder = os.path.join(self._temporary.name, entry.name)
        model_versions.write(model, entry.folder)

    def update(self, entry: Entry) -> bool:
        """Loads wanted versions that are new, then drops versions that are no longer wanted.

        A damaged version is replaced by the next older one. Returns whether it dropped any.
        """
        while True:
            wanted = _list_wanted(entry)
            new = {x: folder for x, folder in wanted.items() if x not in entry.loaded}
            if not new:
                break
            for version, folder in new.items():
                self._load(entry, version, folder)
        kept = {x: model for x, model in entry.loaded.items() if x in wanted}
        if kept and len(kept) < len(entry.loaded):
            for version in entry.loaded.keys() - kept.keys():
                entry.states[version] = State(END)
            entry.loaded = kept
            self._metrics.version.labels(entry.name).set(max(kept))
            return True
        return False

    def _load(self, entry: Entry, version: int, folder: str) -> None:
        entry.states[version] = State(LOADING)
        content = _describe_content(folder)
        try:
            model = served_model.load(entry.name, version, folder)
        except Exception as error:
            # Without the path, because clients see it.
            message = reason(error).replace(folder, f"version {version}")
            entry.states[version] = State(END, "DATA_LOSS", message, content)
            logging.error("%s cannot be served: %s", folder, reason(error))
            return
        entry.loaded = {**entry.loaded, version: model}
        entry.states[version] = State(AVAILABLE)
        self._metrics.version.labels(entry.name).set(max(entry.loaded))
        logging.info("%s, version %d, answers.", entry.name, version)


def _return_memory() -> None:
    """Returns the memory of a dropped version to the system."""
    gc.collect()  # TensorFlow functions reference each other
    with contextlib.suppress(OSError, AttributeError):  # glibc would keep the memory
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def _list_versions(folder: str) -> dict[int, str]:
    """Returns {version: folder} for a folder of versions or of a single version."""
    if tf.io.gfile.exists(os.path.join(folder, saved_model.GRAPH)):
        name = os.path.basename(os.path.abspath(folder))
        return {int(name) if name.isdigit() else 1: folder}
    return {x: os.path.join(folder, str(x)) for x in model_versions.list_versions(folder)}


def _describe_content(folder: str) -> list[tuple[str, int, int]]:
    """Returns the name, size and time of each file; empty if the folder is being removed."""
    with contextlib.suppress(tf.errors.OpError):
        paths = [os.path.join(folder, name) for name in files.list_files(folder)]
        stats = [tf.io.gfile.stat(path) for path in paths]
        return [(path, x.length, x.mtime_nsec) for path, x in zip(paths, stats, strict=True)]
    return []


def _is_sound(state: State | None, folder: str) -> bool:
    """Whether loading a version has not failed, or its folder has changed since."""
    return not state or state.code == "OK" or state.content != _describe_content(folder)


def _list_wanted(entry: Entry) -> dict[int, str]:
    sound = {
        version: folder
        for version, folder in _list_versions(entry.folder).items()
        if _is_sound(entry.states.get(version), folder)
    }
    wanted = entry.wanted or sorted(sound)[-entry.latest :]
    return {version: sound[version] for version in wanted if version in sound}
