"""Strategies of bytes: mutated files of every format, with checksums that fit."""

import bz2
import functools
import gzip
import io
import json
import lzma
import os
import pickle
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

_LIES = [0, 1, 7, 2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**64 - 1, -1, -(2**63)]


@st.composite
def mutated(draw: Any, content: bytes) -> bytes:
    """The bytes as they are, cut, flipped, doubled, or others."""
    data = bytearray(content)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 12))
        match draw(st.integers(0, 3)):
            case 0:
                data[place : place + length] = draw(st.binary(max_size=length))
            case 1 if place < len(data):
                data[place] ^= 1 << draw(st.integers(0, 7))
            case 2:
                data[place:place] = data[place : place + 40 * length]
            case 3:
                del data[place : draw(st.sampled_from([place + length, len(data)]))]
    return bytes(data)


@st.composite
def mutated_safetensors(draw: Any, content: bytes) -> bytes:
    """Headers that lie about types, shapes, places and their own length."""
    size = struct.unpack("<Q", content[:8])[0]
    header, body = json.loads(content[8 : 8 + size]), content[8 + size :]
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(sorted(header)))
        if not isinstance(header[name], dict) or name == "__metadata__":
            header[name] = draw(st.sampled_from([None, 3, [], {}, {"x": 1}]))
            continue
        key = draw(st.sampled_from(["dtype", "shape", "data_offsets", "more"]))
        number = st.sampled_from(_LIES) | st.integers(0, len(body))
        header[name][key] = draw(
            st.sampled_from(["F16", "BF16", "F64", "I8", "BOOL", "F8_E4M3", "x", ""])
            if key == "dtype"
            else st.lists(number, max_size=3) | st.sampled_from([None, "x", {}])
        )
    encoded = json.dumps(header).encode()
    length = draw(st.just(len(encoded)) | st.sampled_from([x for x in _LIES if x >= 0]))
    made = struct.pack("<Q", length) + encoded + body
    return made if draw(st.booleans()) else draw(mutated(made))


@st.composite
def mutated_tar(draw: Any, content: bytes) -> bytes:
    """Headers that lie, with their checksum; compressed or not."""
    data = bytearray(content)
    if draw(st.booleans()):
        field, size = draw(st.sampled_from([(100, 8), (124, 12), (156, 1), (345, 155), (0, 100)]))
        value = draw(st.binary(max_size=size) | st.sampled_from([b"77777777777\0", b"\x80", b"S"]))
        data[field : field + len(value[:size])] = value[:size]
        data[148:156] = b" " * 8
        data[148:156] = b"%06o\0 " % sum(data[:512])
    made = bytes(data) if draw(st.booleans()) else draw(mutated(bytes(data)))
    return gzip.compress(made, 1) if draw(st.booleans()) else made


@st.composite
def compressed(draw: Any, lines: list[bytes], suffix: str) -> bytes:
    content = b"\n".join(lines)
    if suffix.endswith(".gz"):
        content = gzip.compress(content, 1)
    elif suffix == ".xz":
        content = lzma.compress(content, preset=0)
    elif draw(st.integers(0, 9)) == 0:
        content = bz2.compress(content, 1)
    return draw(mutated(content))


TRACE = Path(tempfile.gettempdir(), f"a_pickle_was_run_by_{os.getpid()}")


class _Runs:
    """A pickle that would make a folder."""

    def __reduce__(self) -> Any:
        return os.mkdir, (str(TRACE),)


@functools.cache
def _torch_files() -> list[bytes]:
    import torch

    values = [
        {"a": torch.zeros(3, 2), "b": torch.ones(4, dtype=torch.bfloat16)},
        {"a": torch.as_strided(torch.zeros(1), (1 << 40,), (0,))},
        [torch.zeros(2)],
        {"a": torch.zeros(2).to_sparse()},
    ]
    made = []
    for value in values:
        for is_zip in (True, False):
            content = io.BytesIO()
            torch.save(value, content, _use_new_zipfile_serialization=is_zip)
            made.append(content.getvalue())
    made += [pickle.dumps(_Runs()), pickle.dumps({"a": 3}), b""]
    made.append(_compress(made[0], b""))
    return made


def _compress(content: bytes, more: bytes) -> bytes:
    """The same zip archive with its members compressed, and `more` bytes in one of them."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(result, "w") as new:
        for name in old.namelist():
            body = old.read(name) + (more if name.endswith("data/0") else b"")
            new.writestr(name, body, zipfile.ZIP_DEFLATED, 1)
    return result.getvalue()


@st.composite
def pickles(draw: Any) -> bytes:
    content = draw(st.sampled_from(_torch_files()))
    return draw(mutated(content))
