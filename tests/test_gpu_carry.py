"""Carries on a GPU: chunks compared with the whole, graphs that feed the carry back, speed beside scans without."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from gpu import LIBRARIES, assert_same, need, numbers

import cuscan

pytestmark = pytest.mark.gpu
both_libraries = pytest.mark.parametrize("name", LIBRARIES)

SHAPES = {
    "1-D": ((3_000_000,), 0),
    "rows": ((5, 400_000), 1),
    "panels": ((90_000, 37), 0),
    "strips": ((9000, 1024), 0),
}
CALLS = {
    "sums": {"op": "add"},
    "backwards": {"op": "xor", "reverse": True},
    "exclusive": {"op": "max", "exclusive": True, "initial": 5},
    "keys": {"op": "add", "keys": True},
}


def chunks_of(n, seed):
    cuts = [0, *sorted(np.random.default_rng(seed).integers(0, n + 1, 5)), n]
    return list(itertools.pairwise(cuts))


@both_libraries
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("shape", SHAPES)
def test_chunks_give_the_whole(name, shape, call):
    library, (shape, axis), call = need(name), SHAPES[shape], dict(CALLS[call])
    x, n = library.device(numbers(shape, "int32")), shape[axis]
    if "keys" in call:
        call["keys"] = library.device(np.sort(np.random.default_rng(0).integers(0, 50, n)))
    whole, behind = cuscan.scan(x, axis=axis, return_carry=True, **call)
    carry, parts = None, []
    cuts = chunks_of(n, len(shape))
    for first, end in reversed(cuts) if call.get("reverse") else cuts:
        here = tuple(slice(first, end) if a == axis else slice(None) for a in range(len(shape)))
        keys = {"keys": call["keys"][first:end]} if "keys" in call else {}
        part, carry = cuscan.scan(x[here], axis=axis, carry=carry, return_carry=True, **{**call, **keys})
        parts.append((here, part))
    for here, part in parts:
        assert library.equal(part, whole[here])
    for one, other in zip(*(c if isinstance(c, tuple) else (c,) for c in (carry, behind)), strict=True):
        assert library.equal(one, other)


@both_libraries
def test_a_captured_chunk_goes_on_with_what_it_handed_out(name):
    """The graph copies its outgoing carry to the incoming one, so that each replay takes the next chunk."""
    library, stream = need(name), need(name).stream()
    data = numbers((3, 50_000), "int32")
    chunk, carry = library.device(data[:, :10_000].copy()), library.device(np.zeros(3, np.int64))

    def call():
        result, behind = cuscan.scan(chunk, carry=carry, return_carry=True)
        carry[...] = behind
        return result

    call()
    library.synchronize()
    carry[...] = 0
    library.synchronize()
    graph, result = library.capture(call, stream)
    carry[...] = 0
    library.synchronize()
    expected = cuscan.scan(data)
    for first in range(0, 50_000, 10_000):
        with library.on(stream):
            chunk[...] = library.device(data[:, first : first + 10_000].copy())
        library.replay(graph, stream)
        stream.synchronize()
        assert_same(result, expected[:, first : first + 10_000])


@both_libraries
def test_totals_are_the_carry(name):
    library = need(name)
    for shape, axis in SHAPES.values():
        for call in ({}, {"reverse": True}, {"mask": library.device(numbers(shape, "bool"))}):
            x = library.device(numbers(shape))
            assert library.equal(
                cuscan.total(x, axis=axis, **call), cuscan.scan(x, axis=axis, return_carry=True, **call)[1]
            )
