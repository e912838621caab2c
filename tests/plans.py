"""Helpers of the tests of requests and plans: requests for views, and facts about a plan."""

from __future__ import annotations

from views import operands, view

from cuscan import Operator
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.order import Order
from cuscan.planning import make_plan
from cuscan.planning.config import Access, Operand, Target
from cuscan.request import make_request
from cuscan.request.call import make_flags

H200 = Target(90, 132)
NO_CLUSTERS = Target(90, 132, cluster=0)  # tiles take calls that clusters would take otherwise
ORDER4 = Order(items=4, vectors=8, warps=8)
WIDENED = Order(items=2, vectors=12, warps=8)
TABLE = {1: Order(16, 8, 8), 2: Order(8, 8, 8), 4: ORDER4, 8: Order(2, 8, 8), 16: Order(1, 4, 8)}


def request(x, op="add", axis=-1, *, has_initial=False, mask=None, segments=None, row_initial=None, out=None, **flags):
    """A request for one array or a tuple of them, `x` and `out` alike. `segments` is a kind and an array."""
    return make_request(
        make_flags(op, axis, **{"reverse": False, **flags}),
        operands(x, mask, segments, row_initial, out),
        has_initial=has_initial,
    )


def planned(*arguments, target=H200, **keywords):
    return make_plan(request(*arguments, **keywords), target)


def tiled(*arguments, **keywords):
    return planned(*arguments, target=NO_CLUSTERS, **keywords)


def operands_of(a_plan):
    """The operands of all arrays, in the order of the kernel's arguments."""
    return a_plan.config.operands


def accesses(a_plan):
    return tuple(operand.access for operand in operands_of(a_plan))


def staged(a_plan):
    """The numbers of the arrays whose tiles are staged."""
    return tuple(i for i, operand in enumerate(operands_of(a_plan)) if operand.staged)


def constants(a_plan, *names):
    """Some of a plan's constants."""
    all_of_them = dict(a_plan.config.constants)
    return tuple(all_of_them[name] for name in names)


def dimensions(a_plan):
    """The axis, the column and the batch axes of a plan's geometry: each size with its strides in bytes."""
    words, step = _geometry(a_plan)[: -3 - _span_words(a_plan)], 1 + len(operands_of(a_plan))
    dims = [words[i : i + step] for i in range(0, len(words), step)]
    assert len(dims) == 2 + a_plan.config.batch_dims
    return dims[0], dims[1], dims[2:]


def scalars(a_plan):
    """Rows, units and workspace words of a plan's geometry."""
    spans = _span_words(a_plan)
    return _geometry(a_plan)[-3 - spans : -spans]


def spans(a_plan):
    """The last words of a plan's geometry: from scan position 0 to the ends of values, results, mask and segments."""
    words = _geometry(a_plan)[-_span_words(a_plan) :]
    return list(zip(words[::2], words[1::2], strict=True))


def _geometry(a_plan):
    """The words of struct Geometry; some families append words of their own."""
    dimensions = (2 + a_plan.config.batch_dims) * (1 + len(operands_of(a_plan)))
    return a_plan.geometry[: dimensions + 3 + _span_words(a_plan)]


def gaps_of(a_plan):
    """Of columns of several rows: how many a row has; bytes of the gap behind it, in each array, and in the tile."""
    count = len(operands_of(a_plan))
    every, _, *words = a_plan.geometry[len(_geometry(a_plan)) :][: 2 + 2 * count]
    return every, words[:count], words[count:]


def _span_words(a_plan):
    return 2 * (len(operands_of(a_plan)) - 2)


def dim(size, *strides, arrays=6):
    """An axis of `arrays` arrays, by default one value, one result and the rest; unnamed strides are 0."""
    return (size, *strides, *(0,) * (arrays - len(strides)))


ONE = dim(1)
ABSENT = Operand("boolean", Access.NONE)
NONE = ("None",) * 3  # no segments, no initial value for each row, no last states


def state_of(*dtypes):
    """An operator with a state of these fields."""
    fields = {f"f{i}": dtype for i, dtype in enumerate(dtypes)}
    return Operator("user", "return earlier;", (0,) * len(fields), state=fields)


def of_shape(shape, *dtypes):
    return tuple(view(shape, dtype) for dtype in dtypes)


PAIR = state_of("float32", "int8")
RECURRENCE = dict(op=LINEAR_RECURRENCE)


def whole_lines(words):
    """The number of words, rounded up to whole lines of 16 words."""
    return (words + 15) // 16 * 16
