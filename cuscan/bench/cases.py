"""What is measured: a `Case` is data, and knows how its arrays are laid out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cuscan.bench.calls import CALLS
from cuscan.dtypes import DTYPES, EXACT, DType, Kind
from cuscan.operators import Monoid

Array = Any
Shape = tuple[int, ...]

SECTOR = 32  # bytes: the least that the memory of a GPU hands out


@dataclass(frozen=True)
class View:
    """How the scanned array looks into its memory: the shape of that memory, and the way from one to the other."""

    memory: Callable[[Shape], Shape] = lambda shape: shape
    take: Callable[[Any, Array, Shape], Array] = lambda xp, memory, shape: memory
    result_alike: bool = False


VIEWS = {
    "dense": View(),
    "x[:, ::2]": View(lambda s: (s[0], 2 * s[1]), lambda xp, m, s: m[:, ::2]),
    "x[:, 1:]": View(lambda s: (s[0], s[1] + 1), lambda xp, m, s: m[:, 1:]),
    "x.T": View(lambda s: s[::-1], lambda xp, m, s: m.T, result_alike=True),
    "x[:, ::-1]": View(take=lambda xp, m, s: m[:, ::-1]),
    "broadcast": View(lambda s: (1, *s[1:]), lambda xp, m, s: xp.broadcast_to(m, s)),
}


@dataclass(frozen=True)
class Case:
    """One scan to measure. `op` names a row of `calls.CALLS`; `result` is the result's dtype, None the default.

    `segments` names what says where segments start, `split` where that is (`segments.py`).
    `how` says what is timed: "stream" (runs on buffers that no cache holds, against a copy), "replay" (GPU time of
    small runs, against peers), "queue" (host time of a call, against the peer's call that `call` names) or "first"
    (the first scan of a process, against the first CuPy kernel). `must` is the floor of what is reached, `aim` what is
    wanted; where fewer than 64 MiB move and there is `slack_us`, the floor is the time of the bytes at copy speed plus
    so many microseconds. `peers` limits who is measured beside it.
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
    result: str | None = None
    view: str = "dense"
    group: str = ""
    how: str = "stream"
    call: str = ""
    must: float | None = None
    aim: float | None = None
    slack_us: float = 0
    peers: tuple[str, ...] | None = None

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Case:
        """From the fields as JSON gives them back."""
        peers = fields["peers"]
        return cls(**{**fields, "shape": tuple(fields["shape"]), "peers": None if peers is None else tuple(peers)})

    @property
    def operator(self) -> Monoid:
        """The operator."""
        return CALLS[self.op].operator

    @property
    def features(self) -> list[str]:
        """What makes it more than a plain scan."""
        flags = ("reverse", "exclusive", "masked", "skipna", "include_initial", "segments")
        return [name for name in flags if getattr(self, name)]

    @property
    def scan(self) -> str:
        """The scan in a few words: operator and flags."""
        words = [f"by {self.segments} ({self.split})" if name == "segments" else name for name in self.features]
        return " ".join([self.op, *words])

    @property
    def array(self) -> str:
        """The array in a few words: dtype, shape, axis, view."""
        dtype = self.dtype if self.result_dtype.name == self.dtype else f"{self.dtype} to {self.result_dtype}"
        shape = ", ".join(map(short, self.shape))
        where = f" axis {self.axis % len(self.shape)}" if len(self.shape) > 1 else ""
        return f"{dtype} ({shape}){where}" + ("" if self.view == "dense" else f" {self.view}")

    @property
    def name(self) -> str:
        """Unique in a group; the key of results."""
        return ", ".join(filter(None, (self.array, self.scan, self.call)))

    @property
    def result_shape(self) -> Shape:
        """The shape of the result."""
        axis = self.axis % len(self.shape)
        return tuple(size + (self.include_initial and a == axis) for a, size in enumerate(self.shape))

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


def touched_bytes(array: Array) -> int:
    """Bytes of memory that reading or writing an array must move.

    Broadcast elements count once; where elements lie apart, their whole sectors count.
    """
    itemsize = array.dtype.itemsize
    steps = [(abs(step), size) for step, size in zip(array.strides, array.shape, strict=True) if step and size > 1]
    elements = 1
    for _, size in steps:
        elements *= size
    apart = min((step for step, _ in steps), default=itemsize)
    return int(elements * max(itemsize, min(apart, SECTOR)))


def five_uses(shape: Shape) -> list[Case]:
    """What people scan: cumsum, reverse, exclusive, masked, and along the other axis."""
    return [
        Case(shape, axis=1),
        Case(shape, axis=1, reverse=True),
        Case(shape, axis=1, exclusive=True),
        Case(shape, axis=1, masked=True),
        Case(shape, axis=0),
    ]
