"""All mistakes that the fixed set of operators makes of the sources: `all_mutants`."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEVICE, HOST = "cuscan/cuda", ("cuscan", "cuscan/request", "cuscan/planning", "cuscan/backends")
# The header that the simulator replaces, and modules that no array passes through.
SKIPPED = {"cuscan/cuda/target.cuh", "cuscan/__init__.py", "cuscan/__main__.py", "cuscan/cli.py"}

_SWAPS = {
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    **{"+": "-", "-": "+", "+=": "-=", "-=": "+=", "&&": "||", "||": "&&", "and": "or", "or": "and", "%": "/"},
    **{"true": "false", "false": "true", "True": "False", "False": "True", "min": "max", "max": "min"},
    **{"int64": "int32", "uint64": "uint32"},
}
# Kinds of mistakes, each with a pattern of its places: group 1 is swapped. Binary operators have spaces around them.
_BOTH = {
    "comparison": re.compile(r" (<=|>=|<|>|==|!=) "),
    "sign": re.compile(r" (\+|-|\+=|-=) "),
    "remainder": re.compile(r" (%) "),
}
_SWAPPED = {
    ".cuh": {
        **_BOTH,
        "logic": re.compile(r" (&&|\|\|) "),
        "constant": re.compile(r"\b(true|false)\b"),
        "bits": re.compile(r"\b(u?int64)\b"),
    },
    ".py": {
        **_BOTH,
        "logic": re.compile(r" (and|or) "),
        "constant": re.compile(r"\b(True|False)\b"),
        "extremum": re.compile(r"\b(min|max)\("),
    },
}
# Kinds of mistakes, each with a pattern of its places and the replacement of a match.
_REPLACED = {
    ".cuh": (
        ("off by one", re.compile(r" [+-] 1\b(?!\.)"), ""),
        ("phase", re.compile(r"\b(wait|wait_together)\((.+)\);"), r"\1(\2 + 1);"),
        ("deleted call", re.compile(r"^(\s+)[\w:.>-]+(<[^()]*>)?\(.*\);$"), r"\1;"),
        ("condition", re.compile(r"(?<=\bif )\("), "(true)"),
        ("condition", re.compile(r"(?<=\bif )\("), "(false)"),
    ),
    ".py": (
        ("off by one", re.compile(r" [+-] 1\b(?!\.)"), ""),
        ("deleted call", re.compile(r"^(\s+)[\w.]+\(.*\)$"), r"\1pass"),
        ("condition", re.compile(r"^(\s+(?:el)?if )(.+):$"), r"\1not (\2):"),
        ("condition", re.compile(r" if (.+?) else "), r" if not (\1) else "),
    ),
}
_NO_CODE = {
    ".cuh": re.compile(r"\s*(#|template\b|using\b|CUSCAN_(NO_)?UNROLL|$)"),
    ".py": re.compile(r"\s*(import |from |@|class |def |if TYPE_CHECKING|assert |$)"),
}

_TEXTS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


@dataclass(frozen=True)
class Mutant:
    """One mistake: line number `line` of `file` becomes `new`."""

    file: str
    line: int
    kind: str
    old: str
    new: str

    def put_into(self, root: Path) -> None:
        path = root / self.file
        lines = path.read_text().split("\n")
        assert lines[self.line - 1] == self.old
        lines[self.line - 1] = self.new
        path.write_text("\n".join(lines))

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.kind})\n  - {self.old.strip()}\n  + {self.new.strip()}"


def all_mutants(root: Path) -> list[list[Mutant]]:
    """The mutants of each line that has some."""
    device = sorted((root / DEVICE).rglob("*.cuh"))
    host = [path for folder in HOST for path in sorted((root / folder).glob("*.py"))]
    names = [path.relative_to(root).as_posix() for path in [*device, *host]]
    by_line = [
        list(mutants_of(name, number, line, code))
        for name in names
        if name not in SKIPPED
        for number, line, code in _lines(root / name)
    ]
    return [mutants for mutants in by_line if mutants]


def mutants_of(file: str, number: int, line: str, code: str) -> Iterator[Mutant]:
    """The mutants of a line. `code` is the line with its comments and strings blanked out."""
    suffix = Path(file).suffix
    if _NO_CODE[suffix].match(code):
        return
    for kind, pattern in _SWAPPED[suffix].items():
        for match in pattern.finditer(code):
            start, end = match.span(1)
            yield Mutant(file, number, kind, line, line[:start] + _SWAPS[match[1]] + line[end:])
    for kind, pattern, template in _REPLACED[suffix]:
        for match in pattern.finditer(code):
            start, end = match.span()
            if match[0].startswith("("):  # the condition: up to the closing parenthesis, if that is in this line
                end = _closing(code, start)
            if end:
                yield Mutant(file, number, kind, line, line[:start] + _expanded(template, match, line) + line[end:])


def _expanded(template: str, match: re.Match[str], line: str) -> str:
    """`match.expand(template)`, applied to the line itself, with its strings, instead of its code."""
    return re.sub(r"\\(\d)", lambda group: line[slice(*match.span(int(group[1])))], template)


def _closing(code: str, start: int) -> int:
    depth = 0
    for at, character in enumerate(code[start:], start):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return at + 1
    return 0


def _lines(path: Path) -> Iterator[tuple[int, str, str]]:
    """Number, text and code of each line. The code has blanks in place of comments, and no text in strings."""
    text = path.read_text()
    code = _python_code(text) if path.suffix == ".py" else _device_code(text)
    for number, (line, of_line) in enumerate(zip(text.split("\n"), code.split("\n"), strict=True), 1):
        yield number, line, of_line.rstrip()


def _device_code(text: str) -> str:
    """The code, also without static_assert and asm."""
    parts = r'//[^\n]*|/\*.*?\*/|\b(?:static_assert|asm)\b[^;]*;|"(?:\\.|[^"\\\n])*"'
    return re.sub(parts, lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.DOTALL)


def _python_code(text: str) -> str:
    lines = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _TEXTS:
            continue
        (first, start), (last, end), is_comment = token.start, token.end, token.type == tokenize.COMMENT
        for number in range(first, last + 1):
            line = lines[number - 1]
            begin, stop = start if number == first else 0, end if number == last else len(line)
            lines[number - 1] = line[:begin] + (" " if is_comment else "'") * (stop - begin) + line[stop:]
    return "\n".join(lines)
