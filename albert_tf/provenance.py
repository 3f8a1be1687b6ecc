"""Names where a model comes from, for logs and cards: without keys and folders of this machine."""

import os
import re
import shlex
import sys

from albert_tf import files

# Beside a file that was downloaded by its URL.
DOWNLOAD = "download.json"


def find_name(path: str) -> str:
    """Returns by which name or URL a local path was downloaded; of another path, itself."""
    if match := re.search(r"/models--(.+?)--([^/]+)/snapshots/([^/]+)", path):
        return "{}/{}@{}".format(*match.groups())
    note = os.path.join(os.path.dirname(path), DOWNLOAD)
    return str(files.find_object(note, DOWNLOAD).get("url", path))


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
