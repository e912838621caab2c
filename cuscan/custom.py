"""Operators of the user's own: a combination in CUDA C++, compiled into the kernels of the built-in ones."""

from __future__ import annotations

import itertools
import re
import uuid
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cuscan.dtypes import DTYPES, REAL, DType
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.operators import KEYED, Monoid
from cuscan.request.call import find_dtype
from cuscan.request.initial import check_initial
from cuscan.states import SCALAR, Fields, States, make_states
from cuscan.trials import check_operator, compile_operator

Array = np.ndarray[Any, Any]

MAX_STATE_BYTES = 16
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """alignas alignof and asm auto bool break case catch char class const constexpr continue default delete do
        double else enum explicit export extern false float for friend goto if inline int long mutable namespace new not
        operator or private protected public register return short signed sizeof static struct switch template this
        throw true try typedef typename union unsigned using virtual void volatile while xor""",
    )
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")

_SCALAR = """\
namespace cuscan {{
template <class T>
struct UserOperator : Scalar<T> {{
    static CUSCAN_DEVICE T combine(T earlier, T later) {{
#line 1 "combine of {name}"
{body}
#line 1 "identity of {name}"
    }}
    template <class Result>
    static CUSCAN_DEVICE T identity() {{
        return convert<T>({identity});
    }}
}};
}}  // namespace cuscan
"""

_STRUCT = """\
namespace cuscan {{
struct UserOperator {{
    struct State {{
{members}
    }};
    using Initial = State;
    static CUSCAN_DEVICE State combine(State earlier, State later) {{
#line 1 "combine of {name}"
{body}
#line 1 "identity of {name}"
    }}
    template <class Result>
    static CUSCAN_DEVICE State identity() {{
        return State{{{identity}}};
    }}
    template <class Result, {types}>
    static CUSCAN_DEVICE State lift({parameters}) {{
        return State{{{lifted}}};
    }}
    static CUSCAN_DEVICE State start(State initial) {{ return initial; }}
{lowers}
    template <int kField>
    static CUSCAN_DEVICE auto field(State state, Number<kField> k) {{
        return lower(state, k);
    }}
}};
}}  // namespace cuscan
"""


class Operator(Monoid):
    """An associative operator of your own; pass it as `op`.

    Args:
        name: what errors call it; an identifier.
        combine: a CUDA C++ expression in `earlier` and `later`, or, if the word `return` is in it, the body of a
            function. Scans keep the order of operands, so it need not commute. They do not check that it is
            associative; `check` does. The types have NumPy's names, `int32 matched = ...`. Without fused multiply-adds:
            write `fmaf` where you want one.
        identity: what changes no other value: what masked elements count as, and what comes first in an exclusive scan.
            A number that the scan's dtype can hold; with `state` a tuple of numbers, one a field, or a dict by field.
        state: names and dtypes (int8 to uint64, float32, float64) of the fields of a struct of 16 bytes at most, in C's
            alignment: `earlier.a`, `later.a`, and `return State{a, b}` with the fields in this order. Elements are then
            tuples of arrays. Without it elements are real numbers; bool and narrow integers are computed in 32 bits,
            float16 and bfloat16 in float32; results have x's dtype, or the scan's `dtype`.
        numpy: the same on NumPy arrays, for arrays on the CPU: numpy(earlier, later) -> array. With `state` they are
            structured arrays, `earlier["a"]`, and it returns a tuple of arrays, one a field. What it returns has the
            shape that its arguments broadcast to, and is no floating point where they are integers. Without it scans of
            CPU arrays are a ScanTypeError.
        vjp: the derivative of `combine`, for scans that are differentiated: vjp(earlier, later, g) -> (g times the
            derivative by earlier, g times that by later), in differentiable operations of the arrays' library, element
            by element. For elements that are one number; without it such scans are a ScanTypeError.

    Operators are equal where all of these are; equal ones share what is prepared for a call, so make one and keep it.
    They pickle where `numpy` and `vjp` do, as functions of a module do. The kernel is compiled when a GPU array comes
    that needs it; `compile` and `check` find mistakes before.

    Raises:
        ScanTypeError: an argument of a wrong type, or an unknown dtype in `state`.
        ScanValueError: a name that is no identifier, a state of more than 16 bytes, an identity out of range.

    What does not compile is a CompileError of the scan; it shows your line.
    """

    _made_of: dict[str, Any]  # the arguments of the constructor
    _token: Any = None  # what it is pickled under

    def __init__(
        self,
        name: str,
        combine: str,
        identity: Any,
        *,
        state: Mapping[str, Any] | None = None,
        numpy: Callable[[Array, Array], Any] | None = None,
        vjp: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None,
    ) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ScanValueError(f"name must be an identifier; got {name!r}")
        if not isinstance(combine, str) or not combine.strip():
            raise ScanTypeError(f"combine must be CUDA C++ text; got {combine!r}")
        if numpy is not None and not callable(numpy):
            raise ScanTypeError(f"numpy must be callable; got {numpy!r}")
        if vjp is not None and (state is not None or not callable(vjp)):
            raise ScanTypeError(f"vjp must be callable, and state one number; got vjp={vjp!r}, state={state!r}")
        fields = _fields(state)
        parts = _identity_parts(identity, fields)
        kept = dict(zip(fields, parts, strict=True)) if fields else parts[0]
        dtypes = {field: dtype.name for field, dtype in fields.items()} or None
        object.__setattr__(self, "_made_of", {"name": name, "combine": combine, "identity": kept, "state": dtypes})
        self._made_of.update(numpy=numpy, vjp=vjp)
        body = combine if re.search(r"\breturn\b", _COMMENT.sub("", combine)) else f"return {combine}\n;"
        states: States
        if fields:
            states = Fields(tuple(fields), fixed={field: dtype.name for field, dtype in fields.items()})
            source = _struct_source(name, body, fields, parts)
        else:
            states = SCALAR
            source = _SCALAR.format(name=name, body=body, identity=_literal(parts[0]))
        super().__init__(
            name=name,
            functor="UserOperator" if fields else "UserOperator<{T}>",
            kinds=REAL,
            promotes=False,
            wide_carry=False,
            combine=None if numpy is None else _on_states(numpy, name),
            identity=lambda dtype: parts if fields else (check_initial(parts[0], dtype, "identity"),),
            states=states,
            inputs=tuple(f"x.{field}" for field in fields) or ("x",),
            dtypes=tuple(dtype.name for dtype in fields.values()),
            source=source,
            vjp=vjp,
        )
        digest = zlib.crc32(repr((source, parts, numpy is None, vjp is None)).encode())
        key = f"{name}#{digest:08x}"
        for number in itertools.count(2):
            if KEYED.setdefault(key, self) == self:
                break
            key = f"{name}#{digest:08x}.{number}"  # the same text with other functions
        object.__setattr__(self, "_key", key)

    @property
    def key(self) -> str:
        key: str = self._key  # type: ignore[attr-defined]
        return key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operator) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def __repr__(self) -> str:
        name, combine, identity, *others = self._made_of.values()
        keywords = zip(("state", "numpy", "vjp"), others, strict=True)
        given = [f"{keyword}={value!r}" for keyword, value in keywords if value is not None]
        return f"Operator({', '.join([repr(name), repr(combine), repr(identity), *given])})"

    def __reduce__(self) -> Any:
        if self._token is None:
            object.__setattr__(self, "_token", uuid.uuid4().hex)
        _PICKLED.setdefault(self._token, self)
        return _restore, (self._token, self._made_of)

    def _parts(self) -> tuple[Any, ...]:
        """All that an operator is made of, the identity to the bit."""
        callables = self._made_of["numpy"], self.vjp
        return self.name, self._made_of["combine"], self.source, self.inputs, self.dtypes, *callables

    def compile(self, *, arch: int = 90, dtype: Any = "float32") -> None:
        """Compile a kernel for a GPU architecture (90 for sm_90), which needs no GPU: what it finds is a CompileError.

        `dtype` is that of x where there is no `state`. Nothing is kept: the scan compiles its own kernel.
        Raises MissingDependencyError where CuPy is not installed.
        """
        compile_operator(self, arch, dtype)

    def check(self, *samples: Any, tolerance: float | None = None) -> None:
        """Look for samples with (a . b) . c != a . (b . c), or that the identity changes: a ScanValueError shows them.

        `samples`: an array of elements, or one for each field of the state; better some than many, since all triples
        of up to 40 are tried (of more 65,536 triples). Integers must be equal. Floating-point fields may differ by
        `tolerance` (64 eps by default) times the largest number in sight, squared where it is above 1. Needs `numpy`.
        """
        check_operator(self, samples, tolerance)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields of the state; none if it is one number."""
        return tuple(name.removeprefix("x.") for name in self.inputs) if self.dtypes else ()


_PICKLED: dict[str, Operator] = {}  # those that were pickled or unpickled, by their tokens


def _restore(token: str, made_of: dict[str, Any]) -> Operator:
    """The operator that was pickled, in one process always the same: each task of Dask brings it, with a new lambda."""
    if token not in _PICKLED:
        made = Operator(**made_of)
        object.__setattr__(made, "_token", token)
        _PICKLED.setdefault(token, made)
    return _PICKLED[token]


def _fields(state: Mapping[str, Any] | None) -> dict[str, DType]:
    if state is None:
        return {}
    if not isinstance(state, Mapping) or not state:
        raise ScanTypeError(f"state must map field names to dtypes; got {state!r}")
    fields = {}
    for field, dtype in state.items():
        if not isinstance(field, str) or not _NAME.fullmatch(field) or field in _KEYWORDS:
            raise ScanValueError(f"state has a field named {field!r}; names must be such as C++ allows")
        try:
            fields[field] = find_dtype(dtype)
        except ScanTypeError:
            fields[field] = DTYPES["bool"]  # which is not among them either
        if fields[field].name not in _NUMBERS:
            raise ScanTypeError(f"state[{field!r}] must be one of {', '.join(_NUMBERS)}; got {dtype!r}")
    size = np.dtype([(field, dtype.name) for field, dtype in fields.items()], align=True).itemsize
    if size > MAX_STATE_BYTES:
        raise ScanValueError(f"state takes {size} bytes; it may take {MAX_STATE_BYTES} bytes at most")
    return fields


def _identity_parts(identity: Any, fields: dict[str, DType]) -> tuple[Any, ...]:
    if isinstance(identity, Mapping):
        if set(identity) != set(fields):
            raise ScanValueError(f"identity has fields {', '.join(map(str, identity))}; state has {', '.join(fields)}")
        identity = tuple(identity[field] for field in fields)
    parts = identity if isinstance(identity, tuple) else (identity,)
    if len(parts) != max(len(fields), 1) or isinstance(identity, tuple) != bool(fields):
        wanted = f"a tuple of {len(fields)} numbers, one a field of state" if fields else "one number"
        raise ScanTypeError(f"identity must be {wanted}; got {identity!r}")
    for part in parts:
        if not isinstance(part, int | float | np.integer | np.floating | np.bool_):
            raise ScanTypeError(f"identity must hold real numbers; got {part!r}")
    if fields:
        return tuple(check_initial(part, dtype, "identity") for part, dtype in zip(parts, fields.values(), strict=True))
    return tuple(part.item() if isinstance(part, np.generic) else part for part in parts)


def _struct_source(name: str, body: str, fields: dict[str, DType], identity: tuple[Any, ...]) -> str:
    numbered = list(enumerate(fields.items()))
    return _STRUCT.format(
        name=name,
        body=body,
        members="\n".join(f"        {dtype.cpp} {field};" for _, (field, dtype) in numbered),
        identity=", ".join(
            f"convert<{fields[f].cpp}>({_literal(part)})" for f, part in zip(fields, identity, strict=True)
        ),
        types=", ".join(f"class T{i}" for i, _ in numbered),
        parameters=", ".join(f"T{i} value{i}" for i, _ in numbered),
        lifted=", ".join(f"convert<{dtype.cpp}>(value{i})" for i, (_, dtype) in numbered),
        lowers="\n".join(
            f"    static CUSCAN_DEVICE {dtype.cpp} lower(State state, Number<{i}>) {{ return state.{field}; }}"
            for i, (field, dtype) in numbered
        ),
    )


def _literal(number: Any) -> str:
    """A number in C++, to the bit."""
    if isinstance(number, float):
        if number != number:
            return "target::bits_to_float(0x7fc00000u)"
        if number in (float("inf"), float("-inf")):
            return f"FloatRange::{'highest' if number > 0 else 'lowest'}()"
        return number.hex()
    number = int(number)
    if number == -(2**63):
        return "(-9223372036854775807LL - 1)"
    return f"{number}{'ULL' if number >= 2**63 else 'LL'}"


def _on_states(numpy: Callable[[Array, Array], Any], name: str) -> Callable[[Array, Array], Array]:
    def combine(earlier: Array, later: Array) -> Array:
        result = numpy(earlier, later)
        fields = earlier.dtype.names
        if fields and not (isinstance(result, tuple) and len(result) == len(fields)):
            raise ScanTypeError(f"numpy= of op={name!r} must return a tuple of {len(fields)} arrays; got {result!r}")
        parts = result if fields else (result,)
        shape = np.broadcast(earlier, later).shape
        for field, part in zip(fields or ("",), parts, strict=True):
            _check_returned(name, field, part, shape, earlier.dtype[field] if field else earlier.dtype)
        return make_states(earlier.dtype, parts, shape)

    return combine


_RANK = {"b": 0, "i": 1, "u": 1, "f": 2}  # of kinds of numbers; what C++ assigns, but for floating point to integers


def _check_returned(name: str, field: str, part: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse what `numpy=` returns if it would be broadcast, or lose its fractions."""
    of = f"numpy= of op={name!r}" + (f", in field {field!r}," if field else "")
    if not isinstance(part, np.ndarray | np.generic | int | float):
        raise ScanTypeError(f"{of} must return an array; got {type(part).__name__}")
    returned = np.asarray(part)
    if returned.shape != shape and type(part) not in (int, float, bool):  # a number of Python is a constant
        raise ScanValueError(f"{of} must return an array of shape {shape}, as its arguments; got {returned.shape}")
    if _RANK.get(returned.dtype.kind, 3) > _RANK[dtype.kind]:
        raise ScanTypeError(f"{of} must return an array of dtype {dtype}; got {returned.dtype}")
