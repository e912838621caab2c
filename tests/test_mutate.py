"""The tool that makes random mistakes and counts those that tests notice (`python -m tests.mutate`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutate.__main__ import chosen
from tests.mutate.campaign import Campaign, Results
from tests.mutate.mutants import Mutant, all_mutants
from tests.mutate.runner import Tree
from tests.mutate.steps import Suite

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
    """The kind and the new line of each mutant."""
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


# ---- tests that run ------------------------------------------------------------------------------

TREE = {
    "cuscan/some.py": "def half(a):\n    return a // 2 + 0\n\n\ndef twice(a):\n    return a + a\n",
    "cuscan/cuda/kernels/wide_rows.cuh": "    int x = a + b;\n    int y = c + d;\n",
    "tests/test_some.py": """from cuscan.some import half, twice

def test_never_passes():
    assert False

def test_twice():
    assert twice(3) == 6
""",
    "tests/test_other.py": "import pathlib\n\n\ndef test():\n    pass\n",
    "tests/test_kernels.py": """import pathlib
import simulator  # noqa

HEADER = pathlib.Path("cuscan/cuda/kernels/wide_rows.cuh")

def test_wide_rows():
    assert "a + b" in HEADER.read_text(), f"'a + b' is 0 times in kernels/wide_rows.cuh"

def test_all():
    assert "c + d" in HEADER.read_text()
""",
    "tests/test_gpu_some.py": "def test_nothing():\n    pass\n",
    "tests/simulator.py": "",
    "tests/conftest.py": """import pathlib, sys
sys.path.insert(0, str(pathlib.Path(__file__).parent))

def pytest_addoption(parser):
    parser.addoption("--full", action="store_true")
""",
}
KERNELS, OTHER, SOME = (f"tests/test_{name}.py" for name in ("kernels", "other", "some"))
TESTS = [f"{KERNELS}::test_all", f"{KERNELS}::test_wide_rows", f"{OTHER}::test"]
TESTS += [f"{SOME}::test_never_passes", f"{SOME}::test_twice"]
HALF, TWICE = "    return a // 2 + 0", "    return a + a"
MUTANTS = [
    Mutant("cuscan/some.py", 6, "sign", TWICE, TWICE.replace("+", "-")),
    Mutant("cuscan/some.py", 2, "sign", HALF, HALF.replace("+", "-")),
    Mutant("cuscan/some.py", 2, "sign", HALF, HALF.replace("+", "+ )")),
    Mutant("cuscan/cuda/kernels/wide_rows.cuh", 1, "sign", "    int x = a + b;", "    int x = a - b;"),
    Mutant("cuscan/cuda/kernels/wide_rows.cuh", 2, "sign", "    int y = c + d;", "    int y = c - d;"),
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "source"


def suite_of(source: Path) -> Suite:
    modules = {path.name: path.read_text() for path in (source / "tests").glob("test_*.py")}
    return Suite(modules, TESTS, TESTS[:2], {})


def test_likely_tests_come_first(source: Path) -> None:
    suite = suite_of(source)
    assert suite.steps("cuscan/some.py") == [[TESTS[3], TESTS[4], TESTS[2]], TESTS[:2]]
    assert suite.steps("cuscan/cuda/kernels/wide_rows.cuh") == [[TESTS[1]], [TESTS[0]]]
    assert [sorted(step) for step in suite.steps("cuscan/cuda/scans.cuh")] == [TESTS[:2]]


@pytest.mark.full
@pytest.mark.parametrize("jobs", [1, 3])
def test_mutants_are_judged_by_the_tests_that_matter(jobs: int, source: Path, tmp_path: Path) -> None:
    assert sorted(Tree(source, tmp_path / "copy").collect()) == sorted([*TESTS, "tests/test_gpu_some.py::test_nothing"])

    def tried(cases: int, seconds: float) -> list[tuple[str, str]]:
        results = Results(tmp_path / "results.jsonl", {"seed": 1})
        campaign = Campaign(source, suite_of(source), MUTANTS, results, cases=cases, step_seconds=100)
        trials = campaign.run(tmp_path / f"trees-{cases}", jobs, seconds)
        return [(trial.verdict, trial.by) for trial in trials]

    first = [("noticed", TESTS[4]), ("unnoticed", ""), ("unnoticed", "")]
    assert tried(3, 100) == first
    # The same command continues: mutants that were tried are not run again.
    assert tried(4, 100) == [*first, ("noticed", TESTS[0])]
    with pytest.raises(SystemExit):
        Results(tmp_path / "results.jsonl", {"seed": 2})


@pytest.mark.full
def test_a_process_that_hangs_or_dies_is_noticed(source: Path, tmp_path: Path) -> None:
    (source / "tests" / "test_other.py").write_text("import os, time\n\ndef test():\n    os.abort()\n")
    tree = Tree(source, tmp_path / "copy")
    assert tree.run([TESTS[1], TESTS[2]], "step.txt", 100).by == TESTS[2]
    (source / "tests" / "test_other.py").write_text("import os, time\n\ndef test():\n    time.sleep(1000)\n")
    assert Tree(source, tmp_path / "other").run([TESTS[2]], "step.txt", 5).status == "hung"
