"""The cache folder of compiled kernels. Processes, users and machines may share it, and it may be read-only."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SUFFIX = ".cubin"
_ROOT = 0  # user id whose files are trusted


class Entry(NamedTuple):
    """A kernel in the folder: its file, its size in bytes, and the time of its last use in seconds."""

    path: Path
    nbytes: int
    used: float


def cache_dir() -> Path:
    """Return the folder of compiled kernels: $CUSCAN_CACHE_DIR, or else cuscan in the user's cache folder."""
    chosen = os.environ.get("CUSCAN_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cuscan"


def is_trusted(facts: os.stat_result) -> bool:
    """Whether a file is this user's or root's: another user's code is never run."""
    return not hasattr(os, "getuid") or facts.st_uid in (os.getuid(), _ROOT)


def find(pattern: str) -> Path | None:
    """The last file by name that is trusted, of those in the folder whose names match."""
    with contextlib.suppress(OSError, ValueError):
        return max(path for path in cache_dir().glob(pattern) if is_trusted(path.stat()))
    return None


def has(path: Path) -> bool:
    """Whether `read` would find a file."""
    try:
        return is_trusted(path.stat())
    except OSError:
        return False


def read(path: Path) -> bytes | None:
    """Return the content of a trusted file; None where there is none."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        if not is_trusted(os.fstat(file.fileno())):
            return None
        code = file.read()
        with contextlib.suppress(OSError):  # read-only
            os.utime(path)
        return code
    return None


def write(path: Path, content: bytes) -> None:
    """Write a file atomically: no other process ever sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(content)
            file.close()
            os.chmod(file.name, 0o644)  # the folder may be shared
            os.replace(file.name, path)
        except OSError:  # no room is left
            with contextlib.suppress(OSError):
                os.unlink(file.name)
            raise


def entries() -> list[Entry]:
    """Return the kernels in the folder, the most recently used first."""
    return sorted(_entries(), key=lambda entry: -entry.used)


def _entries() -> Iterator[Entry]:
    for path in cache_dir().glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):  # another process may remove it
            facts = path.stat()
            yield Entry(path, facts.st_size, facts.st_mtime)


def shrink(most: int) -> list[Entry]:
    """Remove the least recently used kernels until the rest takes at most `most` bytes; return the removed entries."""
    removed, kept = [], 0
    for entry in entries():
        kept += entry.nbytes
        if kept > most:
            with contextlib.suppress(OSError):
                entry.path.unlink()
                removed.append(entry)
    return removed
