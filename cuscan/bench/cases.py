"""The unit of measurement: a `Case` is data, including the layout of its arrays."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from cuscan.bench.calls import CALLS
from cuscan.bench.layouts import DENSE, Layout, Shape
from cuscan.dtypes import DTYPES, EXACT, DType, Kind
from cuscan.operators import Monoid


@dataclass(frozen=True)
class Case:
    """One scan to measure. `op` names a row of `calls.CALLS`; `result` is the result's dtype, None the default.

    `segments` names the argument that defines the segments, and `split` their boundaries (`segments.py`). With
    `full_reset` every element has a flag, not every position along the axis. `decay` is the factor of a recurrence:
    "full" (an array like b), "broadcast" (a number for each row) or "scalar". `carry` is "" (none), "in and out" or
    "total" (only the carry goes out). `view` is the layout of the elements, and `out` that of the results, by default
    in the same order of axes. With `fresh`, the library allocates the results.

    `how` selects the measurement:

    * "stream": runs on buffers that no cache holds, against a copy;
    * "sample": the same, but only after other work;
    * "carry": the same, in turn with the scan without a carry or, for totals, with a kernel that only reads;
    * "replay": GPU time of small runs, against peers;
    * "queue": host time of a call, against the peer's call named by `call`;
    * "first": the first scan of a process, against the first CuPy kernel;
    * "shapes": host time of new shapes, for the kind of call named by `label`;
    * "train": gradients, as named by `label` (`training.py`);
    * "jax": programs of JAX (`jax_scans.py`).

    `must` is the lowest acceptable value, `aim` the target. If fewer than 64 MiB move and there is `slack_us`, the
    floor is the time of the bytes at copy speed plus that many microseconds. `peers` limits the peers to measure.
    `label` distinguishes otherwise equal cases.
    """

    shape: Shape
    axis: int = -1
    dtype: str = "float32"
    op: str = "add"
    reverse: bool = False
    exclusive: bool = False
    masked: bool = False
    skipna: bool = False
    include_initial: bool = False
    segments: str = ""
    split: str = ""
    full_reset: bool = False
    decay: str = "full"
    carry: str = ""
    result: str | None = None
    view: Layout = DENSE
    out: Layout | None = None
    fresh: bool = False
    group: str = ""
    how: str = "stream"
    call: str = ""
    must: float | None = None
    aim: float | None = None
    slack_us: float = 0
    peers: tuple[str, ...] | None = None
    label: str = ""

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Case:
        """Build a case from fields read from JSON."""
        changed = {name: tuple(fields[name]) for name in ("shape", "peers") if fields[name] is not None}
        layouts = {name: Layout.from_json(fields[name]) for name in ("view", "out") if fields[name] is not None}
        return cls(**{**fields, **changed, **layouts})

    def as_json(self) -> dict[str, Any]:
        """Return the fields in a form that JSON can store."""
        return dataclasses.asdict(self)

    @property
    def operator(self) -> Monoid:
        """The operator."""
        return CALLS[self.op].operator

    @property
    def features(self) -> list[str]:
        """The features beyond a plain scan."""
        flags = ("reverse", "exclusive", "masked", "skipna", "include_initial", "segments", "carry")
        return [name for name in flags if getattr(self, name)]

    @property
    def scan(self) -> str:
        """The scan in a few words: operator and flags."""
        by = f"by {'full ' * self.full_reset}{self.segments} ({self.split})"
        others = {"segments": by, "carry": "total" if self.carry == "total" else f"carry {self.carry}"}
        words = [others.get(name, name) for name in self.features]
        return " ".join([self.op, *([f"{self.decay} decay"] if self.decay != "full" else []), *words])

    @property
    def array(self) -> str:
        """The array in a few words: dtype, shape, axis, view."""
        dtype = self.dtype if self.result_dtype.name == self.dtype else f"{self.dtype} to {self.result_dtype}"
        shape = ", ".join(map(short, self.shape))
        where = f" axis {self.axis % len(self.shape)}" if len(self.shape) > 1 else ""
        return f"{dtype} ({shape}){where}" + ("" if self.view == DENSE else f" {self.view}")

    @property
    def result_layout(self) -> Layout:
        """The layout of the results in memory."""
        return Layout(order=self.view.order) if self.out is None else self.out

    @property
    def transposing(self) -> bool:
        """Whether results and elements have different fast axes."""
        return self.result_layout.fast_axis(self.shape) != self.view.fast_axis(self.shape)

    @property
    def name(self) -> str:
        """A name that is unique in a group; the key of results."""
        where = "new result" if self.fresh else "" if self.out is None else f"to {self.out}"
        words = ", ".join(filter(None, (self.array, self.scan, self.call, where)))
        return f"{self.label}: {words}" if self.label else words

    @property
    def result_shape(self) -> Shape:
        """The shape of the result."""
        axis = self.axis % len(self.shape)
        return tuple(size + (self.include_initial and a == axis) for a, size in enumerate(self.shape))

    @property
    def lines(self) -> Shape:
        """The shape of a carry."""
        axis = self.axis % len(self.shape)
        return self.shape[:axis] + self.shape[axis + 1 :]

    @property
    def result_dtype(self) -> DType:
        """The dtype of the result, or of the first of several."""
        own = DTYPES[self.dtype]
        if self.operator.dtypes:
            return DTYPES[self.operator.dtypes[0]]
        if self.result is not None:
            return DTYPES[self.result]
        if not self.operator.promotes or own.kind not in EXACT:
            return own
        return DTYPES["uint64" if own.kind is Kind.UNSIGNED else "int64"]

    @property
    def input_dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the arrays of elements."""
        names = self.operator.dtypes or (self.dtype,) * len(self.operator.inputs)
        return tuple(DTYPES[name] for name in names)


def short(size: int) -> str:
    """Return a size as text, with large powers of two as 2^28."""
    return f"2^{size.bit_length() - 1}" if size >= 1 << 17 and not size & (size - 1) else str(size)


def five_uses(shape: Shape) -> list[Case]:
    """Return common scans of a shape: cumsum, reverse, exclusive, masked, and along the other axis."""
    return [
        Case(shape, axis=1),
        Case(shape, axis=1, reverse=True),
        Case(shape, axis=1, exclusive=True),
        Case(shape, axis=1, masked=True),
        Case(shape, axis=0),
    ]
