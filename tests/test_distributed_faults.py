"""Faults between ranks: transports that fail, arrays on another device; and the number of exchanges."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from operator_examples import AFFINE, MODULAR_PRODUCT
from sharding import Meeting, ThreadRanks, on_threads

import cuscan
from cuscan import ScanTypeError, ScanValueError
from cuscan.distributed import sharded
from cuscan.distributed.header import check_headers
from cuscan.distributed.namespaces import ArrayNamespace
from cuscan.interop import adopt
from cuscan.linearised import Call
from cuscan.request.call import Flags, Operands

XP = ArrayNamespace(np)


def scan(ranks: Any, op: Any = "add", **arrays: Any) -> Any:
    call, given = sharded.prepare(Call(Flags(op), tuple(arrays)), tuple(arrays.values()), ranks, XP)
    return sharded.scan(call, given, ranks, XP)


class Counted(ThreadRanks):
    """Ranks that record the sizes of their messages."""

    def __init__(self, ranks: ThreadRanks) -> None:
        super().__init__(ranks.rank, ranks._meeting)
        self.messages: list[int] = []  # sizes in bytes

    def gather(self, arrays: Any) -> list[Any]:
        self.messages.append(sum(array.nbytes for array in arrays))
        return super().gather(arrays)


@pytest.mark.parametrize(
    "op, beside, expected",
    [
        ("add", {}, [4 * 8]),  # a carry for each of four lines
        ("add", {"reset": np.zeros((4, 1000), bool)}, [4 * 8 + 4]),  # and whether a segment starts
        (cuscan.operators.INDEXED["max", "first"], {}, [4 * (4 + 8) + 8]),  # and positions, and a length
        ("add", {"offsets": np.array([0, 3000])}, [8, 4 * 8 + 1]),  # lengths first
        ("add", {"keys": np.zeros(1000, np.int32)}, [4 + 8, 4 * 8 + 1]),  # keys at the borders, and lengths
    ],
)
def test_one_exchange_of_carries(op: Any, beside: dict[str, Any], expected: list[int]) -> None:
    """One exchange, however long the shards are; results that depend on the places of other shards take one more."""

    def work(ranks: Any) -> list[int]:
        counted = Counted(ranks)
        scan(counted, op, x=np.ones((4, 1000), np.float32), **beside)
        return counted.messages

    assert on_threads(3, work) == [expected] * 3


def test_a_transport_that_fails() -> None:
    """The caller gets the transport's own error, as from an aborted communicator; a call on other ranks works."""

    class Aborted(ThreadRanks):
        def gather(self, arrays: Any) -> list[Any]:
            raise RuntimeError("the communicator was aborted")

    with pytest.raises(RuntimeError, match="the communicator was aborted"):
        scan(Aborted(1, Meeting(2)), x=np.ones(3))
    parts = on_threads(2, lambda ranks: scan(ranks, x=np.ones(3))[0])
    assert np.concatenate(parts).tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "own, message",
    [
        ({"initial": 3}, "ranks differ in initial: rank 0 has None, rank 1 3"),
        ({"skipna": True}, "ranks differ in flags: rank 0 has , rank 1 skipna"),
        ({"include_initial": True, "initial": 0}, "ranks differ in flags: rank 0 has , rank 1 include_initial"),
        ({"mask": np.ones((2, 3), bool)}, "ranks differ in arguments: rank 0 has x, rank 1 x, mask"),
        ({"keys": np.ones(3)}, "ranks differ in arguments: rank 0 has x, rank 1 x, keys"),
        ({"op": MODULAR_PRODUCT.operator()}, "ranks differ in .*: rank 0 has .*, rank 1 "),
        ({"mask": np.ones((2, 3))}, "the call of rank 1 is wrong: mask must have dtype bool"),
    ],
)
def test_all_ranks_raise_the_same_error(own: dict[str, Any], message: str) -> None:
    """For the arrays beside x; test_distributed.py has more."""

    def work(ranks: Any) -> str:
        given = own if ranks.rank else {}
        flags = Flags("add")._replace(**{name: value for name, value in given.items() if name in Flags._fields})
        arrays = {"x": np.ones((2, 3))} | {name: a for name, a in given.items() if isinstance(a, np.ndarray)}
        call = Call(flags, tuple(arrays), given.get("initial"))
        with pytest.raises(ScanValueError, match=message) as raised:
            check_headers(call, tuple(arrays.values()), ranks, XP, None)
        return str(raised.value)

    assert len(set(on_threads(2, work))) == 1


def test_operators_of_users_have_headers() -> None:
    """Their text has several lines, and is longer than a header."""
    values = AFFINE.draw(np.random.default_rng(0), (5,))
    call = Call(Flags(AFFINE.operator()), tuple(f"x[{i}]" for i in range(len(values))))
    on_threads(2, lambda ranks: check_headers(call, values, ranks, XP, None))


# ---- arrays on another device than the ranks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config, bound, device, message",
    [
        ("cuda:nccl", None, "cpu", r"x is on cpu, and the group exchanges what .* \(cuda:nccl\): move x, or make"),
        ("cpu:gloo,cuda:nccl", "cuda:1", "cuda:0", "x is on cuda:0, and the group of this rank on cuda:1: move x"),
        ("cpu:gloo,cuda:nccl", "cuda:1", "cuda:1", ""),
        ("cpu:gloo,cuda:nccl", "cuda:1", "cpu", ""),
        ("cuda:nccl", None, "cuda:5", ""),
    ],
)
def test_tensors_that_a_group_does_not_exchange(
    config: str, bound: str | None, device: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    from cuscan.distributed.torch import GroupRanks

    group = SimpleNamespace(bound_device_id=None if bound is None else torch.device(bound))
    for name, answer in {"is_initialized": True, "get_rank": 0, "get_world_size": 2}.items():
        monkeypatch.setattr(torch.distributed, name, lambda *group, answer=answer: answer)
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda group: config)
    if not message:
        assert GroupRanks(group, torch.device(device)).size == 2
        return
    with pytest.raises(ScanValueError, match=message):
        GroupRanks(group, torch.device(device))


class Comm:
    """A communicator of `cupyx.distributed` on GPU 1, with NumPy arrays."""

    rank, _n_devices = 0, 2
    _comm = SimpleNamespace(device_id=lambda: 1)

    def all_gather(self, message: Any, whole: Any, count: int) -> None:
        whole[0], whole[1] = message, np.frombuffer(b"op: add".ljust(count), np.uint8)  # rank 1 is right


def test_cupy_arrays_on_another_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes before any exchange; with `validate` the other ranks raise it, too."""
    pytest.importorskip("cupy", reason="CuPy is not installed")
    from cuscan.distributed import cupy

    stub = SimpleNamespace(**vars(np), cuda=SimpleNamespace(Device=lambda device: pytest.MonkeyPatch.context()))
    monkeypatch.setattr(cupy, "cupy", stub)
    operands = Operands((adopt(np.ones(3)),))
    wrong = "x is on GPU 0, and comm of this rank on GPU 1: move x there"
    with pytest.raises(ScanValueError, match=f"^{wrong}"):
        cupy.run(Flags("add"), operands, None, Comm())
    with pytest.raises(ScanValueError, match=f"^the call of rank 0 is wrong: {wrong}"):
        cupy.run(Flags("add", validate=True), operands, None, Comm())
    with pytest.raises(ScanTypeError, match="comm must be what"):
        cupy.run(Flags("add", validate=True), operands, None, 3)
