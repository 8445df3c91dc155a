"""Arrays and a JSON header in one self-checking file, written atomically."""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from framenest.cache.hashes import PIECE, buffer_hash
from framenest.errors import StoreError
from framenest.frames import Array

LEVEL = 1
Recipe = tuple[str, tuple[int, ...], str]
"""dtype, shape and filter of an array that was squeezed."""


def squeeze(array: Array) -> tuple[NDArray[np.uint8], Recipe]:
    """The array as compressed bytes, and what `restore` needs to know.

    Pictures (n, h, w, c) of uint8 become differences along the width; of anything else the first bytes
    of all numbers come first, then the second ones, and so on.

    >>> packed, recipe = squeeze(np.arange(1000))
    >>> bool((restore(packed, recipe) == np.arange(1000)).all()), len(packed) < 500
    (True, True)
    """
    array = np.ascontiguousarray(array)
    if array.dtype == np.uint8 and array.ndim == 4:
        kind, filtered = "across", np.diff(array, axis=2, prepend=np.uint8(0))
    else:
        kind = "bytes"
        filtered = np.ascontiguousarray(array.reshape(-1).view(np.uint8).reshape(-1, array.dtype.itemsize).T)
    packed = zlib.compress(filtered.data if filtered.size else b"", LEVEL)
    return np.frombuffer(packed, np.uint8), (array.dtype.str, array.shape, kind)


def restore(packed: NDArray[np.uint8], recipe: Recipe | list[Any]) -> Array:
    """The array that was squeezed. ValueError where the bytes are not those of such an array."""
    name, shape, kind = recipe
    dtype = np.dtype(name)
    size = math.prod(shape) * dtype.itemsize
    machine = zlib.decompressobj()
    try:
        data = machine.decompress(packed.tobytes(), size + 1)  # never more than was promised
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(data) != size:
        raise ValueError(f"{len(data)} bytes of {size}")
    if kind not in ("across", "bytes"):
        raise ValueError(f"no filter {kind!r}")
    flat = np.frombuffer(data, np.uint8)
    if kind == "across":
        return np.cumsum(flat.reshape(shape), axis=2, dtype=np.uint8)
    restored: Array = np.ascontiguousarray(flat.reshape(dtype.itemsize, -1).T).view(dtype).reshape(shape)
    return restored


# The kinds of arrays that Framenest writes, by their names in the file.
_KINDS = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
_NAMES = {np.dtype(kind): name for name, kind in _KINDS.items()}

ENTRY_FORMAT = "3"
"""Of entries in a store; one of another format counts as absent."""


class DamagedFile(Exception):
    """The bytes are not what was written, or not what was asked for."""


class OtherFormat(Exception):
    """An entry of another version of Framenest."""


def pack(
    header: Mapping[str, Any], arrays: Mapping[str, Array], *, key: str | None = None, compress: bool = False
) -> bytes:
    """One self-checking byte string; uncompressed, arrays can be mapped into memory from it.

    key: of an entry in a store; part of the entry, so that it is not taken for another's.

    >>> header, arrays = unpack(pack({"format": 1}, {"x": np.arange(3)}))
    >>> header["format"], arrays["x"].tolist()
    (1, [0, 1, 2])
    """
    return b"".join(packed(header, arrays, key=key, compress=compress))


def packed(
    header: Mapping[str, Any], arrays: Mapping[str, Array], *, key: str | None = None, compress: bool = False
) -> list[bytes | memoryview]:
    """The same in pieces, so that large arrays are not copied once more to be written."""
    text = json.dumps(header, sort_keys=True)  # in ASCII: a path may hold bytes that are no text
    whole = {name: _little_endian(array) for name, array in sorted(arrays.items())}
    bound = {} if key is None else {"entry": ENTRY_FORMAT, "key": key}
    metadata = {"header": text, "checksum": _checksum(bound, text, whole), **bound}
    if compress:
        recipes = {}
        for name, array in whole.items():
            whole[name], recipes[name] = squeeze(array)
        metadata["packed"] = json.dumps(recipes)
    return _laid_out(whole, metadata)


def unpack(data: bytes | mmap.mmap, *, key: str | None = None) -> tuple[dict[str, Any], dict[str, Array]]:
    """The header and arrays of `pack`.

    The arrays are views of `data`: those of a memory-mapped file stay on disk until they are used.

    Args:
        data: What `pack` made.
        key: The key that the entry must have been made with.

    Raises:
        DamagedFile: A byte has changed, or it is the entry of another key.
        OtherFormat: It is an entry of another version.
    """
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        entries = json.loads(data[8:start])
        metadata = entries.pop("__metadata__")
        text, checksum = metadata["header"], metadata["checksum"]
        if start + max((entry["data_offsets"][1] for entry in entries.values()), default=0) != len(data):
            raise ValueError("its length is not what its header says")
        arrays = {name: _view(data, start, entry) for name, entry in entries.items()}
        for name, recipe in json.loads(metadata.get("packed", "{}")).items():
            arrays[name] = restore(arrays[name], recipe)
    except Exception as error:  # what a damaged header makes go wrong has no common base
        raise DamagedFile(f"not a Framenest file, or cut short ({error})") from error
    bound = {name: metadata[name] for name in ("entry", "key") if name in metadata}
    if key is not None and bound.get("entry") != ENTRY_FORMAT:
        raise OtherFormat  # whose checksum may be another, too
    if checksum != _checksum(bound, text, arrays):
        raise DamagedFile("its checksum does not match")
    if key is not None and bound.get("key") != key:
        raise DamagedFile(f"it is the entry of {bound.get('key')}, in the place of this one")
    header: dict[str, Any] = json.loads(text)
    return header, arrays


def _view(data: bytes | mmap.mmap, start: int, entry: Mapping[str, Any]) -> Array:
    first, end = entry["data_offsets"]
    kind = np.dtype(_KINDS[entry["dtype"]])
    count = math.prod(entry["shape"])
    if end - first != count * kind.itemsize:
        raise ValueError("an array's size is not what its shape says")
    if not count:
        return np.zeros(entry["shape"], dtype=kind)
    return np.frombuffer(data, dtype=kind, count=count, offset=start + first).reshape(entry["shape"])


def _little_endian(array: Array) -> Array:
    kind = array.dtype.newbyteorder("<")
    if kind not in _NAMES:
        raise StoreError(f"arrays of {array.dtype} cannot be kept")
    return np.asarray(array, dtype=kind, order="C")


def _laid_out(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """A safetensors file in pieces: its description, then each array, the widest kinds first.

    safetensors' own writer copies every array twice, and leaves the order of the metadata to chance. Here
    equal values are equal files.
    """
    described: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    pieces, end = [], 0
    for name, array in sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0])):
        start, end = end, end + array.nbytes
        described[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
        pieces.append(array.reshape(-1).view(np.uint8).data)
    text = json.dumps(described, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # arrays stay aligned
    return [len(text).to_bytes(8, "little") + text, *pieces]


def _checksum(bound: Mapping[str, str], text: str, arrays: Mapping[str, Array]) -> str:
    digest = hashlib.blake2b(f"{json.dumps(bound)}\0".encode() if bound else b"", digest_size=16)
    digest.update(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\0{name} {array.dtype.str} {array.shape}\0".encode())
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        in_pieces = bound and len(data) > PIECE  # entries of a store hold features, hundreds of megabytes
        digest.update(buffer_hash(data).encode() if in_pieces else data)
    return digest.hexdigest()
