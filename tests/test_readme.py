"""Snippets of the README and docs/ run and give the stated results; the README has two commands; links are valid."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import has_gpu
from operator_examples import EXAMPLES, MODULAR_PRODUCT

import cuscan
from benchmarks import report

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))]
TEXTS = {page: (ROOT / page).read_text() for page in PAGES}
README, REFERENCE = TEXTS["README.md"], TEXTS["docs/reference.md"]


def fences(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXTS[page], re.M | re.S)


SNIPPETS = {f"{page}-{i}": text for page in PAGES for i, text in enumerate(fences(page, "python"))}
COMMANDS = [text.strip() for text in fences("README.md", "bash")]
CLAIM = re.compile(r"^(\S.*?)  # (?:.*: )?(\[.*\])$", re.M)  # an expression, and the value in its comment
SPEED_UP = re.compile(r"^\w+ = (cuscan\..*?)  # (.*?)(?:: [\d.]+ times as fast)?$", re.M)  # the slower torch code
ROW = re.compile(r"^\| `(.*)`.* \| `(cuscan\..*?)`.* \|$", re.M)  # today's code, and the code with cuscan


def run(snippet: str) -> int:
    """Execute a snippet, compare the values in its comments, and return their number."""
    names: dict[str, Any] = {}
    exec(compile(snippet, "README.md", "exec"), names)
    claims = CLAIM.findall(snippet)
    for expression, value in claims:
        np.testing.assert_array_equal(eval(expression, names), eval(value), err_msg=expression)
    return len(claims)


# Snippets for several ranks run in several processes: test_distributed_gloo.py.
ALONE = {name: text for name, text in SNIPPETS.items() if "torch.distributed" not in text}


@pytest.mark.parametrize("snippet", ALONE.values(), ids=ALONE)
def test_snippet(snippet: str) -> None:
    if "import torch" in snippet:
        pytest.importorskip("torch", reason="torch is not installed")
    if "import jax" in snippet:
        pytest.importorskip("jax", reason="JAX is not installed")
    if "import dask" in snippet:
        pytest.importorskip("dask", reason="dask is not installed")
    if "import cupy" in snippet and not has_gpu():
        pytest.skip("no CUDA GPU")
    if "cupyx.distributed" in snippet:
        pytest.importorskip("cupy.cuda.nccl", reason="CuPy finds no NCCL")
    run(snippet)


def test_comments_are_compared() -> None:
    assert run(SNIPPETS["README.md-1"]) == 5
    with pytest.raises(AssertionError):
        run("sum([1, 2])  # wrong: [4]")


def test_every_snippet_says_what_comes_out() -> None:
    silent = [name for name, text in SNIPPETS.items() if "assert" not in text and not CLAIM.search(text)]
    assert silent == ["README.md-0"]  # the five lines, see below


def test_five_lines_replace_what_they_say() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    (snippet,) = (text for text in SNIPPETS.values() if "x.flip" in text)
    assert len(snippet.split("\n")) == 7 and README.index(snippet) < README.index("```bash")
    names: dict[str, Any] = {}
    exec(compile(snippet, "README.md", "exec"), names)
    names["x"] = names["x"].double()  # in float32 torch's own sums have errors beyond any useful tolerance
    replaced = SPEED_UP.findall(snippet)
    assert len(replaced) == 2
    for ours, theirs in replaced:
        torch.testing.assert_close(eval(ours, names), eval(theirs, names), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("today, ours", ROW.findall(README))
def test_row_of_what_is_written_today(today: str, ours: str) -> None:
    if "torch." in today:
        pytest.importorskip("torch", reason="torch is not installed")
    rng = np.random.default_rng(0)
    x = rng.standard_normal(50)
    names = {
        "np": np, "cuscan": cuscan, "torch": sys.modules.get("torch"), "itertools": itertools,
        "modular": MODULAR_PRODUCT.operator(), "x": x, "y": np.where(x > 1, np.nan, x), "n": rng.integers(1, 1000, 50),
        "mask": x > 0, "offsets": np.array([0, 7, 7, 30, 50]), "reset": np.arange(50) % 9 == 0,
        "alpha": rng.random(50), "a": rng.random(50), "h": 3.0,
    }  # fmt: skip
    expected, got = eval(today, dict(names)), eval(ours, dict(names))
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-12, atol=1e-12)


def test_what_is_written_today_has_rows() -> None:
    assert len(ROW.findall(README)) == 11


def parameters_of(name: str) -> list[inspect.Parameter]:
    """The parameters that the README shows: all but `dim`, which is another name of axis."""
    return [p for p in inspect.signature(getattr(cuscan, name)).parameters.values() if p.name != "dim"]


def test_everything_public_is_shown() -> None:
    shown = "\n".join([*SNIPPETS.values(), *(ours for _, ours in ROW.findall(README))])
    names = [name for name in cuscan.__all__ if not name.endswith("Error")]
    assert [name for name in names if not re.search(rf"cuscan\.{name}\(", shown)] == []
    assert [example.name for example in EXAMPLES if example.name not in TEXTS["docs/examples.md"]] == []
    for name in names:
        keywords = [p.name for p in parameters_of(name) if p.kind is p.KEYWORD_ONLY]
        assert [keyword for keyword in keywords if not re.search(rf"\b{keyword}=", shown)] == [], name


def test_signatures_and_arguments() -> None:
    blocks = "".join(fences("docs/reference.md", "text"))
    shown = dict(re.findall(r"^cuscan\.(\w+)(\(.*?\))$", blocks, re.M | re.S))
    for name, text in shown.items():
        plain = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters_of(name)])
        assert " ".join(text.split()) == str(plain).replace("'", '"'), name
    assert list(shown) == ["scan", "linear_recurrence", "total", "Operator"]
    described = set(re.findall(r"^\| `(\w+)` \|", REFERENCE, re.M))
    assert described == {p.name for p in parameters_of("scan")} - {"axis"}


def test_two_commands_come_first() -> None:
    first_screen = README.split("\n## ")[0]
    assert [command for command in COMMANDS if command in first_screen] == COMMANDS[:2]
    assert first_screen.count("```bash") == 2
    assert COMMANDS[0].endswith("&& cuscan bench")
    assert COMMANDS[1].endswith("&& pytest")


def test_the_readme_is_short_and_plain() -> None:
    lines = README.splitlines()
    assert len(lines) <= 250 and max(map(len, lines)) <= 120
    assert not re.findall(r"\b(cells?|floors?|aims?)\b", README, re.I)
    assert README.split("\n## ")[0].count("![") == 1


def test_numbers_are_those_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    monkeypatch.setattr("benchmarks.plots._save", lambda *picture: None)
    assert report.filled(README) == README
    assert TEXTS["docs/benchmarks.md"] == report.page()


@pytest.mark.parametrize("document", [*PAGES, "CONTRIBUTING.md"])
def test_links_and_paths_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    folder = (ROOT / document).parent
    links = {link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link}
    lost = []
    for link in sorted(links):
        path, _, anchor = link.partition("#")
        target = folder / path if path else ROOT / document
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.M) if anchor and target.exists() else []
        known = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        if not target.exists() or (anchor and anchor not in known):
            lost.append(link)
    paths = set(re.findall(r"`((?:cuscan|tests|benchmarks|docs|\.ci)/[\w./-]*)`", text))
    assert links | paths
    assert lost + [name for name in sorted(paths) if not (ROOT / name).exists()] == []
