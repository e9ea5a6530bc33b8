"""Checks that every action in the workflows is named by the commit of the tag written behind it.

    python tools/actions.py

In: `.github/workflows/`, and the tags of the actions' repositories, asked for with git. Out: one line for each action
that is named wrongly, and the exit status 1. A digest that does not exist shows only when its job starts, which for a
release is after the tag.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

WORKFLOWS = Path(__file__).parents[1] / ".github" / "workflows"
_USED = re.compile(r"(?m)^ *(?:- )?uses: ([\w.-]+/[\w.-]+)[\w./-]*@(\S+) # (\S+)$")


def problems(files: Iterable[Path], tags: Callable[[str], dict[str, str]]) -> list[str]:
    """What is wrong. `tags` gives the commits of a repository's tags, by name."""
    used = sorted({each for path in files for each in _USED.findall(path.read_text())})
    known = {repository: tags(repository) for repository in {each[0] for each in used}}
    return [
        f"{repository}@{digest}: {tag} is {known[repository].get(tag, 'not a tag there')}"
        for repository, digest, tag in used
        if known[repository].get(tag) != digest
    ]


def parse(answer: str) -> dict[str, str]:
    """Tag -> commit, from what `git ls-remote --tags` prints; of an annotated tag, the commit that it is for."""
    rows = dict(reversed(line.split("\t")) for line in answer.splitlines())
    names = [name for name in rows if not name.endswith("^{}")]
    return {name.removeprefix("refs/tags/"): rows.get(f"{name}^{{}}", rows[name]) for name in names}


def _asked(repository: str) -> dict[str, str]:
    command = ["git", "ls-remote", "--tags", f"https://github.com/{repository}"]
    return parse(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)


if __name__ == "__main__":
    found = problems(sorted(WORKFLOWS.glob("*.yaml")), _asked)
    print("\n".join(found) or "every action is named by the commit of its tag")
    sys.exit(bool(found))
