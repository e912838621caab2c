"""The tool that makes mistakes and counts those that tests notice (`python -m tests.mutate`)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.mutate.__main__ import Results, chosen, run
from tests.mutate.mutants import Mutant, all_mutants
from tests.mutate.runner import Tree, Verdict

ROOT = Path(__file__).resolve().parents[1]

DEVICE = """\
// a < b, in a comment
static_assert(kItems > 1 &&
              kItems < 9, "a + b");
#define CHECK(a) (a + 1)
    target::fence();  // x - y
    if (lane == 0 && at(i) < end) words[i + 1] = uint64(i);
    stage.free.wait(phase(k));
"""
HOST = '''\
"""a < b, in a docstring."""
from x import y


def least(a, b):
    """The sum a + b is not meant."""
    check(a, "a < b")  # a > b
    if a < b and True:
        return min(a - 1, b)
    return a if b else "c - d"
'''


def of_text(tmp_path: Path, name: str, text: str) -> list[tuple[str, str]]:
    """Kind and new line of all mutants."""
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    return [(mutant.kind, mutant.new.strip()) for mutants in all_mutants(tmp_path) for mutant in mutants]


def test_mutants_of_device_code(tmp_path: Path) -> None:
    words = "words[i + 1] = uint64(i);"
    assert of_text(tmp_path, "cuscan/cuda/kernels/some.cuh", DEVICE) == [
        ("deleted call", ";  // x - y"),
        ("comparison", f"if (lane != 0 && at(i) < end) {words}"),
        ("comparison", f"if (lane == 0 && at(i) <= end) {words}"),
        ("sign", "if (lane == 0 && at(i) < end) words[i - 1] = uint64(i);"),
        ("logic", f"if (lane == 0 || at(i) < end) {words}"),
        ("bits", "if (lane == 0 && at(i) < end) words[i + 1] = uint32(i);"),
        ("off by one", "if (lane == 0 && at(i) < end) words[i] = uint64(i);"),
        ("condition", f"if (true) {words}"),
        ("condition", f"if (false) {words}"),
        ("phase", "stage.free.wait(phase(k) + 1);"),
        ("deleted call", ";"),
    ]


def test_mutants_of_host_code(tmp_path: Path) -> None:
    assert of_text(tmp_path, "cuscan/some.py", HOST) == [
        ("deleted call", "pass  # a > b"),
        ("comparison", "if a <= b and True:"),
        ("logic", "if a < b or True:"),
        ("constant", "if a < b and False:"),
        ("condition", "if not (a < b and True):"),
        ("sign", "return min(a + 1, b)"),
        ("extremum", "return max(a - 1, b)"),
        ("off by one", "return min(a, b)"),
        ("condition", 'return a if not (b) else "c - d"'),
    ]


def test_the_seed_chooses_lines_once_each() -> None:
    lines = all_mutants(ROOT)
    first, second = ([str(m) for m in chosen(lines, seed)] for seed in (7, 8))
    assert first == [str(m) for m in chosen(lines, 7)] != second
    places = [m.split(" ")[0] for m in first]
    assert len(set(places)) == len(places)
    assert "target.cuh" not in "".join(first)


# ---- what is run ---------------------------------------------------------------------------------

TREE = {
    "cuscan/some.py": "def half(a):\n    return a // 2 + 0\n\n\ndef twice(a):\n    return a + a\n",
    "cuscan/cuda/kernels/wide_rows.cuh": "    int x = a + b;\n",
    "tests/test_some.py": "from cuscan.some import half, twice\n\n\ndef test_twice():\n    assert twice(3) == 6\n",
    "tests/test_other.py": "import pathlib\n\n\ndef test():\n    pass\n",
    "tests/test_kernels.py": "import simulator  # noqa\n\n\ndef test_wide_rows():\n    pass\n",
    "tests/test_gpu_some.py": "def test_nothing():\n    pass\n",
    "tests/simulator.py": "",
    "tests/conftest.py": "import pathlib, sys\nsys.path.insert(0, str(pathlib.Path(__file__).parent))\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    source, copy = tmp_path / "source", tmp_path / "copy"
    for name, text in TREE.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=source, check=True)
    return Tree(source, copy, full=False)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("git") is None, reason="git, which lists the files of the tree, is missing")
def test_mutants_are_judged_by_the_tests_that_matter(tree: Tree, tmp_path: Path) -> None:
    kernels, other, some = (f"tests/test_{name}.py" for name in ("kernels", "other", "some"))
    assert tree.steps("cuscan/some.py") == [[some], [other], [kernels]]
    assert tree.steps("cuscan/cuda/scans.cuh") == [[kernels]]
    own, *others = tree.steps("cuscan/cuda/kernels/wide_rows.cuh")
    assert own == ["-k", "wide_rows or wide-rows", kernels] and others == [[kernels]]

    half, twice = "    return a // 2 + 0", "    return a + a"
    mutants = [
        Mutant("cuscan/some.py", 6, "sign", twice, twice.replace("+", "-")),
        Mutant("cuscan/some.py", 2, "sign", half, half.replace("+", "-")),
        Mutant("cuscan/some.py", 2, "sign", half, half.replace("+", "+ )")),
    ]
    path, header = tmp_path / "results.jsonl", {"seed": 1}
    tried = run(tree, iter(mutants), Results(path, header), 5, 100)
    assert [verdict.status for _, verdict in tried] == ["noticed", "unnoticed"]
    assert tried[0][1].by == "tests/test_some.py::test_twice"

    # The same command goes on: what was tried is not run again.
    results = Results(path, header)
    assert [results.get(mutant) is not None for mutant in mutants] == [True] * 3
    results.add(mutants[0], Verdict("unnoticed", "", 0))
    again = run(tree, iter(mutants), Results(path, header), 5, 0)
    assert [verdict.status for _, verdict in again] == ["unnoticed", "unnoticed"]
    with pytest.raises(SystemExit):
        Results(path, {"seed": 2})
