"""Scans of bytes as scans of words: those of four neighbouring columns combine at once (on_words.cuh)."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import NamedTuple

from cuscan.dtypes import DTYPES, EXACT, DType
from cuscan.kept import MOST
from cuscan.operators import OPERATORS, Monoid
from cuscan.planning.accesses import WORD
from cuscan.request import ScanRequest
from cuscan.request.kind import CallKind
from cuscan.request.layout import Dimension, Layout
from cuscan.specs import new_tuple

LEAST = 2  # words of a row


class OnWords(NamedTuple):
    """A request whose columns are words, and its layout.

    `lacking`: bytes that the last word of a row lacks. `aligned`: no word lacks any, and all are aligned to their size.
    """

    request: ScanRequest
    layout: Layout
    lacking: int
    aligned: bool


def on_words(request: ScanRequest, layout: Layout) -> OnWords | None:
    """Return a scan across lines as one of words, or None.

    There is no carry. Values and results are bools or integers of one byte, of one dtype, and contiguous along the same
    axis, of `LEAST` words or more; so is a mask, unless it holds for all columns, as segments do. These arrays change
    from step to step, and go backward in memory along no other axis.
    """
    if not _kind_on_words(request.kind, False) or request.row_initial or request.last or request.carry_in:
        return None
    value, result, mask, flags = layout.arrays[:4]
    assert value and result
    column, *rest = layout.others
    across = 3 if mask and column.strides[2] else 2  # arrays of words
    if column.strides[:across] != (1,) * across or column.size < LEAST * WORD or (flags and column.strides[3]):
        return None
    stands_still = not (layout.axis.strides[0] and (across == 2 or layout.axis.strides[2]))
    if stands_still or not _ahead(rest, across):
        return None
    kind = _kind_on_words(request.kind, across > 2)
    assert kind
    lacking = -column.size % WORD
    places = lacking | value.address + layout.offsets[0] | result.address + layout.offsets[1]
    for dim in (layout.axis, *rest):
        places |= dim.strides[0] | dim.strides[1]
    arrays = (value._replace(dtype=kind.values[0]), result._replace(dtype=kind.values[0]))
    steps, behind = (WORD,) * across + column.strides[across:], layout.arrays[2:]
    if across > 2:
        assert mask
        behind = (mask._replace(dtype=_word(DTYPES["bool"])), *behind[1:])
    others = (new_tuple(Dimension, (-(-column.size // WORD), steps)), *rest)
    return OnWords(
        request._replace(kind=kind, values=arrays[:1], results=arrays[1:]),
        layout._replace(arrays=(*arrays, *behind), others=others),
        lacking,
        places % WORD == 0,
    )


def are_words(kind: CallKind) -> bool:
    """Return whether the values of a kind of call are words."""
    return kind.values[0].name not in DTYPES


def _ahead(dims: list[Dimension], arrays: int) -> bool:
    return all([min(dim.strides[:arrays]) >= 0 for dim in dims])


@functools.lru_cache(MOST)
def _kind_on_words(kind: CallKind, masked: bool) -> CallKind | None:
    """Return a kind of call with words in place of its items, or None. It is another kind if masks are words, too."""
    dtypes = {*kind.values, *kind.results}
    dtype = kind.values[0]
    simple = len(kind.values) == len(kind.results) == len(dtypes) == 1 and OPERATORS.get(kind.op.name) is kind.op
    if not simple or dtype.kind not in EXACT or dtype.itemsize > 1 or kind.returns_carry:
        return None
    word = _word(dtype)
    return replace(kind, op=_operator(kind.op, dtype), values=(word,), results=(word,))


@functools.cache
def _word(dtype: DType) -> DType:
    return replace(dtype, name=f"word<{dtype.cpp}>", itemsize=WORD)


@functools.cache
def _operator(op: Monoid, dtype: DType) -> Monoid:
    return replace(op, name=f"{op.name} of {_word(dtype)}", functor=f"OnWords<{op.functor}, {dtype.cpp}>")
