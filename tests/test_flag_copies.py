"""Flags that lie across the rows that are scanned: which of them are copied, and the copies of the simulated kernel."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
import simulator
from copied_flags import ACROSS, FEWEST, GPU, Across, check_copy, copied, values_for
from plans import planned, request
from simulator import assert_same, prepare
from views import view

import cuscan
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.planning.config import CopyConfig
from cuscan.planning.preparations import preparations, prepared

needs_compiler = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)
SHAPE = (1024, 2048)
C_ORDER = (1, 1024)  # strides of flags in C order beside the transpose of an array


def roles(x: Any = None, flags: Any = None, role: str = "mask", **call: Any) -> list[str]:
    """The roles of the arrays that are copied."""
    x = view(SHAPE) if x is None else x
    flags = view(SHAPE, "bool", C_ORDER) if flags is None else flags
    beside = {"mask": flags} if role == "mask" else {"segments": (role, flags)}
    return [made.role for made in preparations(request(x, **beside, **call), GPU)]


def test_flags_are_copied_where_rows_are_contiguous_in_the_values_and_not_in_them():
    assert roles() == ["mask"] and roles(role="reset") == ["reset"] and roles(reverse=True) == ["mask"]
    assert roles(flags=view(SHAPE, "bool")) == []
    assert roles(flags=view(SHAPE, "bool", (0, 1))) == roles(flags=view(SHAPE, "bool", (1, 0))) == []
    assert roles(x=view(SHAPE, strides=C_ORDER)) == []  # along the axis both lie across
    assert roles(flags=view(SHAPE, "int64", C_ORDER), role="keys") == []


def test_flags_are_copied_where_they_are_contiguous_along_no_axis_of_a_tile():
    shape = (128, 96, 128)
    orders = {"rows": (1, 2, 0), "the axis": (0, 2, 1), "columns": (1, 0, 2)}  # the fastest axis comes last
    for name, order in orders.items():
        strides = [0, 0, 0]
        strides[order[2]], strides[order[1]], strides[order[0]] = 1, shape[order[2]], shape[order[2]] * shape[order[1]]
        flags = view(shape, "bool", tuple(strides))
        assert roles(view(shape), flags, axis=1) == (["mask"] if name == "rows" else [])
    turned = view(shape, strides=(1, 128 * 128, 128))  # values contiguous along axis 0, results along axis 2
    along_values = view(shape, "bool", (1, 128 * 128, 128))
    assert roles(turned, along_values, axis=1, out=view(shape)) == []


def test_flags_are_copied_though_one_of_two_values_lies_as_they_do():
    values = view(SHAPE), view(SHAPE, strides=C_ORDER)
    assert roles(values, role="reset", op=LINEAR_RECURRENCE, out=view(SHAPE)) == ["reset"]


def test_short_rows_alone_are_copied_as_one():
    for length, strides in ((40, (48 * 9, 48, 1)), (4, (48, 4, 1))):  # 36 flags are 48 bytes apart, as 40 are
        shape = (8192, 9, length)
        asked = request(view(shape), mask=view(shape, "bool", (1, 8192 * length, 8192)))
        with mock.patch(FEWEST, 0):
            assert prepared(asked, GPU).mask.strides == strides


def test_few_flags_are_not_copied_nor_short_or_close_rows():
    assert roles(view((1023, 1024)), view((1023, 1024), "bool", (1, 1023))) == []
    for lines, length, gap in ((2**16, 31, 0), (7, 2**18, 33), (2**15, 32, 0), (8, 2**17, 24)):
        flags = view((lines, length), "bool", (1, lines + gap))
        assert roles(view((lines, length)), flags) == (["mask"] if length >= 32 and lines >= 8 else [])
    for apart in (15, 16):
        flags = view((15, 2**17), "bool", (1, apart))
        assert roles(view((15, 2**17)), flags) == (["mask"] if apart >= 16 else [])
    assert roles(flags=view(SHAPE, "bool", (4, 4096))) == ["mask"]
    assert roles(flags=view(SHAPE, "bool", (5, 5120))) == []
    assert roles(view((2**17, 16)), view((2**17, 16), "bool", (1, 2**17))) == []


def test_flags_that_overlap_or_fill_much_memory_are_not_copied():
    shape = (2048, 2048)
    assert roles(view(shape), view(shape, "bool", (1, 64))) == []
    for length, found in ((2**20, ["mask"]), (2**20 + 4, [])):
        assert roles(view((1024, length)), view((1024, length), "bool", (1, 1024))) == found


def test_without_elements_nothing_precedes_the_scan():
    x, flags = np.ones((2048, 2048, 0)), np.ones((0, 2048, 2048), bool).T
    for given in ({"mask": flags}, {"offsets": np.array([0, 7, 2048])}):
        made = cuscan.explain(cuscan.cumsum, x, axis=1, arch=90, **given)
        assert made.preparations == [] and made.workspace_bytes == 0


def test_the_scan_is_that_of_flags_in_the_order_of_the_values():
    x, flags = view(SHAPE), view(SHAPE, "bool", C_ORDER, pointer=3)
    copy = view(SHAPE, "bool", (SHAPE[1] + 16, 1))
    assert planned(x, mask=flags).config == planned(x, mask=copy).config
    assert planned(x, segments=("reset", flags)).config == planned(x, segments=("reset", copy)).config
    assert prepared(request(x), GPU).mask is None


def test_a_plan_by_hand():
    flags = view((60, 300, 7, 4000), "bool", (1, 7 * 4096 * 60, 4096 * 60, 60), pointer=5)
    asked = request(view((60, 300, 7, 4000)), mask=flags)
    [made] = preparations(asked, GPU)
    span = 59 + (299 * 7 + 6) * 4096 * 60 + 3999 * 60 + 1
    pitch = 4000 + 16  # an odd multiple of 16 bytes
    others = (7 * 300, 4096 * 60, pitch), (1, 0, 0), (1, 0, 0), (1, 0, 0)
    tiles = 1, -(-4000 // 512)  # of 60 by 512 flags
    assert made.words == (60, 1, 2100 * pitch, 4000, 60, 1, *sum(others, ()), *tiles, 15, 128, 0, span)
    assert (made.config, made.grid, made.nbytes) == (CopyConfig(), 8 * 2100, 60 * 2100 * pitch)
    assert prepared(asked, GPU).mask.strides == (2100 * pitch, 7 * pitch, pitch, 1)


def test_tiles_are_lower_where_there_are_few():
    for length, high in ((1 << 21, 320), (1 << 20, 256), (1 << 17, 32), (1 << 16, 32)):
        [made] = preparations(request(view((22, length)), mask=view((22, length), "bool", (1, 22))), GPU)
        assert made.words[-4:-2] == (6, high) and made.grid == -(-length // (4 * high))


def test_axes_with_one_flag_are_not_copied():
    made, strides = copied(ACROSS["one for some"])
    assert made.nbytes == 40 * 80 and strides == (0, 80, 0, 1)


@needs_compiler
@pytest.mark.parametrize("name", ACROSS)
def test_a_copy_has_the_flags_in_their_places(name):
    check_copy(ACROSS[name])


@needs_compiler
@pytest.mark.parametrize("axis, wanted", [(1, ["mask", "reset"]), (0, [])])
def test_panels_read_copies_of_flags_along_a_third_axis(axis, wanted):
    case = Across((17, 70, 36), (1, 2, 0))
    x, call = values_for(case), {"mask": case.flags(), "reset": case.flags(0.1)}
    with mock.patch(FEWEST, 0):
        simulation = prepare(x, axis=axis, **call)
    assert [made.role for made in simulation.preparations] == wanted
    assert_same(simulation.run(1), cuscan.cumsum(x, axis=axis, **call))


@needs_compiler
@pytest.mark.parametrize("name", ACROSS)
def test_scans_with_copied_flags_are_right(name):
    case = ACROSS[name]
    x, mask, reset = values_for(case), case.flags(), case.flags(0.1)
    for call in ({"mask": mask}, {"reset": reset}, {"mask": mask, "reset": reset, "reverse": True}):
        with mock.patch(FEWEST, 0):
            simulation = prepare(x, axis=-1, **call)
        assert [made.role for made in simulation.preparations] == [role for role in ("mask", "reset") if role in call]
        assert_same(simulation.run(1), cuscan.cumsum(x, axis=-1, **call))
