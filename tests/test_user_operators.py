"""User operators on the CPU: realistic ones compared with their meanings, and what the constructor refuses."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_examples import (
    AFFINE,
    BRACKETS,
    EXAMPLES,
    GREATEST_SUM,
    MATRIX_PRODUCT,
    MIN_MAX,
    MODULAR_PRODUCT,
    STRING_HASH,
)
from textbook import restarts, scan, segments_for

import cuscan
from cuscan import ScanError, ScanTypeError, ScanValueError


def elements_of(arrays):
    """An array of lists of one tuple each, so that `+` joins elements."""
    arrays = np.broadcast_arrays(*arrays)
    out = np.empty(arrays[0].shape, object)
    for place in np.ndindex(out.shape):
        out[place] = [tuple(array[place].item() for array in arrays)]
    return out


def expected_of(example, arrays, *, initial=None, **call):
    """The fields of the scan: each result is the meaning of its own list of elements."""
    first = None if initial is None else [initial if isinstance(initial, tuple) else (initial,)]
    lists = scan(elements_of(arrays), lambda earlier, later: earlier + later, [], initial=first, **call)
    fields = [np.empty(lists.shape, dtype) for dtype in example.dtypes]
    for place in np.ndindex(lists.shape):
        for field, number in zip(fields, example.meaning(lists[place]), strict=True):
            field[place] = number
    return fields


def given_to_cuscan(example, arrays):
    return arrays[0] if example.state is None else tuple(arrays)


def initial_for(example, rng):
    drawn = tuple(part.item() for part in example.draw(rng, ()))
    return drawn[0] if example.state is None else drawn


def assert_fields(got, expected, example):
    assert isinstance(got, np.ndarray if example.state is None else tuple)
    got = (got,) if example.state is None else got
    assert len(got) == len(expected)
    for mine, wanted, dtype in zip(got, expected, example.dtypes, strict=True):
        assert mine.dtype == dtype
        np.testing.assert_array_equal(mine, wanted)


def check(example, arrays, segments, **call):
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    begins = restarts(shape, call.get("axis", -1), call.get("reverse", False), **segments)
    expected = expected_of(example, arrays, begins=begins, **call)
    got = cuscan.scan(given_to_cuscan(example, arrays), example.operator(), **segments, **call)
    assert_fields(got, expected, example)


# ---- the examples -------------------------------------------------------------------------------


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
@pytest.mark.parametrize("kind", ["none", "reset", "offsets", "keys"])
@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=3)), ids=str)
def test_all_flags_together(example, kind, flags):
    rng = np.random.default_rng(0)
    names = ("reverse", "exclusive", "include_initial")
    for (shape, axis), masked in itertools.product([((40,), 0), ((2, 17), 1), ((17, 2), 0)], [False, True]):
        call = {"axis": axis, **dict(zip(names, flags, strict=True))}
        if masked:
            call |= {"mask": rng.random(shape) < 0.6, "initial": initial_for(example, rng)}
        check(example, example.draw(rng, shape), segments_for(rng, kind, shape, axis), **call)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_any_call_means_what_it_says(data, seed):
    draw, rng = data.draw, np.random.default_rng(seed)
    example = draw(st.sampled_from(EXAMPLES))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 9]), min_size=1, max_size=3)))
    shape = (draw(st.sampled_from([0, 65, 130])),) if draw(st.integers(0, 3)) == 0 else shape
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    call = {name: draw(st.booleans()) for name in ("reverse", "exclusive", "include_initial")}
    if draw(st.booleans()):
        call["initial"] = initial_for(example, rng)
    if draw(st.booleans()):
        call["mask"] = rng.random(shape) < 0.6
    turned = tuple(array.T for array in example.draw(rng, shape[::-1]))  # Fortran order
    segments = segments_for(rng, draw(st.sampled_from(["none", "offsets"])), shape, axis)
    check(example, turned, segments, axis=axis, **call)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_long_rows(example):
    arrays = example.draw(np.random.default_rng(1), (30_000,))
    got = cuscan.scan(given_to_cuscan(example, arrays), example.operator())
    got = (got,) if example.state is None else got
    for i in (0, 1, 4095, 4096, 20_000, 29_999):
        row = list(zip(*(array[: i + 1].tolist() for array in arrays), strict=True))
        assert tuple(field[i].item() for field in got) == example.meaning(row)


def test_the_oracles_by_hand():
    assert MODULAR_PRODUCT.meaning([(1000,), (1001,)]) == (1001000 % 1000003,)
    assert MATRIX_PRODUCT.meaning([(1, 1, 1, 0)] * 5) == (8, 5, 5, 3)
    assert STRING_HASH.meaning([(97, 257), (98, 257)]) == (97 * 257 + 98, 257**2)
    assert MIN_MAX.meaning([(2, 2), (-1, -1), (5, 5)]) == (-1, 5)
    assert BRACKETS.meaning([(1, 0), (0, 1), (0, 1), (1, 0)]) == (1, 1)
    assert AFFINE.meaning([(2, 1), (3, 5)]) == (6, 8)
    steps = [(step, *[max(step, 0)] * 3) for step in (-2, 3, -1, 2, -4)]
    assert GREATEST_SUM.meaning(steps) == (-2, 2, 0, 4)
    for example in EXAMPLES:
        identity = example.identity if isinstance(example.identity, tuple) else (example.identity,)
        assert example.meaning([]) == identity


def test_fibonacci():
    ones, zeros = np.ones(30, np.float32), np.zeros(30, np.float32)
    got = cuscan.scan((ones, ones, ones, zeros), MATRIX_PRODUCT.operator())
    numbers = [1, 1]
    while len(numbers) < 30:
        numbers.append(numbers[-2] + numbers[-1])
    assert got[1].tolist() == numbers


def test_the_depth_of_brackets():
    text = "(()())())("
    opens = np.array([c == "(" for c in text])
    closing, opening = cuscan.scan((~opens, opens), BRACKETS.operator())  # bools become the fields' int32
    assert closing.tolist() == [0] * 8 + [1, 1] and opening.tolist() == [1, 2, 1, 2, 1, 0, 1, 0, 0, 1]
    assert closing.dtype == opening.dtype == np.int32


def test_equal_strings_have_equal_hashes():
    text = "abcabcab"
    codes = np.frombuffer(text.encode(), np.uint8)
    hashes, _ = cuscan.scan((codes, np.array([257], np.int16)), STRING_HASH.operator(), reset=np.arange(8) % 3 == 0)
    assert hashes[[0, 3, 6]].tolist() == [97] * 3 and hashes[2] == hashes[5] and hashes[1] == hashes[4] == hashes[7]


# ---- one value ----------------------------------------------------------------------------------


def latest(**changes):
    arguments = {"numpy": lambda earlier, later: np.where(later != 0, later, earlier), **changes}
    return cuscan.Operator("latest", "later != 0 ? later : earlier", 0, **arguments)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64"])
def test_one_value_keeps_its_dtype(dtype):
    x = np.array([0, 1, 0, 0, 1, 0], dtype)
    got = cuscan.scan(x, latest())
    assert got.dtype == dtype and got.tolist() == [0, 1, 1, 1, 1, 1]
    assert cuscan.scan(x, latest(), dtype="int64").dtype == np.int64
    assert cuscan.scan(x, latest(), exclusive=True, initial=1).tolist() == [1] * 6


def test_one_value_is_computed_in_the_accumulator():
    total = cuscan.Operator("total", "earlier + later", 0, numpy=lambda earlier, later: earlier + later)
    assert cuscan.scan(np.array([2048, 1, 1], np.float16), total).tolist() == [2048, 2048, 2050]
    assert cuscan.scan(np.array([60000, 60000, -60000], np.float16), total).tolist() == [60000, np.inf, 60000]
    seen = set()

    def spy(earlier, later):
        seen.update((earlier.dtype.name, later.dtype.name))
        return earlier + later

    for dtype, accumulator in [("int8", "int32"), ("uint16", "uint32"), ("int64", "int64"), ("float16", "float32")]:
        seen.clear()
        cuscan.scan(np.ones(9, dtype), cuscan.Operator("total", "earlier + later", 0, numpy=spy))
        assert seen == {accumulator}


def test_one_value_is_not_complex():
    with pytest.raises(ScanTypeError, match=r"complex64"):
        cuscan.scan(np.ones(3, "complex64"), latest())


# ---- states of several values -------------------------------------------------------------------


def test_structured_arrays():
    rng = np.random.default_rng(2)
    for example in (AFFINE, STRING_HASH, BRACKETS):
        x = np.empty((3, 20), list(example.state.items()))
        for name, part in zip(example.state, example.draw(rng, x.shape), strict=True):
            x[name] = part
        call = {"axis": 1, "reverse": True, "initial": initial_for(example, rng)}
        got = cuscan.scan(x, example.operator(), **call)
        expected = expected_of(example, [x[name] for name in example.state], **call)
        assert isinstance(got, np.ndarray) and got.dtype == x.dtype
        for name, field in zip(example.state, expected, strict=True):
            np.testing.assert_array_equal(got[name], field)


def test_fields_of_two_sizes():
    kept = cuscan.Operator(
        "heaviest",
        "later.weight > earlier.weight ? later : earlier",
        (float("-inf"), -1),
        state={"weight": "float32", "place": "int64"},
        numpy=lambda earlier, later: tuple(
            np.where(later["weight"] > earlier["weight"], later[name], earlier[name]) for name in ("weight", "place")
        ),
    )
    weight = np.array([1, 3, 3, 2, 7], np.float64)
    heaviest, place = cuscan.scan((weight, np.arange(5)), kept)
    assert heaviest.dtype == np.float32 and place.dtype == np.int64
    assert heaviest.tolist() == [1, 3, 3, 3, 7] and place.tolist() == [0, 1, 1, 1, 4]
    assert cuscan.scan((weight, np.arange(5)), kept, exclusive=True)[1].tolist() == [-1, 0, 1, 1, 1]


def test_parts_are_broadcast_against_each_other():
    scale, shift = np.float32([[2], [-1]]), np.arange(5, dtype=np.float32)
    expected = expected_of(AFFINE, (scale, shift), axis=1)
    assert_fields(cuscan.scan((scale, shift), AFFINE.operator(), axis=1), expected, AFFINE)


@pytest.mark.parametrize("example", [AFFINE, MATRIX_PRODUCT, MIN_MAX], ids=str)
@pytest.mark.parametrize("reverse, exclusive", list(itertools.product([False, True], repeat=2)))
def test_an_element_with_nan_in_any_field_is_skipped(example, reverse, exclusive):
    rng, call = np.random.default_rng(6), {"reverse": reverse, "exclusive": exclusive}
    parts = example.draw(rng, (3, 60))
    parts = [np.where(rng.random(part.shape) < 0.15, np.float32(np.nan), part) for part in parts]
    kept = ~np.isnan(parts).any(0)
    assert 0.2 < kept.mean() < 0.8
    got = cuscan.scan(tuple(parts), example.operator(), skipna=True, **call)
    assert_fields(got, expected_of(example, parts, mask=kept, **call), example)
    assert cuscan.scan(np.array([0, 3, np.nan, 0]), latest(), skipna=True).tolist() == [0, 3, 3, 3]


def test_a_state_of_one_field():
    highest = cuscan.Operator(
        "highest",
        "State{later.value > earlier.value ? later.value : earlier.value}",
        (-9,),
        state={"value": "int32"},
        numpy=lambda earlier, later: (np.maximum(earlier["value"], later["value"]),),
    )
    x = np.array([3, 1, 7], np.int32)
    assert cuscan.scan(x, highest).tolist() == [3, 3, 7]
    (got,) = cuscan.scan((x,), highest, exclusive=True)
    assert got.tolist() == [-9, 3, 3]
    got = cuscan.scan(np.array([(3,), (1,)], [("value", "i4")]), highest, initial=(2,))
    assert got["value"].tolist() == [3, 3]


def test_out_of_a_structured_array_is_a_tuple():
    x = np.ones((2, 5), list(AFFINE.state.items()))
    out = np.empty((2, 5), np.float32), np.empty((2, 5), np.float32)
    assert cuscan.scan(x, AFFINE.operator(), out=out) is out
    assert out[0].tolist() == [[1] * 5] * 2 and out[1].tolist() == [[1, 2, 3, 4, 5]] * 2
    refused(ScanTypeError, "out", "scale", x=x, op=AFFINE.operator(), out=x)


def test_out_is_a_tuple():
    rng = np.random.default_rng(3)
    x = AFFINE.draw(rng, (4, 30))
    out = np.zeros((4, 30), np.float32), np.zeros((30, 8), np.float32).T[::2]
    got = cuscan.scan(x, AFFINE.operator(), out=out)
    assert got[0] is out[0] and got[1] is out[1]
    assert_fields(out, expected_of(AFFINE, x), AFFINE)
    expected = [part.copy() for part in out]
    assert_fields(cuscan.scan(x, AFFINE.operator(), out=x), expected, AFFINE)
    assert_fields(x, expected, AFFINE)


@pytest.mark.parametrize("example", [AFFINE, BRACKETS, MODULAR_PRODUCT], ids=str)
def test_tensors_of_torch(example):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    arrays = example.draw(np.random.default_rng(4), (3, 40))
    expected = expected_of(example, arrays, reverse=True)
    got = cuscan.scan(given_to_cuscan(example, [*map(torch.from_numpy, arrays)]), example.operator(), reverse=True)
    got = (got,) if example.state is None else got
    assert all(isinstance(part, torch.Tensor) for part in got)
    assert_fields(tuple(part.numpy() for part in got) if example.state else got[0].numpy(), expected, example)


@pytest.mark.parametrize(
    "later, error",
    [
        (lambda sums: sums[:1].repeat(2, 0), ScanValueError),
        (lambda sums: sums * 1j, ScanTypeError),
        (lambda sums: sums.tolist(), ScanTypeError),
        (lambda sums: sums.astype(int), None),  # any real number becomes one of the dtype
        (lambda sums: 0.0, None),
    ],
)
def test_what_like_calls_return_is_checked(later, error):
    """The recorded calls of a function are no promise about what it returns next."""
    returns = [lambda sums: sums]
    plus = cuscan.Operator("plus", "earlier + later", 0, numpy=lambda earlier, later: returns[-1](earlier + later))
    x = np.arange(40, dtype=np.float32)
    for _ in range(4):
        np.testing.assert_array_equal(cuscan.scan(x, plus), np.cumsum(x))
    returns.append(later)
    if error is None:
        assert cuscan.scan(x, plus).dtype == np.float32
    else:
        with pytest.raises(error, match="must return an array"):
            cuscan.scan(x, plus)
    returns.pop()
    np.testing.assert_array_equal(cuscan.scan(x, plus), np.cumsum(x))


def test_a_function_may_return_its_arguments():
    last = cuscan.Operator("last", "later", 0, numpy=lambda earlier, later: later)
    first = cuscan.Operator("first", "earlier", 0, numpy=lambda earlier, later: np.broadcast_arrays(earlier, later)[0])
    for n, _ in itertools.product((5, 100, 20_000), range(3)):
        x, reset = np.arange(n), np.arange(n) % 5 == 0
        assert cuscan.scan(x, last, exclusive=True).tolist() == [0, *range(n - 1)]
        got = cuscan.scan(x, last, reset=reset, exclusive=True, initial=7)
        assert got.tolist() == np.where(reset, 7, x - 1).tolist()
        assert cuscan.scan(x, first, reset=reset).tolist() == (x // 5 * 5).tolist()
        assert (x == np.arange(n)).all() and cuscan.scan(x, first, out=x).tolist() == [0] * n


# ---- the constructor ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "two words", "1st", "semi;colon", "a-b", 'quote"', 3, None], ids=repr)
def test_names_are_identifiers(name):
    with pytest.raises((ScanTypeError, ScanValueError), match="name"):
        AFFINE.operator(name=name)


@pytest.mark.parametrize("field", ["1a", "a b", "", "a;"], ids=repr)
def test_names_of_fields_are_identifiers(field):
    with pytest.raises((ScanTypeError, ScanValueError), match="state"):
        AFFINE.operator(state={field: "float32", "shift": "float32"})


@pytest.mark.parametrize("state", [{"a": "float128"}, {"a": "object"}, {"a": "text"}, {"a": 3}, {}, 5, "float32"])
def test_states_that_are_none(state):
    with pytest.raises((ScanTypeError, ScanValueError), match="state"):
        cuscan.Operator("f", "earlier", (0,), state=state)


@pytest.mark.parametrize("dtypes", [["float64"] * 3, ["float32"] * 5, ["int64", "int64", "int8"]], ids=str)
def test_states_of_more_than_16_bytes(dtypes):
    with pytest.raises(ScanValueError, match="16 bytes"):
        cuscan.Operator("f", "earlier", (0,) * len(dtypes), state=dict(zip("abcde", dtypes, strict=False)))


@pytest.mark.parametrize(
    "state, identity",
    [(AFFINE.state, 1), (AFFINE.state, (1,)), (AFFINE.state, (1, 0, 0)), (AFFINE.state, ("a", "b")), (None, (1, 0)),
     (None, "1"), (None, None), (AFFINE.state, None), ({"a": "int32"}, (0.5,)), ({"a": "uint64"}, (-1,))],
    ids=repr,
)  # fmt: skip
def test_identities_of_another_form(state, identity):
    with pytest.raises((ScanTypeError, ScanValueError), match="identity"):
        cuscan.Operator("f", "earlier", identity, state=state)


def test_an_identity_has_as_many_numbers_as_the_state():
    for identity, state, wanted in (
        (1, AFFINE.state, "a tuple of 2 numbers, one a field of state"),
        ((1, 0), None, "one number"),
    ):
        with pytest.raises(ScanTypeError, match=f"^identity must be {wanted}; got"):
            cuscan.Operator("f", "earlier", identity, state=state)


def test_identities_by_field_and_dtypes_by_type():
    arguments = {"identity": {"shift": 0, "scale": 1}, "state": {"scale": np.float32, "shift": np.dtype("float32")}}
    assert AFFINE.operator(**arguments) == AFFINE.operator()
    for identity in ({"scale": 1}, {"scale": 1, "shift": 0, "more": 0}, {"scale": 1, "shi": 0}):
        with pytest.raises(ScanValueError, match=r"^identity has fields scale.*; state has scale, shift"):
            AFFINE.operator(identity=identity)


@pytest.mark.parametrize("dtype", ["f4", "single", "torch.float32"])
def test_dtypes_of_fields_by_their_other_names(dtype):
    if dtype == "torch.float32":
        dtype = pytest.importorskip("torch", reason="torch is not installed").float32
    assert AFFINE.operator(state=dict.fromkeys(AFFINE.state, dtype)) == AFFINE.operator()


def test_other_arguments_of_the_constructor():
    for combine in ("", "  ", None, 3):
        with pytest.raises((ScanTypeError, ScanValueError), match="combine"):
            AFFINE.operator(combine=combine)
    with pytest.raises(ScanTypeError, match="numpy"):
        AFFINE.operator(numpy="np.add")


def test_operators_are_values():
    one, same = AFFINE.operator(), AFFINE.operator(state=dict(AFFINE.state))
    assert one == same and hash(one) == hash(same) and len({one, same}) == 1
    turned = dict(reversed(AFFINE.state.items()))  # the arrays come in the order of the fields
    changes = [{"name": "g"}, {"combine": "earlier"}, {"identity": (1, 1)}, {"state": turned}]
    changes += [{"numpy": None}, {"numpy": functools.partial(AFFINE.numpy)}]
    assert all(AFFINE.operator(**change) != one for change in changes)
    plain = MODULAR_PRODUCT.operator()
    followed = [MODULAR_PRODUCT.operator(vjp=vjp) for vjp in (lambda *_: (0, 0), lambda *_: (1, 1))]
    assert len({plain, *followed}) == len({op.key for op in (plain, *followed)}) == 3
    assert MODULAR_PRODUCT.operator() != one and MODULAR_PRODUCT.operator() != "modular_product"
    with pytest.raises(AttributeError):
        one.name = "other"


# ---- wrong calls --------------------------------------------------------------------------------


def refused(kind, *texts, x, op, **call):
    with pytest.raises(kind) as caught:
        cuscan.scan(x, op, **call)
    for text in texts:
        assert text in str(caught.value), f"{text!r} is not in {str(caught.value)!r}"


def test_cpu_arrays_need_the_numpy_callable():
    for example in EXAMPLES:
        x = given_to_cuscan(example, example.draw(np.random.default_rng(5), (3,)))
        refused(ScanTypeError, example.name, "numpy=", x=x, op=example.operator(numpy=None))


def test_tuples_and_single_arrays_do_not_mix():
    x, affine = np.ones(3, np.float32), AFFINE.operator()
    for op, name in (("add", "add"), (MODULAR_PRODUCT.operator(), "modular_product")):
        refused(ScanTypeError, "x", "op", name, x=(x, x), op=op)
    refused(ScanTypeError, "x", "op", "affine", x=x, op=affine)
    for parts in [(x,), (x, x, x), ()]:
        refused(ScanError, "x", "affine", x=parts, op=affine)
    refused(ScanTypeError, "x", x=np.zeros(3, [("scale", "f4"), ("other", "f4")]), op=affine)
    refused(ScanTypeError, "x[1] must be", "np.asarray(x[1])", x=(x, [1.0, 2.0, 3.0]), op=affine)
    refused(
        ScanTypeError, "x must be a tuple of 2 arrays for op='affine'; got list; pass tuple(x)", x=[x, x], op=affine
    )
    refused(ScanValueError, "x", "(3,)", "(4,)", x=(x, np.ones(4, np.float32)), op=affine)


def test_other_wrong_calls():
    x, affine = (np.ones(3, np.float32), np.ones(3, np.float32)), AFFINE.operator()
    refused(ScanTypeError, "dtype", x=x, op=affine, dtype="float32")
    for initial in (1, (1,), (1, 2, 3), ("a", "b")):
        refused((ScanTypeError, ScanValueError), "initial", x=x, op=affine, initial=initial)
    refused((ScanTypeError, ScanValueError), "initial", x=np.ones(3), op=MODULAR_PRODUCT.operator(), initial=(1,))
    refused(ScanTypeError, "out", x=x, op=affine, out=np.empty(3, np.float32))
    refused(ScanTypeError, "out", "float64", x=x, op=affine, out=(np.empty(3), np.empty(3, np.float32)))
    shared = np.empty(3, np.float32)
    refused(ScanValueError, "out", x=x, op=affine, out=(shared, shared))
    refused(ScanTypeError, "complex64", x=(np.ones(3, "complex64"), x[1]), op=affine)


def test_out_of_four_arrays():
    """Elements of the arrays may alternate in memory; any two arrays that share an element are refused."""
    rng = np.random.default_rng(0)
    x = tuple(MATRIX_PRODUCT.draw(rng, (5,)))
    product = MATRIX_PRODUCT.operator()
    memory = np.empty((9, 4), np.float32)
    between = tuple(memory[:5, field] for field in range(4))
    for got, expected in zip(cuscan.scan(x, product, out=between), cuscan.scan(x, product), strict=True):
        np.testing.assert_array_equal(got, expected)
    for one, other in itertools.combinations(range(4), 2):
        out = list(between)
        out[other] = memory[4:, one]  # its first element is the last of out[one]
        refused(ScanValueError, "arrays of out overlap", x=x, op=product, out=tuple(out))


def test_what_is_no_text_of_an_operator():
    commented = cuscan.Operator("f", "earlier + later  // we return the sum", 0, numpy=np.add)
    assert "return earlier + later  // we return the sum\n;" in commented.source
    with pytest.raises(cuscan.ScanValueError, match="field named 'int'"):
        cuscan.Operator("f", "return earlier;", (0,), state={"int": "int32"})
    short = cuscan.Operator(
        "f", "return earlier;", (0, 0), state={"a": "int32", "b": "int32"}, numpy=lambda e, _: (e["a"],)
    )
    with pytest.raises(cuscan.ScanTypeError, match="return a tuple of 2 arrays"):
        cuscan.scan((np.ones(3, np.int32), np.ones(3, np.int32)), short)
