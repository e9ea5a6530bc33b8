"""Finds wording that the project does not use, and lines of prose that are too long.

In: the files of the repository as text. Out: for each rule its matches, as path, line and text. The rules are the
tables below. `tests/repository/language.json` says how many matches of a rule an area may still have, and
`tests/repository/test_language.py` checks that; the numbers only go down.

    python tools/words.py                 count every rule in every folder
    python tools/words.py RULE [FOLDER]   list the matches of one rule
    python tools/words.py --lower         write the present counts where they are lower than the allowed ones
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = ROOT / "tests/repository/language.json"
WIDTH = 120

# Folders and files that are read, and the name under which their matches are counted.
AREAS = {
    "src": ("src",),
    "tests": ("tests",),
    "docs": ("docs", "README.md", "CONTRIBUTING.md", "SECURITY.md"),
    "changelog": ("CHANGELOG.md",),
    "tools": ("tools", "bench", ".ci", ".github", "Makefile", "Dockerfile", "crates"),
    "deploy": ("charts", "deploy", "manifests", "config"),
}
SUFFIXES = {
    "",
    ".py",
    ".md",
    ".rs",
    ".toml",
    ".yaml",
    ".yml",
    ".json",
    ".tpl",
    ".txt",
    ".html",
    ".js",
    ".css",
    ".sh",
    ".proto",
}
# These state the rules, or hold the words of others.
EXEMPT = (
    "tools/words.py",
    "tests/repository/test_language.py",
    "tests/repository/language.json",
    "tests/vectors/",
    "tests/conformance/data/",
    "tests/apiserver/data/",
)

# Each rule: what must not be written, and what to write in its place.
PHRASES: dict[str, tuple[re.Pattern[str], str]] = {
    "is-no": (
        re.compile(
            r"(?<!there )(?<!there's )\b(?:is|are|was|were) no "
            r"(?!longer\b|more than\b|different\b|better\b|worse\b|less\b|later\b|earlier\b|larger\b|smaller\b)"
            r"[A-Za-z]",
            re.IGNORECASE,
        ),
        'write "is not a …" or "must be a …"',
    ),
    "somebody-was": (
        re.compile(r"\bsomebody (?:else )?(?:was|is) (?:faster|quicker|there first)", re.IGNORECASE),
        'write "conflict" or "another client changed …"',
    ),
    "is-so": (re.compile(r"\b(?:something|it|that|this) is so\b", re.IGNORECASE), 'write "until the condition holds"'),
    "see-the-module": (re.compile(r"\bsee the module\b", re.IGNORECASE), "say what a caller needs to know"),
    "anew": (re.compile(r"\banew\b", re.IGNORECASE), 'write "again"'),
    "for-ever": (re.compile(r"\bfor ever\b", re.IGNORECASE), 'write "forever", "without end" or "permanently"'),
    "mend": (re.compile(r"\bmend(?:s|ed|ing)?\b", re.IGNORECASE), 'write "fix" or "repair"'),
    "somebody": (re.compile(r"\bsomebody\b", re.IGNORECASE), "name the user, client, controller or program"),
    "whoever": (re.compile(r"\bwhoever\b", re.IGNORECASE), "name the user, client, controller or program"),
    "everybody": (re.compile(r"\b(?:every|any)body\b", re.IGNORECASE), 'write "anyone", or name the users or clients'),
    "nobody": (re.compile(r"\bnobody\b", re.IGNORECASE), 'write "no user", "no client" or "no node"'),
    "mutually-exclusive": (
        re.compile(r"\bexclude (?:each other|one another)\b", re.IGNORECASE),
        'write "are mutually exclusive"',
    ),
    "go-together": (re.compile(r"\bgo together\b", re.IGNORECASE), 'write "must be given together"'),
    "stands-twice": (re.compile(r"\bstands? twice\b", re.IGNORECASE), 'write "is given twice"'),
    "stands-out": (re.compile(r"\bstands? out\b", re.IGNORECASE), 'write "needs attention"'),
    "names-no": (re.compile(r"\bnames no\b", re.IGNORECASE), 'write "has no …", "… is not set" or "is not a …"'),
    "of-nobody": (re.compile(r"\b(?:nobody's|of nobody)\b", re.IGNORECASE), "say what is missing"),
    "makes-it-true": (re.compile(r"\bmakes? (?:it|them) true\b", re.IGNORECASE), 'write "commit applies it"'),
    "told-of": (re.compile(r"\b(?:told of|told this once)\b", re.IGNORECASE), 'write "notified of" or "reported"'),
    "broke-off": (re.compile(r"\bbroke off\b", re.IGNORECASE), 'write "was cut off"'),
    "used-up": (re.compile(r"\bused up\b", re.IGNORECASE), 'write "exhausted"'),
    "very": (re.compile(r"\bof this very\b", re.IGNORECASE), 'write "this specific …"'),
    "such-thing": (re.compile(r"\bno such thing\b", re.IGNORECASE), 'write "not found" or "no such object"'),
    "woken": (re.compile(r"\bwoken for\b", re.IGNORECASE), 'write "page on"'),
    "section": (re.compile("§"), "name the rule; the document is not in the repository"),
    "code": (
        re.compile(
            r"(?<![\[A-Za-z0-9_/+=.%\"'\\-])[ABCOQSW]\d{1,2}(?![A-Za-z0-9_=\"'/+])|\bdecisions? \d+\b|"
            r"\btest_[a-z]\d\d_"
        ),
        "name the rule in words; the list of numbers is not in the repository",
    ),
}
# Words that users should not read; code and tests may use them.
FOR_USERS = ("somebody", "whoever", "everybody", "nobody")
# Local names that say how a value came about, not what it is.
NAMES = ("found", "one", "made", "held", "wanted", "said")


@dataclass(frozen=True)
class Match:
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text.strip()[:160]}"


def files(area: str) -> Iterator[Path]:
    """The files of an area that are read as text, in order."""
    for name in AREAS[area]:
        start = ROOT / name
        for path in sorted(start.rglob("*")) if start.is_dir() else (start,):
            relative = str(path.relative_to(ROOT))
            if path.is_file() and path.suffix in SUFFIXES and not relative.startswith(EXEMPT):
                yield path


def phrases(rule: str, text: str, path: str = "") -> list[Match]:
    """Where a text breaks a rule of wording."""
    pattern = PHRASES[rule][0]
    if not pattern.search(text):
        # Most texts break no rule, and this is ten times as fast as line by line.
        return []
    return [
        Match(path, number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        for _ in pattern.finditer(line)
    ]


def bindings(text: str, path: str = "") -> dict[str, list[Match]]:
    """Where a function of a Python module binds one of `NAMES`, by name."""
    matches: dict[str, list[Match]] = {name: [] for name in NAMES}
    lines = text.splitlines()

    def visit(node: ast.AST, in_function: bool) -> None:
        name = ""
        if isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and in_function:
            name = node.id
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            name = node.name or ""
        if name in matches:
            number: int = getattr(node, "lineno", 1)
            matches[name].append(Match(path, number, lines[number - 1]))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            in_function = True
        elif isinstance(node, ast.ClassDef):
            in_function = False
        for child in ast.iter_child_nodes(node):
            visit(child, in_function)

    visit(ast.parse(text), False)
    return matches


def long_lines(text: str, path: str = "") -> list[Match]:
    """Lines of prose wider than `WIDTH`. Tables, code, headings and a link that cannot be broken are exempt."""
    matches: list[Match] = []
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
            continue
        exempt = is_code or line.startswith(("    ", "|", "#", "<!--", "!["))
        if not exempt and len(line) > WIDTH and " " in line.strip()[: WIDTH - 10]:
            longest = max(len(word) for word in re.findall(r"\[[^\]]*\]\([^)]*\)\S*|`[^`]*`\S*|\S+", line))
            if longest < WIDTH - 10:
                matches.append(Match(path, number, line))
    return matches


def count() -> dict[str, dict[str, list[Match]]]:
    """Every match: by rule, then by area."""
    result: dict[str, dict[str, list[Match]]] = {rule: {} for rule in (*PHRASES, *NAMES, "long-line")}
    for area in AREAS:
        for path in files(area):
            text, relative = path.read_text(errors="replace"), str(path.relative_to(ROOT))
            for rule in PHRASES:
                if rule in FOR_USERS and area not in ("docs", "deploy"):
                    continue
                result[rule].setdefault(area, []).extend(phrases(rule, text, relative))
            if area == "src" and path.suffix == ".py":
                for name, matches in bindings(text, relative).items():
                    result[name].setdefault(area, []).extend(matches)
            if area == "docs" and path.suffix == ".md":
                result["long-line"].setdefault(area, []).extend(long_lines(text, relative))
    return result


def allowed() -> dict[str, dict[str, int]]:
    """How many matches of each rule an area may still have; none where nothing is said."""
    numbers: dict[str, dict[str, int]] = json.loads(ALLOWED.read_text())
    return numbers


def lowered(present: dict[str, dict[str, list[Match]]], old: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The allowed numbers, each at most what there is today; zeros are left out."""
    result = {
        rule: {area: min(old[rule].get(area, 0), len(matches)) for area, matches in areas.items()}
        for rule, areas in present.items()
        if rule in old
    }
    kept = {rule: {area: number for area, number in areas.items() if number} for rule, areas in result.items()}
    return {rule: areas for rule, areas in kept.items() if areas}


def show(present: dict[str, dict[str, list[Match]]]) -> Iterable[str]:
    """One line for each rule: its matches in each area."""
    for rule, areas in present.items():
        counts = "  ".join(f"{area} {len(matches)}" for area, matches in areas.items() if matches)
        yield f"{rule:16} {counts or 'none'}"


def main(arguments: list[str]) -> int:
    rules = (*PHRASES, *NAMES, "long-line")
    if arguments and arguments != ["--lower"] and arguments[0] not in rules:
        is_help = arguments[0] in ("-h", "--help")
        print(__doc__ if is_help else f"{arguments[0]} is not a rule; the rules are {', '.join(rules)}")
        return 0 if is_help else 2
    present = count()
    if arguments == ["--lower"]:
        ALLOWED.write_text(json.dumps(lowered(present, allowed()), indent=2) + "\n")
    elif arguments:
        rule, *areas = arguments
        for area, matches in present[rule].items():
            if not areas or area in areas:
                print(*matches, sep="\n")
    else:
        print(*show(present), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
