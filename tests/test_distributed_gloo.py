"""Sharded scans of torch tensors in processes that exchange through gloo."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)

from rank_pool import Pool  # noqa: E402

PAGE = Path(__file__).parent.parent / "docs" / "distributed.md"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    opened = Pool(5, tmp_path_factory.mktemp("ranks"))
    yield opened
    opened.close()


def test_ranks(pool: Any) -> None:
    """A single test, since starting processes takes longer than everything else."""
    for size in (1, 2, 3, 5):
        pool.run("random_scans", size, 0, 6)
    pool.run("every_dtype")
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    texts = [text for text in blocks if "torch.distributed" in text]
    assert len(texts) == len(blocks) - 2 == 6  # one of the others is for CuPy, one for JAX
    pool.run("snippets", texts)
    pool.run("what_does_not_go_through_ranks")
    pool.run("chunks_in_shards")
    pool.run("empty_shards")
    pool.run("a_tensor_of_no_backend")
    assert len(set(pool.run("a_mask_that_one_rank_cannot_place"))) == 1
    first, *others = pool.run("what_dtensors_refuse")
    assert all(other == first for other in others)
    pool.run("every_name")
    pool.run("an_aborted_group")
    first, *others = pool.run("one_rank_is_wrong_at_the_door")
    assert all(other == first for other in others)
    assert all(message.startswith("the call of rank 4 is wrong: ") for message in first)
    messages = pool.run("one_rank_differs")
    assert len(set(messages)) == 1
    assert "ranks differ in dtype of x: rank 0 has float32, rank 4 float64" in messages[0]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_random_scans(pool: Any, size: int, seed: int) -> None:
    pool.run("random_scans", size, seed, 60)


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    [
        "dtensors",
        "dtensors_of_all_arguments",
        "compiled",
        "compiled_dtensors",
        "one_rank_is_missing",
        "a_rank_without_a_part",
    ],
)
def test_what_takes_longer(pool: Any, name: str) -> None:
    pool.run(name)


@pytest.mark.full
def test_the_benchmark_runs(tmp_path: Path) -> None:
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "benchmarks.ranks", "--quick"]
    subprocess.run([sys.executable, *command, "--results", str(tmp_path)], cwd=PAGE.parent.parent, check=True)
    (path,) = (tmp_path / "ranks").iterdir()
    assert [case["name"] for case in json.loads(path.read_text())["cases"]] == ["add", "linear_recurrence"]


@pytest.mark.full
def test_errors_of_ranks_arrive(pool: Any) -> None:
    with pytest.raises(AssertionError, match="rank 0: "):
        pool.run("snippets", ["assert rank > 0"])
