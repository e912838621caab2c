"""The README's snippets run and say the truth, its commands are two, its links lead somewhere."""

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

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
GRADIENTS = (ROOT / "docs/gradients.md").read_text()
FENCES = re.findall(r"^```(\w+)\n(.*?)^```$", README + GRADIENTS, re.M | re.S)
SNIPPETS = [text for language, text in FENCES if language == "python"]
COMMANDS = [text.strip() for language, text in FENCES if language == "bash"]
CLAIM = re.compile(r"^(\S.*?)  # (?:.*: )?(\[.*\])$", re.M)  # an expression, and the value that its comment shows
ROW = re.compile(r"^\| `(.*)`.* \| `(cuscan\..*?)`.* \|$", re.M)  # what is written today, and what with cuscan


def run(snippet: str) -> int:
    """Execute a snippet and compare the values that its comments show; how many those were."""
    names: dict[str, Any] = {}
    exec(compile(snippet, "README.md", "exec"), names)
    claims = CLAIM.findall(snippet)
    for expression, value in claims:
        np.testing.assert_array_equal(eval(expression, names), eval(value), err_msg=expression)
    return len(claims)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[f"python{i}" for i in range(len(SNIPPETS))])
def test_snippet(snippet: str) -> None:
    if "import torch" in snippet:
        pytest.importorskip("torch", reason="torch is not installed")
    if "import cupy" in snippet and not has_gpu():
        pytest.skip("no CUDA GPU")
    run(snippet)


def test_comments_are_compared() -> None:
    assert run(SNIPPETS[0]) == 5
    with pytest.raises(AssertionError):
        run("sum([1, 2])  # wrong: [4]")


def test_every_snippet_says_what_comes_out() -> None:
    assert all("assert" in snippet or CLAIM.search(snippet) for snippet in SNIPPETS)


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


def test_everything_public_is_shown() -> None:
    shown = "\n".join([*SNIPPETS, *(ours for _, ours in ROW.findall(README))])
    names = [name for name in cuscan.__all__ if not name.endswith("Error")]
    assert [name for name in names if not re.search(rf"cuscan\.{name}\(", shown)] == []
    assert [example.name for example in EXAMPLES if example.name not in README] == []
    for name in names:
        parameters = inspect.signature(getattr(cuscan, name)).parameters.values()
        keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        assert [keyword for keyword in keywords if not re.search(rf"\b{keyword}=", shown)] == [], name


def test_signatures_and_arguments() -> None:
    blocks = "".join(text for language, text in FENCES if language == "text")
    shown = dict(re.findall(r"^cuscan\.(\w+)(\(.*?\))$", blocks, re.M | re.S))
    for name, text in shown.items():
        parameters = inspect.signature(getattr(cuscan, name)).parameters.values()
        plain = inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters])
        assert " ".join(text.split()) == str(plain).replace("'", '"'), name
    assert list(shown) == ["scan", "linear_recurrence", "Operator"]
    described = set(re.findall(r"^\| `(\w+)` \|", README, re.M))
    assert described == set(inspect.signature(cuscan.scan).parameters) - {"axis"}


def test_two_commands_come_first() -> None:
    first_screen = README.split("\n## ")[0]
    assert [command for command in COMMANDS if command in first_screen] == COMMANDS[:2]
    assert first_screen.count("```bash") == 2
    assert COMMANDS[0].endswith("&& cuscan bench")
    assert COMMANDS[1].endswith("&& pytest")


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_links_and_paths_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    links = {link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link}
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    links -= {"#" + re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    paths = set(re.findall(r"`((?:cuscan|tests|benchmarks|\.ci)/[\w./-]*)`", text))
    assert links | paths
    assert [name for name in sorted(links | paths) if not (ROOT / name).exists()] == []
