"""Files of arrays: what safetensors itself makes of them, and what cannot be stored."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.numpy import load

from framenest.cache.archive import pack, unpack
from framenest.errors import StoreError

KINDS = ["?", "u1", "i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"]
ARRAYS = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"),
    st.sampled_from(KINDS).flatmap(
        lambda kind: arrays_of.arrays(kind, arrays_of.array_shapes(min_dims=0, min_side=0, max_dims=3))
    ),
    max_size=4,
)


def assert_the_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


@given(ARRAYS)
def test_safetensors_reads_what_is_packed(arrays):
    data = pack({"format": 1}, arrays)
    assert_the_same(load(data), arrays)
    assert_the_same(unpack(data)[1], arrays)


def test_big_endian_arrays_come_back_with_the_same_values():
    _, found = unpack(pack({}, {"x": np.arange(3, dtype=">i4")}))
    assert found["x"].tolist() == [0, 1, 2]


def test_what_cannot_be_kept_is_told():
    with pytest.raises(StoreError, match="arrays of complex128 cannot be stored"):
        pack({}, {"x": np.zeros(2, complex)})
