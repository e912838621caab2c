"""Small cases of every kind, for the tests of the benchmark."""

from __future__ import annotations

from cuscan.bench.cases import Case
from cuscan.bench.layouts import VIEWS, Layout
from cuscan.bench.machine import Host
from cuscan.bench.segments import KINDS, SPLITS
from cuscan.planning.config import Target

HOST = Host()
H200 = Target(90, 132)
CASES = [
    Case((300,)),
    Case((7, 300), axis=1, reverse=True, exclusive=True),
    Case((300, 3, 5), axis=0, masked=True, dtype="int32"),
    Case((20, 30), axis=1, op="min", exclusive=True, masked=True),
    Case((20, 30), axis=0, op="mul", dtype="complex64"),
    Case((20, 30), dtype="uint8", op="and", masked=True),
    Case((20, 30), dtype="bool", op="xor"),
    Case((20, 30), dtype="float16"),
    *(Case((16, 24), axis=1, view=view) for view in VIEWS.values()),
    Case((3, 5000), op="max with indices"),
    Case((40, 90), op="max with indices", axis=0, reverse=True),
    Case((3, 300), op="logaddexp", dtype="float16"),
    Case((300,), op="logaddexp", exclusive=True, masked=True),
    Case((2, 3, 400), op="linear_recurrence"),
    Case((2, 400, 3), op="linear_recurrence", axis=1, dtype="bfloat16", reverse=True),
    Case((400,), op="linear_recurrence", dtype="complex64"),
    Case((900,), op="affine"),
    Case((7, 90), op="matrix_product"),
    Case((500,), skipna=True),
    Case((9, 50), skipna=True, masked=True, op="mul", include_initial=True),
    Case((50, 9), axis=0, include_initial=True, exclusive=True),
    *(Case((20_000,), segments=kind, split=split) for kind in KINDS for split in SPLITS),
    Case((2, 9000, 2), axis=1, segments="reset", split="4096 even", exclusive=True),
    Case((2, 9000), segments="keys", split="2^18 skewed", op="max", masked=True),
    Case((9000,), segments="offsets", split="4096 even", op="linear_recurrence"),
    Case((4, 500), axis=1, segments="reset", split="60 tiny", full_reset=True),
    *(Case((500,), segments=kind, split="60 tiny", reverse=True, exclusive=True) for kind in KINDS),
    Case((4, 500), axis=1, op="linear_recurrence", decay="broadcast"),
    Case((500, 3), axis=0, op="linear_recurrence", decay="scalar", dtype="bfloat16"),
    Case((300,), op="modular_product", dtype="int64"),
    Case((3, 300), op="min with indices", dtype="int16"),
    Case((3, 300), op="max with indices", dtype="uint8"),
    Case((20, 30), axis=0, view=Layout(ahead=(0, 3), behind=(1, 5)), out=Layout(order=(1, 0))),
    Case((40, 300), axis=1, carry="in and out", masked=True),
    Case((300,), carry="in and out", reverse=True, exclusive=True),
    Case((3, 50, 4), axis=1, op="linear_recurrence", carry="in and out", how="carry"),
    Case((4, 5, 60), axis=1, view=Layout(order=(2, 0, 1), shift=3), out=Layout(shift=1)),
]
