"""Downloads checkpoints by the name of a Hugging Face repository, and uploads folders."""

import os
import re
from typing import Any

from absl import logging

from albert_tf import files
from albert_tf import lazy_tensorflow as tf
from albert_tf.config import MODEL_TYPES
from albert_tf.errors import UserError, find_remedy, reason, require, require_choice

# A repository, optionally with a weights file and a revision.
_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*/[\w.-]+)(/(?P<file>[\w.-]+\.(?:bin|h5)))?(@(?P<revision>.+))?",
    re.ASCII,
)
# The files that the formats read; numbered folders belong to sentence-transformers.
_SETTINGS = [
    "config*.json", "modules.json", "sentence_*_config.json", "[0-9]_*/*.json", "*.index.json",
    "tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "*.model", "*.vocab",
    "vocab*.txt", "0_*/vocab*.txt", "symbols.txt", "cleaning.json", "albert_tf.json",
    files.HASHES,
]  # fmt: skip
_CONFIGS = ["config.json", "0_Transformer/config.json"]
_SAFETENSORS = ["model*.safetensors", "[0-9]_*/model*.safetensors"]
KERAS_HUB = "is a preset of Keras Hub, which cannot be read. Use the model's Hugging Face folder."


def resolve(source: str) -> str:
    """Returns the local path of a checkpoint; downloads a repository only once.

    A name is OWNER/NAME or OWNER/NAME@REVISION, with weights in safetensors. Other weights (.bin,
    .h5) are read if the file is given: OWNER/NAME/pytorch_model.bin. Local paths have precedence,
    but not over hf://OWNER/NAME or https://huggingface.co/OWNER/NAME. Other URLs stay unchanged.

    Raises `UserError` if the download fails, or the repository has an unsupported model.
    """
    name = re.sub(r"^(hf://|https://huggingface\.co/)", "", source)
    match = _NAME.fullmatch(name)
    if match is None or (name == source and any(map(tf.io.gfile.exists, (name, f"{name}.index")))):
        return source
    return _fetch_repository(**match.groupdict())


def _fetch_repository(name: str, file: str | None, revision: str | None) -> str:
    """Returns the folder of a commit in the cache, after checking that it is complete."""
    from huggingface_hub import constants

    logging.info(f"there is no folder {name!r} here: looking for it at {constants.ENDPOINT}")
    stem, suffix = os.path.splitext(file or "")
    weights = [f"{stem}*{suffix}"] if file else _SAFETENSORS
    folder = _fetch_files(name, revision, _CONFIGS, ": it is not a model that can be read here.")
    _check_config(folder, name)  # before downloading gigabytes of another model
    remedy = (
        ". Use another repository or revision; pickled weights are read if you pass the file: "
        f"{name}/pytorch_model.bin."
    )
    folder = _fetch_files(name, os.path.basename(folder), weights, remedy)  # of the same commit
    for path in files.list_files(folder):  # the name of a large file in the cache is its hash
        blob = os.path.realpath(os.path.join(folder, path))
        if len(os.path.basename(blob)) == 64 and files.hash_file(blob) != os.path.basename(blob):
            raise UserError(f"{blob} is damaged. Remove it, and run it again.")
    logging.info(f"{name}: {folder}")
    return folder


def _fetch_files(name: str, revision: str | None, needed: list[str], remedy: str) -> str:
    """Downloads the settings and the files `needed`, patterns of which one must match.

    Raises `UserError`, ending with `remedy`, if the repository has none of them, and for a broken
    link in the cache.
    """
    import huggingface_hub
    from huggingface_hub.utils import filter_repo_objects

    patterns = [*_SETTINGS, *needed]
    try:
        folder = huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=patterns)
    except Exception as error:  # from several libraries without a common class
        raise UserError(_explain(error, name, revision)) from None
    names = [*filter_repo_objects(files.list_files(folder), allow_patterns=patterns)]
    broken = [x for x in names if not os.path.exists(os.path.join(folder, x))]
    if any(filter_repo_objects(names, allow_patterns=needed)) and not broken:
        return folder
    try:
        listed = huggingface_hub.HfApi().list_repo_files(name, revision=os.path.basename(folder))
    except Exception:  # unknown without a network
        listed = needed
    lacking = (broken or needed)[0].replace("*", "")
    if broken or any(filter_repo_objects(listed, allow_patterns=needed)):
        raise UserError(
            f"{name} is incomplete here: {folder} has no {lacking}. Run it again with a network "
            "and without HF_HUB_OFFLINE."
        )
    raise UserError(f"{name} has no {lacking}{remedy}")


def _check_config(folder: str, name: str) -> None:
    path = next(x for x in (os.path.join(folder, x) for x in _CONFIGS) if os.path.exists(x))
    values = files.read_object(path, name)
    require("registered_name" not in values, f"{name} {KERAS_HUB}")
    require_choice(f"{name}: model_type", values.get("model_type", MODEL_TYPES[0]), MODEL_TYPES)


def _explain(error: Any, name: str, revision: str | None) -> str:
    """Returns in one line why a download failed, and the remedy."""
    from huggingface_hub import constants, errors

    is_missing = isinstance(error, errors.LocalEntryNotFoundError)
    cause = (error.__cause__ or error) if is_missing else error
    status = getattr(getattr(cause, "response", None), "status_code", None)
    site, login = constants.ENDPOINT, "log in (`hf auth login`, or HF_TOKEN)"
    start = f"there is nothing at {name!r} here"
    if isinstance(cause, errors.GatedRepoError):
        return f"{name} is gated. Accept its terms at {site}/{name}, and {login}."
    if isinstance(cause, errors.RevisionNotFoundError):
        return f"{name} has no revision {revision!r} at {site}."
    if isinstance(cause, errors.HFValidationError):
        return f"{start}, and a repository cannot have such a name. Correct it."
    if isinstance(cause, errors.RepositoryNotFoundError) or status in (401, 403):
        return f"{start}, and {site} shows you no such repository. Correct the name, or {login}."
    remedy = find_remedy(cause) or "Run it again with a network: downloaded files are kept."
    remedy = files.suggest_path(name) or remedy
    return (
        f"{name!r} is not here, or is incomplete in {constants.HF_HUB_CACHE}, and {site} cannot be "
        f"reached ({reason(cause)}). {remedy}"
    )


def push(folder: str, name: str, *, private: bool) -> None:
    """Uploads a folder as the repository `name`, and creates it if necessary."""
    import huggingface_hub

    try:
        api = huggingface_hub.HfApi()
        url = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=url.repo_id, folder_path=folder)
    except Exception as error:  # as from `snapshot_download`
        raise UserError(
            f"{folder} was written, but not uploaded to {name} ({reason(error)}). Log in (`hf auth "
            f"login`, or HF_TOKEN) with access to that name, then: hf upload {name} {folder}"
        ) from None
    logging.info(f"uploaded to {url}")
