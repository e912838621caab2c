"""Users' operators: a combination in CUDA C++, compiled into the kernels of the built-in operators."""

from __future__ import annotations

import itertools
import re
import uuid
import zlib
from collections.abc import Callable, Mapping
from typing import Any, cast

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
        name: an identifier, used in errors.
        combine: a CUDA C++ expression in `earlier` and `later`, or the body of a function if it contains the word
            `return`. Scans keep the order of operands, so it need not commute. Scans do not check that it is
            associative; `check` does. The types have NumPy's names, `int32 matched = ...`. It is compiled without fused
            multiply-adds: write `fmaf` where you want one. It must return for all values: scans may also combine values
            that are in no array, and drop the result.
        identity: the value that changes no other value. Masked elements count as the identity, and an exclusive scan
            starts with it. A number that the scan's dtype can hold; with `state` a tuple of numbers, one per field, or
            a dict by field.
        state: names and dtypes (int8 to uint64, float32, float64) of the fields of a struct of at most 16 bytes, in C's
            alignment: `earlier.a`, `later.a`, and `return State{a, b}` with the fields in this order. Elements are then
            tuples of arrays. Without it, elements are real numbers; bool and narrow integers are computed in 32 bits,
            float16 and bfloat16 in float32; results have x's dtype, or the scan's `dtype`.
        numpy: the same function on NumPy arrays, for arrays on the CPU: numpy(earlier, later) -> array. With `state`,
            the arguments are structured arrays, `earlier["a"]`, and it returns a tuple of arrays, one per field. Its
            result must have the shape that its arguments broadcast to, and must not be floating point if they are
            integers. Without it, scans of CPU arrays raise ScanTypeError.
        vjp: the derivative of `combine`, for scans that are differentiated: vjp(earlier, later, g) -> (g times the
            derivative by earlier, g times the derivative by later), in differentiable elementwise operations of the
            arrays' library. Elements must be single numbers. Without it, such scans raise ScanTypeError.

    Operators are equal if all of these are equal. Equal ones share what is prepared for a call, so make one and keep
    it. They can be pickled if `numpy` and `vjp` can, for example if these are functions of a module. The kernel is
    compiled when the first GPU array needs it; `compile` and `check` find mistakes earlier.

    Raises:
        ScanTypeError: an argument has a wrong type, or a dtype in `state` is unknown.
        ScanValueError: the name is not an identifier, the state exceeds 16 bytes, or the identity is out of range.

    If the operator does not compile, the scan raises CompileError, which shows your line.
    """

    _made_of: dict[str, Any]  # the arguments of the constructor
    _token: Any = None  # the token under which it is pickled

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
            costly=True,
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
        """Return everything that defines an operator, with the bits of the identity."""
        callables = self._made_of["numpy"], self.vjp
        return self.name, self._made_of["combine"], self.source, self.inputs, self.dtypes, *callables

    def compile(self, *, arch: int = 90, dtype: Any = "float32") -> None:
        """Compile a kernel for a GPU architecture (90 for sm_90), which needs no GPU; mistakes raise CompileError.

        `dtype` is the dtype of x if there is no `state`. Nothing is stored: the scan compiles its own kernel. Raises
        MissingDependencyError if CuPy is not installed.
        """
        compile_operator(self, arch, dtype)

    def check(self, *samples: Any, tolerance: float | None = None) -> None:
        """Search samples for (a . b) . c != a . (b . c), or a change by the identity; a ScanValueError shows them.

        `samples` are an array of elements, or one array for each field of the state. A few samples are better than
        many: all triples of up to 40 elements are tried, but only 65,536 random triples of more. Integers must be
        equal. Floating-point fields may differ by `tolerance` (64 eps by default) times the largest number involved,
        squared if it is above 1. Needs `numpy`.
        """
        check_operator(self, samples, tolerance)

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the state's fields; empty if the state is one number."""
        return tuple(name.removeprefix("x.") for name in self.inputs) if self.dtypes else ()


_PICKLED: dict[str, Operator] = {}  # pickled or unpickled operators, by token


def _restore(token: str, made_of: dict[str, Any]) -> Operator:
    """Return the operator pickled under `token`, once per process: each Dask task brings a copy with a new lambda."""
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
            fields[field] = DTYPES["bool"]  # not among the allowed dtypes either
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
    """Return a number as C++ text, exact to the bit."""
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
        alike = type(result) is np.ndarray and result.dtype == earlier.dtype and not fields
        if alike and result.shape == earlier.shape == later.shape:
            return cast(Array, result)  # what follows would change nothing
        if fields and not (isinstance(result, tuple) and len(result) == len(fields)):
            raise ScanTypeError(f"numpy= of op={name!r} must return a tuple of {len(fields)} arrays; got {result!r}")
        parts = result if fields else (result,)
        shape = np.broadcast(earlier, later).shape
        for field, part in zip(fields or ("",), parts, strict=True):
            _check_returned(name, field, part, shape, earlier.dtype[field] if field else earlier.dtype)
        return make_states(earlier.dtype, parts, shape)

    return combine


_RANK = {"b": 0, "i": 1, "u": 1, "f": 2}  # by dtype kind: what C++ assigns, except floating point to integers


def _check_returned(name: str, field: str, part: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise if the result of `numpy=` would be broadcast or would lose its fractions."""
    of = f"numpy= of op={name!r}" + (f", in field {field!r}," if field else "")
    if not isinstance(part, np.ndarray | np.generic | int | float):
        raise ScanTypeError(f"{of} must return an array; got {type(part).__name__}")
    returned = np.asarray(part)
    if returned.shape != shape and type(part) not in (int, float, bool):  # a Python number is a constant
        raise ScanValueError(f"{of} must return an array of shape {shape}, as its arguments; got {returned.shape}")
    if _RANK.get(returned.dtype.kind, 3) > _RANK[dtype.kind]:
        raise ScanTypeError(f"{of} must return an array of dtype {dtype}; got {returned.dtype}")
