"""Says where a model comes from, for logs and cards, without keys or local folders."""

import os
import re
import shlex
import sys

from albert_tf import files

# Next to a file that was downloaded from a URL.
DOWNLOAD = "download.json"


def find_name(path: str) -> str:
    """Returns the name or URL from which a local path was downloaded, or the path itself."""
    if match := re.search(r"/models--(.+?)--([^/]+)/snapshots/([^/]+)", path):
        return "{}/{}@{}".format(*match.groups())
    note = os.path.join(os.path.dirname(path), DOWNLOAD)
    return str(files.find_object(note, DOWNLOAD).get("url", path))


def strip_keys(text: str) -> str:
    """Removes possible keys from URLs in a text: user, password, query and fragment.

    For logs, cards and files. The query is only removed from web addresses: in other schemes, ? is
    part of a pattern.
    """
    text = re.sub(r"(https?://[^\s'\"?#]*)[?#][^\s'\"]*", r"\1", text)
    return re.sub(r"(\w://)[^\s'\"/]*@", r"\1", text)


def describe_command() -> str:
    """Returns this process's command as a user types it, without keys, for logs and cards."""
    path, *words = sys.argv
    folder, name = os.path.split(path)
    program = f"bin/{name}" if os.path.basename(folder) == "bin" else name
    return strip_keys(f"{program} {shlex.join(words)}").strip()


def name_for_card(path: str) -> str:
    """Returns a path for a card, without local parent folders.

    For a checkpoint, the name of its run stays. Downloads keep their name or URL.
    """
    name = find_name(path)
    pattern = r"([^/]+/)?((best|kept)/)?model\.ckpt[^/]*$|[^/]+/*$"
    match = re.search(pattern, name) if os.path.isabs(name) else None
    return match[0].rstrip("/") if match else name


def command_for_card(command: str) -> str:
    """Returns a command with paths from `name_for_card`; values may be lists."""
    words = shlex.split(command)
    return shlex.join(
        re.sub(r"(?<![^=,])/[^,]+", lambda match: name_for_card(match[0]), word) for word in words
    )
