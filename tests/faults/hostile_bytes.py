"""Strategies of bytes: mutated files."""

import bz2
import gzip
import json
import lzma
import struct
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
def compressed(draw: Any, lines: list[bytes], suffix: str) -> bytes:
    content = b"\n".join(lines)
    if suffix.endswith(".gz"):
        content = gzip.compress(content, 1)
    elif suffix == ".xz":
        content = lzma.compress(content, preset=0)
    elif draw(st.integers(0, 9)) == 0:
        content = bz2.compress(content, 1)
    return draw(mutated(content))
