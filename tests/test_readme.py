"""The README's snippets run and say the truth, its commands are two, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import has_gpu

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
FENCES = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.M | re.S)
SNIPPETS = [text for language, text in FENCES if language == "python"]
COMMANDS = [text.strip() for language, text in FENCES if language == "bash"]
CLAIM = re.compile(r"^(\S.*?)  # (?:.*: )?(\[.*\])$", re.M)  # an expression, and the value that its comment shows


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
    paths = set(re.findall(r"`((?:cuscan|tests|benchmarks|\.ci)/[\w./-]*)`", text))
    assert links | paths
    assert [name for name in sorted(links | paths) if not (ROOT / name).exists()] == []
