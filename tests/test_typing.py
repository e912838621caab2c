"""Type checkers see what a user's calls return, and find the mistakes in them, and no others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
USER = Path(__file__).with_name("typing_user.py")
MISTAKES = {number for number, line in enumerate(USER.read_text().splitlines(), 1) if line.endswith("# wrong")}
CHECKERS = {
    "mypy": ["mypy", "--strict"],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}


def lines_with_errors(checker: str, path: Path) -> set[int]:
    """The lines of a file in which a type checker finds an error."""
    pytest.importorskip(checker, reason=f"{checker} is not installed: pip install -e '.[lint]'")
    command = [sys.executable, "-m", *CHECKERS[checker], str(path)]
    environment = os.environ | {"MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr  # errors were found, and no other failure
    return {int(number) for number in re.findall(rf"{re.escape(path.name)}:(\d+):.*\berror", done.stdout)}


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_users_file(checker: str) -> None:
    assert MISTAKES
    assert lines_with_errors(checker, USER) == MISTAKES
