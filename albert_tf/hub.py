"""Downloads checkpoints, by the name of a Hugging Face repository or by a URL; uploads folders."""

import fnmatch
import hashlib
import os
import re
import shlex
import shutil
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import Any

from absl import logging
from tqdm import tqdm

from albert_tf import files
from albert_tf import lazy_tensorflow as tf
from albert_tf.errors import UserError, find_remedy, reason, require

ARCHIVES = (".tar.gz", ".tgz", ".tar")
# A repository, perhaps with a file of weights in it and a revision.
_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*/[\w.-]+)(/(?P<file>[\w.-]+\.bin))?(@(?P<revision>.+))?",
    re.ASCII,
)
# The files that the formats read; the folders with a number are those of sentence-transformers.
_SETTINGS = [
    "config*.json", "modules.json", "sentence_*_config.json", "[0-9]_*/*.json", "*.index.json",
    "tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "*.model", "*.vocab",
    "vocab*.txt", "0_*/vocab*.txt", "symbols.txt", "cleaning.json", "albert_tf.json",
    files.HASHES,
]  # fmt: skip
_CONFIGS = ["config.json", "0_Transformer/config.json"]
_SAFETENSORS = ["model*.safetensors", "[0-9]_*/model*.safetensors"]
KERAS_HUB = "is a preset of Keras Hub, which is not read. Use the model's folder of Hugging Face."
_SECONDS = 60
# Beside a file that was downloaded by its URL.
_NOTE = "download.json"


def resolve(source: str) -> str:
    """Returns the local path of a checkpoint; downloads a repository or a URL, once.

    A name is OWNER/NAME or OWNER/NAME@REVISION, of which weights are read as safetensors. Others
    are read where their file is named: OWNER/NAME/pytorch_model.bin. What exists here has
    precedence, but not over hf://OWNER/NAME or a URL.

    Raises `UserError` if the download fails, or the repository has no ALBERT.
    """
    name = re.sub(r"^(hf://|https://huggingface\.co/)", "", source)
    match = _NAME.fullmatch(name)
    if match is None and source.startswith(("http://", "https://")):
        return _fetch_url(source)
    is_here = name == source and any(map(tf.io.gfile.exists, (name, f"{name}.index")))
    return source if match is None or is_here else _fetch_repository(**match.groupdict())


def find_name(path: str) -> str:
    """Returns by which name or URL a local path was downloaded; of another path, itself."""
    if match := re.search(r"/models--(.+?)--([^/]+)/snapshots/([^/]+)", path):
        return "{}/{}@{}".format(*match.groups())
    note = os.path.join(os.path.dirname(path), _NOTE)
    return files.find_object(note, _NOTE).get("url", path)


def strip_keys(text: str) -> str:
    """Leaves out of the URLs in a text what may be a key: user, password, query and fragment.

    For logs, cards and files. What follows a ? is left out of web addresses alone: of other schemes
    it is a pattern.
    """
    text = re.sub(r"(https?://[^\s'\"?#]*)[?#][^\s'\"]*", r"\1", text)
    return re.sub(r"(\w://)[^\s'\"/]*@", r"\1", text)


def describe_command() -> str:
    """Returns the command of this process as a user types it, for logs and cards; without keys."""
    path, *words = sys.argv
    folder, name = os.path.split(path)
    program = f"bin/{name}" if os.path.basename(folder) == "bin" else name
    return strip_keys(f"{program} {shlex.join(words)}").strip()


def name_for_card(path: str) -> str:
    """Returns a path as a card names it, without the folders of this machine that hold it.

    Of a checkpoint its run stays, too. What was downloaded has its name or URL.
    """
    name = find_name(path)
    pattern = r"([^/]+/)?((best|kept)/)?model\.ckpt[^/]*$|[^/]+/*$"
    match = re.search(pattern, name) if os.path.isabs(name) else None
    return match[0].rstrip("/") if match else name


def command_for_card(command: str) -> str:
    """Returns a command with its paths as `name_for_card` has them; values may be lists."""
    words = shlex.split(command)
    return shlex.join(
        re.sub(r"(?<![^=,])/[^,]+", lambda match: name_for_card(match[0]), word) for word in words
    )


def _fetch_repository(name: str, file: str | None, revision: str | None) -> str:
    import huggingface_hub
    from huggingface_hub import constants

    def fetch(patterns: list[str], revision: str | None) -> str:
        try:
            return huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=patterns
            )
        except Exception as error:  # of several libraries, which have no class in common
            raise UserError(_explain(error, name, revision)) from None

    logging.info(f"there is no folder {name!r} here: it is looked for at {constants.ENDPOINT}")
    stem, suffix = os.path.splitext(file or "")
    weights = [f"{stem}*{suffix}"] if file else _SAFETENSORS
    folder = fetch(_SETTINGS, revision)
    _require_file(folder, name, _CONFIGS, ": it is not a model that is read here.")
    _check_config(folder, name)  # before gigabytes of another model
    folder = fetch([*_SETTINGS, *weights], os.path.basename(folder))  # of the same commit
    remedy = (
        ". Use another repository or revision; pickled weights are read where they are named: "
        f"{name}/pytorch_model.bin."
    )
    _require_file(folder, name, weights, remedy)
    for path in files.list_files(folder):  # the name of a large file in the cache is its hash
        blob = os.path.realpath(os.path.join(folder, path))
        if len(os.path.basename(blob)) == 64 and files.hash_file(blob) != os.path.basename(blob):
            raise UserError(f"{blob} is damaged. Remove it, and run it again.")
    logging.info(f"{name}: {folder}")
    return folder


def _require_file(folder: str, name: str, patterns: list[str], remedy: str) -> None:
    """Raises `UserError` if a snapshot has no file of `patterns`, or a link that points nowhere."""
    import huggingface_hub

    def has_one(names: Iterable[str]) -> bool:
        return any(fnmatch.fnmatch(x, pattern) for x in names for pattern in patterns)

    names = files.list_files(folder)
    wanted = [x for x in names if any(fnmatch.fnmatch(x, y) for y in (*_SETTINGS, *patterns))]
    broken = [x for x in wanted if not os.path.exists(os.path.join(folder, x))]
    if has_one(wanted) and not broken:
        return
    try:
        listed = huggingface_hub.HfApi().list_repo_files(name, revision=os.path.basename(folder))
    except Exception:  # without a network the repository may have one
        listed = patterns
    lacking = (broken or patterns)[0].replace("*", "")
    if broken or has_one(listed):
        raise UserError(
            f"{name} is incomplete here: {folder} has no {lacking}. Run it again with a network "
            "and without HF_HUB_OFFLINE."
        )
    raise UserError(f"{name} has no {lacking}{remedy}")


def _check_config(folder: str, name: str) -> None:
    path = next(x for x in (os.path.join(folder, x) for x in _CONFIGS) if os.path.exists(x))
    values = files.read_object(path, name)
    kind = values.get("model_type", "albert")
    require("registered_name" not in values, f"{name} {KERAS_HUB}")
    require(kind == "albert", f"{name}: model_type is {kind!r}, not 'albert'. Use an ALBERT.")


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
        return f"{start}, and no repository has such a name. Correct it."
    if isinstance(cause, errors.RepositoryNotFoundError) or status in (401, 403):
        return f"{start}, and {site} shows you no such repository. Correct the name, or {login}."
    remedy = find_remedy(cause) or "Run it again with a network: what has come is kept."
    return (
        f"{name!r} is not here, or is incomplete in {constants.HF_HUB_CACHE}, and {site} is out of "
        f"reach ({reason(cause)}). {remedy}"
    )


def _fetch_url(url: str) -> str:
    """Returns the path of a downloaded file, beside which its size and SHA-256 stand."""
    import huggingface_hub

    parts = urllib.parse.urlsplit(url)
    name = os.path.basename(parts.path)
    public = strip_keys(url)
    cache = str(huggingface_hub.cached_assets_path("albert_tf", "checkpoints", "downloads"))
    folder = os.path.join(cache, hashlib.sha256(url.encode()).hexdigest()[:16])
    path = os.path.join(folder, name)
    require(name.endswith(ARCHIVES), f"{public} is no archive. Name one of {', '.join(ARCHIVES)}.")
    with files.locking_folder(cache, waits=True):
        if not os.path.exists(path):  # never came, or the user has removed it
            shutil.rmtree(folder, ignore_errors=True)
            require(
                not huggingface_hub.constants.HF_HUB_OFFLINE,
                f"{public} is not in {cache}, and HF_HUB_OFFLINE is set. Unset it, or name a file.",
            )
            with files.replacing_folder(folder) as temporary:
                size = _download(url, os.path.join(temporary, name))
                files.write_json(os.path.join(temporary, _NOTE), {"url": public, "size": size})
                files.write_hashes(temporary, [name, _NOTE])
    files.check_hashes(folder)
    logging.info(f"{public}: {folder}")
    return path


def _download(url: str, path: str) -> int:
    """Writes the file at a URL to a path; returns the number of its bytes."""
    request = urllib.request.Request(url, headers={"User-Agent": "albert_tf"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer, open(path, "wb") as file:
            size = int(answer.headers.get("Content-Length", 0))
            name = os.path.basename(path)
            with tqdm(total=size or None, unit="B", unit_scale=True, desc=name) as bar:
                while chunk := answer.read(1 << 20):
                    file.write(chunk)
                    bar.update(len(chunk))
            length = file.tell()
    except Exception as error:  # as of `snapshot_download`
        remedy = find_remedy(error) or "Check the address, the network and your rights to it."
        raise UserError(
            f"{strip_keys(url)} cannot be downloaded ({reason(error)}). {remedy}"
        ) from None
    if size not in (0, length):
        raise UserError(
            f"{strip_keys(url)} broke off after {length:,} of {size:,} bytes. Run it again."
        )
    return length


def push(folder: str, name: str, *, private: bool) -> None:
    """Uploads a folder as the repository `name`, which is made if need be."""
    import huggingface_hub

    try:
        api = huggingface_hub.HfApi()
        url = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=url.repo_id, folder_path=folder)
    except Exception as error:  # as of `snapshot_download`
        raise UserError(
            f"{folder} is written, but not uploaded to {name} ({reason(error)}). Log in (`hf auth "
            f"login`, or HF_TOKEN) with rights to that name, then: hf upload {name} {folder}"
        ) from None
    logging.info(f"uploaded to {url}")
