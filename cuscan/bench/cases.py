"""What is measured: a `Case` is data, and knows how its arrays are laid out."""

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

    `segments` names what says where segments start, `split` where that is (`segments.py`); `full_reset` gives a flag
    to every element, not to every position along the axis. `decay` is what a recurrence is multiplied with: "full"
    (an array like b), "broadcast" (a number for each row) or "scalar". `carry` is "" (none), "in and out" or "total":
    then nothing but the carry goes out. `view` is how the elements lie in memory, `out` how the results do: by default
    in the same order of axes. `fresh` results are the library's to allocate.
    `how` says what is timed: "stream" (runs on buffers that no cache holds, against a copy), "sample" (the same, but
    after other work alone), "carry" (the same, in turn with the scan without a carry, or, beside totals, with a kernel
    that only reads), "replay" (GPU time of small runs, against peers), "queue" (host time of a call, against the peer's
    call that `call` names), "first" (the first scan of a process, against the first CuPy kernel), "shapes" (host time
    of shapes never seen, of a kind of call that `label` names), "train" (what `label` says of gradients: `training.py`)
    or "jax" (of programs of JAX: `jax_scans.py`). `must` is the floor of what is reached, `aim` what is wanted; where
    fewer than 64 MiB move and there is `slack_us`, the floor is the time of the bytes at copy speed plus so many
    microseconds. `peers` limits who is measured beside it. `label` tells cases apart that are
    alike otherwise.
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
        """From the fields as JSON gives them back."""
        changed = {name: tuple(fields[name]) for name in ("shape", "peers") if fields[name] is not None}
        layouts = {name: Layout.from_json(fields[name]) for name in ("view", "out") if fields[name] is not None}
        return cls(**{**fields, **changed, **layouts})

    def as_json(self) -> dict[str, Any]:
        """The fields as JSON takes them."""
        return dataclasses.asdict(self)

    @property
    def operator(self) -> Monoid:
        """The operator."""
        return CALLS[self.op].operator

    @property
    def features(self) -> list[str]:
        """What makes it more than a plain scan."""
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
        """How the results lie in memory."""
        return Layout(order=self.view.order) if self.out is None else self.out

    @property
    def transposing(self) -> bool:
        """Whether the results' fast axis is another than the elements'."""
        return self.result_layout.fast_axis(self.shape) != self.view.fast_axis(self.shape)

    @property
    def name(self) -> str:
        """Unique in a group; the key of results."""
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
        """The dtype of the result; of the first, if there are several."""
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
    """A size as people say it: 2^28 for large powers of two."""
    return f"2^{size.bit_length() - 1}" if size >= 1 << 17 and not size & (size - 1) else str(size)


def five_uses(shape: Shape) -> list[Case]:
    """What people scan: cumsum, reverse, exclusive, masked, and along the other axis."""
    return [
        Case(shape, axis=1),
        Case(shape, axis=1, reverse=True),
        Case(shape, axis=1, exclusive=True),
        Case(shape, axis=1, masked=True),
        Case(shape, axis=0),
    ]
