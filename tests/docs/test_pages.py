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
from tests import pages

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


def test_nobody_is_told_to_install_a_package_that_was_not_published() -> None:
    """An index may have another one of the name."""
    files = [*PAGES, *ROOT.glob("src/**/*.py"), *ROOT.glob("tools/*.py"), ROOT / "Makefile"]
    told = re.compile(r"\bpipx? install (?:-\S+ )*['\"]?bedplate\b")
    found = [named(path) for path in files if told.search(path.read_text())]
    assert not found, found
    assert told.search("pip install --upgrade 'bedplate[head]'")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_loop_of_a_page_goes_on_for_ever(page: Path) -> None:
    loops = re.findall(r"(?m)^ *\$ .*\b(?:until|while) .*$", page.read_text())
    endless = [loop for loop in loops if not re.search(r"SECONDS >|timeout |while read", loop)]
    assert not endless, f"{named(page)}: {endless}"


def before(line: str, lines: list[str]) -> list[str]:
    return lines[: lines.index(line)]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_logs_are_asked_for_after_their_pods_were_waited_for(page: Path) -> None:
    lines = [line.strip() for line in page.read_text().splitlines()]
    for line in [line for line in lines if re.match(r"(\$ )?(kubectl|bedplate lab kubectl) .*\blogs\b", line)]:
        # Where something is wrong already there is nothing to wait for.
        is_awaited = any(re.search(r" (wait|rollout status) ", each) for each in before(line, lines))
        assert is_awaited or page.name == "ipam-debug.md", f"{named(page)}: {line}"


TUTORIALS = sorted(ROOT.glob("docs/tutorials/*.md"))
# Commands that print nothing, or nothing that can be shown beforehand.
SILENT = re.compile(
    r"(export|mkdir|cd|kill|make up|bedplate lab stop-node|[A-Z]+=|echo .*>|SECONDS=0;|sleep|python|curl .*--output) ?"
    r"|.*(&|> \S+)$"
)


@pytest.mark.parametrize("page", TUTORIALS, ids=named)
def test_a_tutorial_shows_what_its_commands_print(page: Path) -> None:
    bare = [step.command for step in pages.steps(page) if not step.shown and not SILENT.match(step.command)]
    assert not bare, f"{named(page)}: run its test with BEDPLATE_UPDATE_GOLDEN=1: {bare}"


@pytest.mark.parametrize("page", TUTORIALS, ids=named)
def test_a_tutorial_asks_for_no_address_that_was_not_read_from_the_cluster(page: Path) -> None:
    for line in pages.console_lines(page):
        if re.match(r"(curl|ping|ssh|bedplate ipam explain) ", line):
            assert not re.search(r"\b(?!127\.0\.0\.1)\d+\.\d+\.\d+\.\d+", line), f"{named(page)}: {line}"


def test_the_page_about_addresses_ends_at_its_first_command_without_the_plugin(tmp_path: Path) -> None:
    first = pages.console_lines(ROOT / "docs/tutorials/ipam.md")[0]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", first], capture_output=True, text=True, check=False, env=environ, cwd=tmp_path)
    assert done.returncode == 1
    assert "install cargo" in done.stdout and "rustup" in done.stdout and "make up" in done.stdout


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/guides/migrate-*.md")), ids=named)
def test_pages_of_migration_say_from_what(page: Path) -> None:
    assert page.read_text().startswith("# Migrate from ") and page.name.startswith("migrate-from-")


def linked(page: Path) -> set[Path]:
    """The files of the repository that a page links to."""
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    return {(page.parent / target).resolve() for target in targets if "://" not in target}


def test_the_front_page_is_short_and_leads_to_every_tutorial_and_deployment_guide() -> None:
    page = ROOT / "README.md"
    assert len(page.read_text().splitlines()) <= 130
    names = ("install", "run-a-manager", "monitoring", "ipam", "head", "head-service", "lab")
    guides = {*ROOT.glob("docs/guides/deploy-*.md"), *(ROOT / f"docs/guides/{name}.md" for name in names)}
    needed = guides | set(TUTORIALS) | {ROOT / "docs/README.md", ROOT / "docs/proof.md"}
    assert not needed - linked(page), sorted(map(named, needed - linked(page)))


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
