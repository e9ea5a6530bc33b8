"""The documentation is true: links lead somewhere, commands exist with their options, generated pages are current."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bedplate.apps.bedplate import root

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
# Words that stand for a value in a sentence about a command.
PLACEHOLDERS = {"…", "..."}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_relative_links_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text) if "://" not in target]
    broken = [target for target in targets if not (page.parent / target).exists()]
    assert not broken, f"{named(page)} links to nothing: {broken}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_name_no_place_of_one_machine(page: Path) -> None:
    # The folder of a webhook's certificate is in every pod of the original's at the same place.
    places = r"(?<![\w.$~])/(?:root|work|tmp(?!/k8s-webhook-server/)|home/(?!you\b)\w+)/\S*"
    found = re.findall(places, page.read_text())
    assert not found, f"{named(page)} names {found}"


def bedplate_lines(text: str) -> Iterator[str]:
    """Whatever a page shows as a command: code in a sentence, lines of a block."""
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    indented = re.findall(r"(?m)^    (bedplate .*)$", text)
    for line in (*(each for block in blocks for each in block.splitlines()), *inline, *indented):
        found = re.match(r"\s*(?:\$ )?(?:\.venv/bin/)?(bedplate(?: .*)?)$", line)
        if found:
            # Two blanks set a remark apart from the command it explains.
            yield re.split(r"\s{2,}|\s\|\|?\s|\s&&\s|;\s|\s\d?>\s", found[1])[0].rstrip(" \\")


def unknown_parts(line: str) -> list[str]:
    """Commands and options of a line that the program does not have."""
    command: click.Command = root
    ctx = click.Context(root, info_name="bedplate")
    wrong: list[str] = []
    words = iter(shlex.split(line)[1:])
    for word in words:
        if word == "--" or command.context_settings.get("ignore_unknown_options") or word in PLACEHOLDERS:
            break
        if word.startswith("-"):
            known = {name: each for each in command.params for name in (*each.opts, *each.secondary_opts)}
            option = known.get(word.split("=")[0])
            if option is None and word not in ("--help", "-h"):
                wrong.append(word)
            if isinstance(option, click.Option) and not option.is_flag and "=" not in word:
                next(words, None)
        elif isinstance(command, click.Group) and not re.search(r"[A-Z<]|…", word):
            child = command.get_command(ctx, word)
            if child is None:
                return [*wrong, word]
            command, ctx = child, click.Context(child, info_name=word, parent=ctx)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_bedplate_command_of_a_page_exists_with_its_options(page: Path) -> None:
    for line in bedplate_lines(page.read_text()):
        assert not unknown_parts(line), f"{named(page)}: {line}"


def test_the_check_of_commands_can_fail() -> None:
    (line,) = bedplate_lines("see `bedplate lab up --frobnicate 3`")
    assert unknown_parts(line) == ["--frobnicate"]
    assert unknown_parts("bedplate lob") == ["lob"]


def test_every_make_target_of_a_page_exists() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):.*## ", (ROOT / "Makefile").read_text()))
    for page in PAGES:
        for name in re.findall(r"`(?:\$ )?make ([a-z-]+)", page.read_text()):
            assert name in targets, f"{named(page)}: make {name}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_loop_of_a_page_goes_on_for_ever(page: Path) -> None:
    loops = re.findall(r"(?m)^ *\$ .*\b(?:until|while) .*$", page.read_text())
    endless = [loop for loop in loops if not re.search(r"SECONDS >|timeout |while read", loop)]
    assert not endless, f"{named(page)}: {endless}"


def linked(page: Path) -> set[Path]:
    """The files of the repository that a page links to."""
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


def test_the_front_page_is_short_and_leads_to_every_tutorial_and_deployment_guide() -> None:
    page = ROOT / "README.md"
    assert len(page.read_text().splitlines()) <= 130
    names = ("install", "run-a-manager", "monitoring", "ipam", "head", "head-service", "lab")
    guides = {*ROOT.glob("docs/guides/deploy-*.md"), *(ROOT / f"docs/guides/{name}.md" for name in names)}
    pages = guides | set(ROOT.glob("docs/tutorials/*.md")) | {ROOT / "docs/README.md", ROOT / "docs/proof.md"}
    assert not pages - linked(page), sorted(map(named, pages - linked(page)))


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs/README.md"
    missing = set(ROOT.glob("docs/**/*.md")) - linked(index) - {index}
    assert not missing, f"docs/README.md does not link to {sorted(map(named, missing))}"


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/explanation/*.md")), ROOT / "CONTRIBUTING.md"], ids=named)
def test_modules_that_a_page_names_exist(page: Path) -> None:
    modules = {f"/{path.relative_to(ROOT)}" for path in (*ROOT.glob("src/**/*.py"), *ROOT.glob("t*/**/*.py"))}
    names = re.findall(r"`([\w/]+\.py)`", page.read_text())
    missing = [name for name in names if not any(module.endswith(f"/{name}") for module in modules)]
    assert not missing, f"{named(page)} names {missing}"


def test_the_contributors_page_names_every_package() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)` \|", (ROOT / "CONTRIBUTING.md").read_text())
    packages = {path.parent.name for path in ROOT.glob("src/bedplate/*/__init__.py")}
    assert packages <= set(rows)


def test_generated_pages_are_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "tools/docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_every_way_to_write_an_event_is_seen_by_the_page_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    reasons: set[str] = importlib.import_module("eventpages").reasons()
    # A literal, a constant, one of another module, one of a kind of pool, one that a provider adds.
    assert reasons >= {"SyncLoadBalancerFailed", "DeletingNode", "AmbiguousInstance", "NoFreeRanges", "PortConflict"}
