"""The file format of cache entries and saved indexes: arrays, a JSON header and a checksum.

It is a safetensors file. Cache entries also hold their key, so that a misplaced file is detected. Features
and vectors can be memory-mapped; all other entries are compressed, which saves 44 % of the bytes per video
without a scorer, 34 % with `tags` (benchmarks/storage.py).
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from framenest.cache.hashes import PIECE_BYTES, buffer_hash
from framenest.errors import StoreError
from framenest.frames import Array

ENTRY_FORMAT = "3"  # entries of another format count as missing
# Array types by their safetensors names.
_TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
_TYPE_NAMES = {np.dtype(kind): name for name, kind in _TYPES.items()}


class DamagedFile(Exception):
    """The checksum does not match, or the entry belongs to another key."""


class OtherFormat(Exception):
    """The entry was written by another version of Framenest."""


def pack(header: Mapping[str, Any], arrays: Mapping[str, Array], *, key: str | None = None) -> bytes:
    """A header of JSON values and named arrays as bytes with a checksum. Equal values give equal bytes.

    key: of a cache entry; None for a standalone file. StoreError if an array is not of numbers or Booleans.

    >>> header, arrays = unpack(pack({"format": 1}, {"x": np.arange(3)}))
    >>> header["format"], arrays["x"].tolist()
    (1, [0, 1, 2])
    """
    return b"".join(pack_pieces(header, arrays, key=key))


def pack_pieces(
    header: Mapping[str, Any], arrays: Mapping[str, Array], *, key: str | None = None
) -> list[bytes | memoryview]:
    """`pack` without copying the arrays: a description, then each array."""
    text = json.dumps(header, sort_keys=True)  # ASCII, since a path may hold bytes that are not UTF-8
    stored = {name: _little_endian(array) for name, array in sorted(arrays.items())}
    bound = {} if key is None else {"entry": ENTRY_FORMAT, "key": key}
    metadata = {"header": text, "checksum": _checksum(bound, text, stored), **bound}
    if key is not None and not key.startswith(("features/", "vectors/")):
        recipes = {}
        for name, array in stored.items():
            stored[name], recipes[name] = _compress(array)
        metadata["packed"] = json.dumps(recipes)
    # safetensors' own writer copies every array twice and does not fix the order of the metadata.
    described: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    pieces, end = [], 0
    for name, array in sorted(stored.items(), key=lambda item: (-item[1].itemsize, item[0])):
        start, end = end, end + array.nbytes
        dtype, shape = _TYPE_NAMES[array.dtype], list(array.shape)
        described[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        pieces.append(array.reshape(-1).view(np.uint8).data)
    description = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    description += b" " * (-len(description) % 8)  # keeps arrays aligned
    return [len(description).to_bytes(8, "little") + description, *pieces]


def unpack(
    data: bytes | mmap.mmap, *, key: str | None = None, checked: bool = True
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and arrays that `pack` was given.

    Uncompressed arrays are views of `data`: those of a memory map stay on disk until they are used, if the
    checksum is not `checked`. Raises DamagedFile and OtherFormat.
    """
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        described = json.loads(data[8:start])
        metadata = described.pop("__metadata__")
        text, checksum = metadata["header"], metadata["checksum"]
        if start + max((one["data_offsets"][1] for one in described.values()), default=0) != len(data):
            raise ValueError("its length does not match its header")
        arrays = {name: _view(data, start, one) for name, one in described.items()}
        for name, recipe in json.loads(metadata.get("packed", "{}")).items():
            arrays[name] = _decompress(arrays[name], *recipe)
    except Exception as error:  # a damaged header can raise almost anything
        raise DamagedFile(f"not a Framenest file, or cut short ({error})") from error
    bound = {name: metadata[name] for name in ("entry", "key") if name in metadata}
    if key is not None and bound.get("entry") != ENTRY_FORMAT:
        raise OtherFormat  # its checksum may also be computed differently
    if checked and checksum != _checksum(bound, text, arrays):
        raise DamagedFile("its checksum does not match")
    if key is not None and bound.get("key") != key:
        raise DamagedFile(f"it holds the entry {bound.get('key')} instead")
    header: dict[str, Any] = json.loads(text)
    return header, arrays


def unpack_header(data: bytes | mmap.mmap, *, key: str) -> dict[str, Any]:
    """The header of an entry, from its first bytes. Raises as `unpack`, but the checksum is not verified."""
    try:
        described = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata = described["__metadata__"]
        if metadata["entry"] != ENTRY_FORMAT:
            raise OtherFormat
        if metadata["key"] != key:
            raise ValueError(f"it holds the entry {metadata['key']} instead")
        header: dict[str, Any] = json.loads(metadata["header"])
        return header
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"not a Framenest file, or cut short ({error})") from error


def _compress(array: Array) -> tuple[Array, tuple[str, tuple[int, ...], str]]:
    """The array deflated after a filter, and the arguments that `_decompress` needs.

    Images (n, h, w, c) become differences along the width. In other arrays, the first bytes of all
    numbers come first, then the second bytes, and so on.
    """
    if array.dtype == np.uint8 and array.ndim == 4:
        kind, filtered = "across", np.diff(array, axis=2, prepend=np.uint8(0))
    else:
        kind = "bytes"
        filtered = np.ascontiguousarray(array.reshape(-1).view(np.uint8).reshape(-1, array.itemsize).T)
    deflated = zlib.compress(filtered.data if filtered.size else b"", level=1)
    return np.frombuffer(deflated, np.uint8), (array.dtype.str, array.shape, kind)


def _decompress(deflated: Array, dtype: str, shape: tuple[int, ...], kind: str) -> Array:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    data = zlib.decompressobj().decompress(deflated.tobytes(), size + 1)  # bounds a decompression bomb
    if len(data) != size or kind not in ("across", "bytes"):
        raise ValueError(f"{len(data)} bytes of {size}, filter {kind!r}")
    flat = np.frombuffer(data, np.uint8)
    if kind == "across":
        return np.cumsum(flat.reshape(shape), axis=2, dtype=np.uint8)
    restored: Array = np.ascontiguousarray(flat.reshape(np.dtype(dtype).itemsize, -1).T).view(dtype)
    return restored.reshape(shape)


def _view(data: bytes | mmap.mmap, start: int, described: Mapping[str, Any]) -> Array:
    first, end = described["data_offsets"]
    dtype, shape = np.dtype(_TYPES[described["dtype"]]), described["shape"]
    count = math.prod(shape)
    if end - first != count * dtype.itemsize:
        raise ValueError("an array's size does not match its shape")
    if not count:
        return np.zeros(shape, dtype)
    return np.frombuffer(data, dtype, count, start + first).reshape(shape)


def _little_endian(array: Array) -> Array:
    dtype = array.dtype.newbyteorder("<")
    if dtype not in _TYPE_NAMES:
        raise StoreError(f"arrays of {array.dtype} cannot be stored")
    return np.asarray(array, dtype=dtype, order="C")


def _checksum(bound: Mapping[str, str], text: str, arrays: Mapping[str, Array]) -> str:
    digest = hashlib.blake2b(f"{json.dumps(bound)}\0".encode() if bound else b"", digest_size=16)
    digest.update(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        # Features may be hundreds of megabytes: use several cores.
        digest.update(buffer_hash(data).encode() if bound and len(data) > PIECE_BYTES else data)
    return digest.hexdigest()
