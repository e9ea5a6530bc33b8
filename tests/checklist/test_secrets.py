"""A secret, staged or committed, is in nothing that people see: shell, answers, events, notices, logs, exports, store.

REST and the page have such tests of their own (tests/ui/rest, tests/ui/web); here a user at a shell does everything
there is against a daemon, while a second one listens and devices carry it out.
"""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import aiohttp
import pytest
from tests.ui.transcripts.driving import Desk, head_with, sized_files
from tests.ui.transcripts.living import Site, living
from tests.waiting import until

from bedplate.client import Event
from bedplate.core import logging
from bedplate.ui.cmsh.commands import COMMANDS

NEVER, COMMITTED, BEFORE = "staged-and-dropped-81c3", "committed-in-the-end-5b77", "sesame-three"
# Lines that could show something, at a cluster whose key is staged or committed.
LOOKING = [
    *("show", "show -v", "show -d {}", "get kubecakey", "get kubecakey -d {}", "list", "list -v", "diff", "diff -v"),
    *("diff -d {}", "plan", "plan -v", "plan -d {}", "commit --dry-run", "history", "history -v", "history .", "audit"),
    *("audit -v", "audit -d {}", "export", "export {files}/export.yaml", "help kubecakey", "device explain node001"),
    *("device explain -v node001", "device explain -d {} node001", "kubernetes list -d {}", "diff 1 2", "plan --at 1"),
    *("device explain -v node001 /etc/kubernetes/pki/default/ca.key", "device explain node001 ca.key"),
]
FAILING = [
    f"set kubecakeys {NEVER}",
    f"get kubecakey {NEVER}",
    f"add {NEVER} {NEVER}",
    "use default",
    "set etcdcluster nothing",
    "commit",
    "set etcdcluster kube-default",
]


async def look(site: Site, said: list[str]) -> None:
    desk = site.desk
    for line in LOOKING:
        await desk.do("/", "kubernetes use default")
        found = await desk.type(line)
        said += [found.out, found.err, desk.prompt, *desk.completes("set kubecakey "), *desk.shell.left()]


async def asked(site: Site, user: str) -> list[str]:
    """Every address that can be read."""
    found = []
    headers = {"Authorization": f"Bearer {site.served.tokens[user]}"}
    paths = ["tree", "schema", "objects/kubernetes", "objects/kubernetes/default", "revisions", "revisions/1", "audit"]
    paths += ["export", "notices", "whoami", "nodes/node001/explain", "plan?from=0", "nodes/node001/health"]
    async with aiohttp.ClientSession(site.served.url, headers=headers) as http:
        for path in [*(f"/api/v1/{path}" for path in paths), "/metrics", "/openapi.json"]:
            async with http.get(path) as answer:
                assert answer.status == 200, path
                found.append(await answer.text())
    return found


async def test_a_secret_is_in_nothing_that_people_see(tmp_path: Path) -> None:
    log, events, said = io.StringIO(), list[Event](), list[str]()
    logging.configure(logging.LogOptions(verbosity=10), log)
    async with living("deployed", tmp_path) as site, site.served.client() as listener:

        async def listen() -> None:
            async for event in listener.events(after=0):
                events.append(event)

        listening = asyncio.create_task(listen())
        try:
            await everything(site, said)
            await site.settles("node001")
            await until(lambda: any(event.revision and event.revision.number == 3 for event in events))
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        said += site.told
    everywhere = {"said": "".join(said), "events": repr(events), "log": log.getvalue()}
    everywhere["export"] = (tmp_path / "files/export.yaml").read_text()
    for place, text in everywhere.items():
        for secret in (NEVER, COMMITTED, BEFORE):
            assert secret not in text.replace(f"'{NEVER}'", ""), f"{secret} stands in {place}"
    assert "*****" in everywhere["said"]
    assert log.getvalue().count("\n") > 10, "the log was open"
    for file in tmp_path.glob("head.db*"):
        held = file.read_bytes()
        assert not any(secret.encode() in held for secret in (NEVER, COMMITTED, BEFORE)), file.name


async def everything(site: Site, said: list[str]) -> None:
    """A secret staged, looked at from everywhere, refused, dropped; another one committed, looked at, and undone."""
    desk = site.desk
    await desk.do("kubernetes use default", f"set kubecakey {NEVER}")
    await look(site, said)
    await desk.do("/", "kubernetes use default")
    for line in FAILING:
        found = await desk.type(line)
        said += [found.out, found.err]
    said += await asked(site, "admin")
    await desk.do("revert", "/", "kubernetes use default", f"set kubecakey {COMMITTED}", "commit -m 'a new key'")
    await look(site, said)
    said += await asked(site, "admin")
    await desk.do("/", "undo 2")
    await look(site, said)
    await desk.do("/", "commit")
    await look(site, said)


@pytest.mark.parametrize("name", sorted(COMMANDS))
async def test_no_command_shows_a_secret_whatever_is_asked_of_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command alone, with the words that fit it best."""
    monkeypatch.chdir(tmp_path)  # `export NAME` writes where one stands
    async with head_with("deployed", tmp_path) as head:
        desk = Desk(head, files=sized_files(tmp_path / "files"))
        await desk.do("kubernetes use default", f"set kubecakey {NEVER}")
        for words in ("", " kubecakey", " default", " default kubecakey", " 1", " -v", " -d {}", " kubecakey -d {}"):
            found = await desk.type(name + words)
            written = "".join(file.read_text() for file in tmp_path.iterdir() if file.suffix == "" and file.is_file())
            assert not any(secret in found.out + found.err + written for secret in (NEVER, BEFORE)), name + words
            if not desk.shell.left() or desk.shell.is_over:
                desk.leave()
                await desk.do("kubernetes use default", f"set kubecakey {NEVER}")
