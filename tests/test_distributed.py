"""Sharded scans compared with the whole, with threads as ranks: results in NumPy, derivatives in torch."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from operator_examples import AFFINE, MODULAR_PRODUCT
from sharding import Sample, agree, call_of, draw_sample, on_threads

import cuscan
import cuscan.distributed
from cuscan import ScanTypeError, ScanValueError
from cuscan.distributed import sharded
from cuscan.distributed.header import check_headers
from cuscan.distributed.namespaces import ArrayNamespace
from cuscan.linearised import Call
from cuscan.request.call import CARRY, Flags

SIZES = (1, 2, 3, 5)
XP = ArrayNamespace(np)
SEEDS = [pytest.param(seed, marks=(pytest.mark.full,) if seed else ()) for seed in range(10)]


def scan_shard(sample: Sample, ranks: Any) -> tuple[Any, ...]:
    call, arrays = sharded.prepare(*call_of(sample, ranks.rank), ranks, XP)
    return sharded.scan(call, arrays, ranks, XP)


@pytest.mark.parametrize("seed", SEEDS)
def test_shards_give_the_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(100):
        sample = draw_sample(rng, SIZES)
        parts = on_threads(len(sample.pieces), functools.partial(scan_shard, sample))
        agree(parts, sample.whole(), sample.axis)
        for rank, part in enumerate(parts):
            assert part[0].shape == sample.result_piece(sample.whole()[0], rank).shape


@pytest.mark.parametrize("seed", SEEDS)
def test_a_carry_comes_in_and_goes_out(seed: int) -> None:
    """The results are those of one call on all shards, joined."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        sample = draw_sample(rng, SIZES)
        if sample.op == "linear_recurrence":
            sample.keywords["initial"] = None
        function = functools.partial(sample.function(cuscan), **sample.beside, **sample.keywords, return_carry=True)
        *_, carry = function(*(np.roll(array, 1, sample.axis) for array in sample.values.values()))
        *expected, behind = function(*sample.values.values(), carry=carry)
        parts = on_threads(len(sample.pieces), functools.partial(scan_shard_behind, sample, carry))
        agree([part[:-1] for part in parts], expected, sample.axis)
        for *_, found in parts:
            for one, other in zip(as_fields(found), as_fields(behind), strict=True):
                assert np.asarray(one).dtype == np.asarray(other).dtype
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_carry_goes_through_shards_without_elements() -> None:
    keywords = {"axis": 1, "reverse": False, "initial": None}
    sample = Sample("add", {"x": np.ones((2, 0))}, {"keys": np.ones(0, int)}, keywords, [(0, 0), (0, 0)])
    carry = np.array([3.0, 4.0]), np.array([7, 8])
    for *_, found in on_threads(2, functools.partial(scan_shard_behind, sample, carry)):
        np.testing.assert_array_equal(found, carry)


def as_fields(carry: Any) -> tuple[Any, ...]:
    return carry if isinstance(carry, tuple) else (carry,)


def scan_shard_behind(sample: Sample, carry: Any, ranks: Any) -> tuple[Any, ...]:
    call, arrays = call_of(sample, ranks.rank)
    fields = tuple(map(np.asarray, as_fields(carry)))
    names = CARRY[1 : 1 + len(fields)] if isinstance(carry, tuple) else CARRY[:1]
    call = call._replace(flags=call.flags._replace(return_carry=True), roles=(*call.roles, *names))
    arrays = (*arrays, *fields)
    key = sharded.last_key(call, arrays, ranks, XP) if sharded.returns_key(call) else None
    return sharded.with_carry(sharded.scan(*sharded.prepare(call, arrays, ranks, XP), ranks, XP), call, key)


def shards(values: Any, cuts: list[int], op: Any = "add", initial: Any = None, **arguments: Any) -> list[Any]:
    """The first result of each shard, for arrays of one dimension."""
    flags = {name: arguments.pop(name) for name in Flags._fields if name in arguments}
    pieces = list(zip([0, *cuts], [*cuts, len(values[0])], strict=True))

    def work(ranks: Any) -> Any:
        some = slice(*pieces[ranks.rank])
        given = {f"x[{i}]": value[some] for i, value in enumerate(values)}
        given |= {name: array if name == "offsets" else array[some] for name, array in arguments.items()}
        call, arrays = sharded.prepare(
            Call(Flags(op, **flags), tuple(given), initial), tuple(given.values()), ranks, XP
        )
        return sharded.scan(call, arrays, ranks, XP)

    return on_threads(len(pieces), work)


def test_segments_across_borders() -> None:
    x = np.array([1, 2, 3, 4, 5, 6])
    segments = [
        {"offsets": np.array([0, 2, 4, 6])},
        {"keys": np.array([1, 1, 7, 7, 1, 1])},
        {"reset": np.arange(6) % 2 == 0},
    ]
    for given in segments:
        for cuts in ([2], [3], [3, 3], [0, 5], [1, 2, 3, 4, 5]):
            parts = shards((x,), cuts, **given)
            assert np.concatenate([part[0] for part in parts]).tolist() == [1, 3, 3, 7, 5, 11], (given, cuts)


def test_where_the_extra_element_goes() -> None:
    x = np.array([1, 2, 3, 4])
    lengths = {
        (): [3, 2],
        ("reverse",): [2, 3],
        ("exclusive",): [3, 2],  # no segments: what precedes the first element, then the inclusive results
        ("exclusive", "reset"): [2, 3],
        ("exclusive", "reset", "reverse"): [3, 2],
    }
    for names, expected in lengths.items():
        call = {name: np.array([0, 1, 0, 0], bool) if name == "reset" else True for name in names}
        parts = shards((x,), [2], include_initial=True, initial=10, **call)
        assert [len(part[0]) for part in parts] == expected
        whole = cuscan.scan(x, include_initial=True, initial=10, **call)
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), whole)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("example", [AFFINE, MODULAR_PRODUCT], ids=str)
def test_operators_of_users(example: Any, reverse: bool) -> None:
    op, values = example.operator(), example.draw(np.random.default_rng(0), (50,))
    parts = shards(values, [7, 7, 20], op, reverse=reverse)
    whole = cuscan.scan(values if example.state else values[0], op, reverse=reverse)
    for i, expected in enumerate(whole if example.state else (whole,)):
        np.testing.assert_array_equal(np.concatenate([part[i] for part in parts]), expected)


def test_messages_of_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages that NCCL would gather are taken apart again. NumPy stands in for CuPy, which has the same functions."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from cuscan.distributed import cupy

    monkeypatch.setattr(cupy, "cupy", np)
    arrays = [np.arange(3, dtype=np.uint8), np.full((), 2.5), np.zeros((0, 2)), np.arange(4.0).reshape(2, 2)]

    class Comm:
        rank, _n_devices = 0, 2

        def all_gather(self, message: Any, whole: Any, count: int) -> None:
            assert message.size == count
            whole[...] = message

    for some in (arrays, arrays[:1], arrays[2:3]):
        for array, both in zip(some, cupy.CommRanks(Comm()).gather(some), strict=True):
            assert both.dtype == array.dtype
            np.testing.assert_array_equal(both, np.stack([array, array]))
    with pytest.raises(ScanTypeError, match=r"init_process_group returns; got int"):
        cupy.CommRanks(3)


def test_bools_are_added_as_bools() -> None:
    parts = shards((np.array([True, True, False, True]),), [1, 2], dtype="bool")
    assert np.concatenate([part[0] for part in parts]).tolist() == [True] * 4


def test_carries_between_ranks_are_wide() -> None:
    """float32 cannot represent 2**24 + 1: a carry of float32 would lose every later 1."""
    x = np.ones(8, np.float32)
    x[0] = 2**24
    assert shards((x,), [1, 2, 3, 4, 5, 6, 7])[-1][0] == 2**24 + 8  # 7 more, rounded once


def test_wrong_offsets_are_an_error() -> None:
    with pytest.raises(ScanValueError, match=r"end with the size of the axis \(4\)"):
        shards((np.ones(4),), [2], offsets=np.array([0, 2]))


def test_a_wrong_order_of_ranks_is_noticed() -> None:
    """The tests above can fail: pieces in a different order than the ranks form another sequence."""
    sample = Sample("add", {"x": np.arange(6)}, {}, {"axis": 0, "reverse": False, "initial": None}, [(3, 6), (0, 3)])
    with pytest.raises(AssertionError):
        agree(on_threads(2, functools.partial(scan_shard, sample)), sample.whole(), 0)


# ---- validate=True ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other, message",
    [
        ({"dtype": "float32"}, "ranks differ in dtype of the result: rank 0 has float64, rank 1 float32"),
        ({"op": "mul"}, "ranks differ in op: rank 0 has add, rank 1 mul"),
        ({"reverse": True}, "ranks differ in flags: rank 0 has exclusive, rank 1 reverse, exclusive"),
        ({"shape": (4, 3)}, r"ranks differ in the other axes: rank 0 has \(2,\), rank 1 \(4,\)"),
        ({"axis": 0}, "ranks differ in axis: rank 0 has 1 of 2, rank 1 0 of 2"),
        ({"axis": 5}, "the call of rank 1 is wrong: axis 5 is out of range"),
    ],
)
def test_all_ranks_raise_the_same_error(other: dict[str, Any], message: str) -> None:
    def work(ranks: Any) -> str:
        own = dict(other) if ranks.rank else {}
        x = np.ones(own.pop("shape", (2, 3)))
        flags = Flags("add", 1, exclusive=True)._replace(**own)
        with pytest.raises(ScanValueError, match=message) as raised:
            check_headers(Call(flags, ("x",)), (x,), ranks, XP, None)
        return str(raised.value)

    assert len(set(on_threads(2, work))) == 1


def test_a_mask_that_one_rank_cannot_place_is_the_same_error_on_all() -> None:
    """On rank 1 alone, the mask's length fits two axes."""

    def work(ranks: Any) -> str:
        x, mask = np.ones((3 + ranks.rank, 4)), np.ones(3 + ranks.rank, bool)
        with pytest.raises(ScanValueError, match=r"^the call of rank 1 is wrong: mask of shape \(4,\)") as raised:
            check_headers(Call(Flags("add", 0), ("x", "mask")), (x, mask), ranks, XP, None)
        return str(raised.value)

    assert len(set(on_threads(2, work))) == 1


def test_shards_may_differ_in_length_alone() -> None:
    on_threads(3, lambda ranks: check_headers(Call(Flags("add"), ("x",)), (np.ones((2, ranks.rank)),), ranks, XP, None))


def test_keywords_that_are_none_are_errors_of_the_function_that_was_called() -> None:
    for name, keyword in (("cumsum", "keepdims"), ("nancumsum", "skipna"), ("cummax", "op")):
        with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument '{keyword}'$"):
            getattr(cuscan.distributed, name)(np.ones(3), **{keyword: True})


def test_what_is_missing() -> None:
    with pytest.raises(ScanTypeError, match=r"CuPy arrays need comm.*\(cuscan\.distributed\.scan\)"):
        cuscan.distributed.scan(np.ones(3))
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.distributed.is_available():
        with pytest.raises(ScanValueError, match="init_process_group"):
            cuscan.distributed.cumsum(torch.ones(3))


# ---- derivatives -----------------------------------------------------------------------------------------------------


def gradients(torch: Any, sample: Sample, leaves: dict[str, Any], results: Any, weights: Any, second: Any) -> Any:
    """First and second derivatives of a weighted sum of results with respect to every leaf."""
    first = torch.autograd.grad((results[0] * weights).sum(), list(leaves.values()), create_graph=True)
    pairs = zip(first, leaves, strict=True)
    slope = sum((gradient * second[name]).sum() for gradient, name in pairs)
    slope = slope + 0 * sum(leaf.sum() for leaf in leaves.values())  # a sum has a constant derivative
    return [*first, *torch.autograd.grad(slope, list(leaves.values()), allow_unused=True)]


def differentiate_shard(torch: Any, sample: Sample, weights: Any, second: Any, ranks: Any) -> Any:
    from cuscan.distributed.torch import ShardedTorch, scan

    xp, leaf_names = ShardedTorch(ranks), [*sample.values, "initial"]
    call, arrays = call_of(sample, ranks.rank, torch.from_numpy)
    leaves = {
        name: array.clone().requires_grad_()
        for name, array in zip(call.roles, arrays, strict=True)
        if name in leaf_names
    }
    given = tuple(leaves.get(name, array) for name, array in zip(call.roles, arrays, strict=True))
    has_total = (
        call.flags.include_initial and call.flags.exclusive and bool({*call.roles} & {"reset", "keys", "offsets"})
    )
    results = scan(*sharded.prepare(call, given, ranks, xp), xp, has_total=has_total)
    own = {name: part if name == "initial" else sample.piece(part, ranks.rank) for name, part in second.items()}
    return gradients(torch, sample, leaves, results, sample.result_piece(weights, ranks.rank), own)


@pytest.mark.parametrize("seed", SEEDS)
def test_derivatives(seed: int) -> None:
    """Gradients of shared arrays, summed over ranks, and of shards, joined, are those of the whole."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng([seed, 1])
    for _ in range(15 if seed == 0 else 70):
        sample = draw_sample(rng, SIZES, ["float64"], 7)
        arrays = {**sample.values}
        if isinstance(sample.keywords["initial"], np.ndarray):
            arrays["initial"] = sample.keywords["initial"]
        leaves = {name: torch.from_numpy(array.copy()).requires_grad_() for name, array in arrays.items()}
        beside = {name: torch.from_numpy(array) for name, array in sample.beside.items()}
        keywords = sample.keywords | {name: leaves[name] for name in leaves if name == "initial"}
        whole = sample.function(cuscan)(*(leaves[name] for name in sample.values), **beside, **keywords)
        whole = whole if isinstance(whole, tuple) else (whole,)
        weights = torch.from_numpy(rng.standard_normal(tuple(whole[0].shape)))
        second = {name: torch.from_numpy(rng.standard_normal(array.shape)) for name, array in arrays.items()}
        expected = gradients(torch, sample, leaves, whole, weights, second)
        work = functools.partial(differentiate_shard, torch, sample, weights, second)
        found = on_threads(len(sample.pieces), work, torch.stack)
        for i, name in enumerate([*leaves] * 2):
            parts = [rank[i] for rank in found]
            joined = sum(parts) if name == "initial" else torch.cat(parts, sample.axis)
            torch.testing.assert_close(joined, expected[i], rtol=1e-7, atol=1e-7)


def test_derivatives_of_operators_of_users() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from cuscan.distributed.torch import ShardedTorch, scan

    either = cuscan.Operator(
        "either",
        "earlier + later - earlier * later",
        0,
        numpy=lambda earlier, later: earlier + later - earlier * later,
        vjp=lambda earlier, later, g: (g * (1 - later), g * (1 - earlier)),
    )
    x = torch.rand(9, dtype=torch.float64)

    def work(ranks: Any) -> Any:
        xp, shard = ShardedTorch(ranks), x[4 * ranks.rank : 4 * ranks.rank + 4].clone().requires_grad_()
        (result,) = scan(*sharded.prepare(Call(Flags(either), ("x",)), (shard,), ranks, xp), xp)
        return torch.autograd.grad(result.square().sum(), shard)[0]

    whole = x.clone().requires_grad_()
    cuscan.scan(whole, either).square().sum().backward()
    torch.testing.assert_close(torch.cat(on_threads(3, work, torch.stack)), whole.grad)
