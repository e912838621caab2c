"""Imports go one way, and `import cuscan` imports no framework."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

import cuscan

PACKAGE = Path(cuscan.__file__).parent
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

# Packages that only arrays on a GPU need.
PLANNING = ("planning", "compile")

# Each may import layers before it, and modules of its own package. `cuscan` is the package's own __init__.py.
LAYERS = [
    "errors", "versions", "kept", "dtypes", "order", "states", "operators", "signatures", "specs", "interop", "request",
    "planning", "compile", "trials", "custom", "words", "places", "imagined", "backends", "warming", "linearised",
    "steps", "carried", "derivatives", "autograd", "api", "functions", "transfers", "chunks", "explaining", "cuscan",
    "distributed", "dask", "bench", "cli", "__main__",
]  # fmt: skip

GUESTS = {
    "torch": ("interop/torch", "autograd/torch", "distributed/torch.py", "distributed/dtensors.py", "bench/"),
    "cupy": (
        "interop/cupy.py",
        "distributed/cupy.py",
        "transfers.py",
        "dask.py",
        "compile/module.py",
        "backends/cuda.py",
        "backends/graphs.py",
        "backends/kernel.py",
        "backends/memory.py",
        "backends/workspace.py",
        "backends/xla_gpu.py",
        "bench/",
    ),
    "dask": ("dask.py",),
    "rich": ("bench/", "cli.py"),
    "matplotlib": ("bench/",),
    "jax": ("interop/jax.py", "autograd/jax", "distributed/jax.py", "bench/"),
}


def layer_of(module: str) -> str:
    """The layer of a file such as "kept.py", "interop/numpy.py" or "__init__.py"."""
    head = module.split("/", maxsplit=1)[0].removesuffix(".py")
    return "cuscan" if head == "__init__" else head


def imports(source: str) -> Iterator[str]:
    """The dotted names that a module imports at run time, at its top or in functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def wrong_ways(module: str, source: str) -> list[str]:
    """The imports of a module that go upwards."""
    own = layer_of(module)
    wrong = []
    for name in imports(source):
        head, *rest = name.split(".")
        if head != "cuscan":
            continue
        other = rest[0] if rest and rest[0] in LAYERS else "cuscan"
        if other != own and LAYERS.index(other) > LAYERS.index(own):
            wrong.append(name)
    return wrong


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_one_way(module: str) -> None:
    assert layer_of(module) in LAYERS, f"{module} has no place among the layers"
    assert wrong_ways(module, (PACKAGE / module).read_text()) == []


def test_the_wrong_way_is_noticed() -> None:
    assert wrong_ways("planning/rows.py", "def f():\n    from cuscan.backends import host") == ["cuscan.backends.host"]
    assert wrong_ways("request/call.py", "if TYPE_CHECKING:\n    from cuscan.planning import Target") == []


def module_of(name: str, modules: Collection[str]) -> str:
    """The file of a dotted name, which is a module or a name in one."""
    parts = name.split(".")[1:]
    for end in range(len(parts), -1, -1):
        stem = "/".join(parts[:end])
        for file in (f"{stem}.py", f"{stem}/__init__.py".lstrip("/")):
            if file in modules:
                return file
    raise AssertionError(f"{name} is in no module")


def circle_among(sources: Mapping[str, str]) -> list[str]:
    """A circle of modules, each of which imports the next one; empty if there is none.

    The implicit import of a module's package does not count.
    """
    graph = {
        module: {module_of(name, sources) for name in imports(source) if name.split(".")[0] == "cuscan"} - {module}
        for module, source in sources.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other() -> None:
    assert circle_among({module: (PACKAGE / module).read_text() for module in MODULES}) == []


def test_a_circle_is_noticed() -> None:
    sources = {
        "__init__.py": "from cuscan.a import f",
        "a.py": "from cuscan import b",
        "b/__init__.py": "def g():\n    from cuscan.b.c import h",
        "b/c.py": "from cuscan.a import f",
    }
    assert set(circle_among(sources)) == {"a.py", "b/__init__.py", "b/c.py"}
    assert circle_among({**sources, "b/c.py": "if TYPE_CHECKING:\n    from cuscan.a import f"}) == []
    assert set(circle_among({**sources, "b/c.py": "import cuscan"})) == {*sources}


@pytest.mark.parametrize("module", MODULES)
def test_guests_stay_in_their_rooms(module: str) -> None:
    for name in imports((PACKAGE / module).read_text()):
        rooms = GUESTS.get(name.split(".")[0])
        assert rooms is None or module.startswith(rooms), f"{module} imports {name}"


def imported_by(code: str) -> list[str]:
    """The names of all modules that a new process has imported after some lines of code."""
    code += "\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    return done.stdout.split()


ON_THE_CPU = """
import cuscan, numpy
x, ends = numpy.ones((3, 40), numpy.float32), numpy.array([0, 7, 40])
cuscan.cumsum(x, axis=0, out=numpy.empty((40, 3), numpy.float32).T)
cuscan.scan(x, cuscan.Operator("larger", "max(earlier, later)", 0, numpy=numpy.maximum), offsets=ends)
cuscan.linear_recurrence(x, x, reverse=True)
cuscan.cummax(x.astype("int8"), return_indices=True, mask=x > 0)
"""


def test_arrays_on_the_cpu_bring_no_framework_and_no_planner() -> None:
    found = imported_by(ON_THE_CPU)
    assert "cuscan.backends.host" in found
    assert {name.split(".")[0] for name in found} & {"cupy", "dask", "torch", "jax", "rich", "matplotlib"} == set()
    assert [name for name in found if name.startswith("cuscan.") and name.split(".")[1] in PLANNING] == []


def test_what_plans_is_imported_when_it_is_used() -> None:
    assert "cuscan.planning" in imported_by("from cuscan import explain, warm; assert explain.__name__ == 'explain'")
    assert {"explain", "warm"} <= set(dir(cuscan)) and set(cuscan.__all__) <= set(dir(cuscan))
    with pytest.raises(AttributeError, match="module 'cuscan' has no attribute 'plans'"):
        _ = cuscan.plans  # type: ignore[attr-defined]
