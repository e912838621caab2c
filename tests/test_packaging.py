"""The wheel contains everything that a scan needs: it is built, installed elsewhere, and used from there."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

SCAN = """
import sys
sys.path.insert(0, {target!r})
import cuscan, numpy
from cuscan.compile.source import headers
assert cuscan.__file__.startswith({target!r}), cuscan.__file__
assert cuscan.cumsum(numpy.arange(5), reverse=True).tolist() == [10, 10, 9, 7, 4]
print(*headers())
"""


def in_process(*words: object, cwd: Path) -> str:
    """Run Python in a folder from which it does not find the source tree."""
    done = subprocess.run([sys.executable, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("build", "setuptools"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "cuscan", source / "cuscan", ignore=shutil.ignore_patterns("__pycache__"))
    in_process("-m", "build", "--wheel", "--no-isolation", "--outdir", dist, source, cwd=dist)
    (built,) = dist.glob("*.whl")
    return built


def test_wheel_holds_every_file(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "cuscan").rglob("*")
        if path.suffix in (".py", ".cuh") or path.name == "py.typed"
    }
    assert package <= held and "cuscan/py.typed" in held  # because of it, type checkers read the annotations
    assert not [name for name in held if name.startswith(("tests/", "benchmarks/"))]


def test_wheel_depends_on_numpy_alone(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    needs = [line for line in archive.read(name).decode().splitlines() if line.startswith("Requires-Dist:")]
    assert [line for line in needs if "extra ==" not in line] == ["Requires-Dist: numpy>=1.25"]


def test_scan_from_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    in_process("-m", "pip", "install", "--quiet", "--no-deps", "--target", target, wheel, cwd=tmp_path)
    headers = in_process("-c", SCAN.format(target=str(target)), cwd=tmp_path).split()
    expected = (ROOT / "cuscan" / "cuda").rglob("*.cuh")
    assert sorted(headers) == sorted(path.relative_to(ROOT / "cuscan" / "cuda").as_posix() for path in expected)
