"""Whatever is typed: the shell answers with an exit code and a prompt, and what a session stages is what it commits."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.head import sites
from tests.head.committing import commit_session

from bedplate.head.entities import SCHEMA
from bedplate.head.policy import Identity
from bedplate.head.service import Head
from bedplate.head.vault import Vault
from bedplate.store.sqlite import SqliteStore
from bedplate.ui.cmsh.commands import COMMANDS
from bedplate.ui.cmsh.shell import Shell
from bedplate.ui.local import LocalBackend

WORDS = st.sampled_from(
    [
        *(name for name in sorted(COMMANDS) if name not in ("export", "import")),
        *SCHEMA.modes,
        *("roles", "services", "labelsets", "options", "environments", "customizations"),
        *("default", "gpu-nodes", "node001", "node00[1-3]", "master", "kube-default-master", "kubelet", "amd", "zone"),
        *("Docker::Host", "firewall", "generic::containerd", "containerd", "0", "1", "x", "physicalnode", "*", "."),
        *("notes", "name", "priority", "nodes", "categories", "labels", "softwareimage", "kubecakey", "iptables"),
        *("yes", "no", "5", "-1", "a=b", "''", "(get notes)", "kube-apiserver.yaml"),
        *("-v", "-d", "{}", "-n", "-c", "-e", "-m", "--at", "--force", "--dry-run", "-f", "--nonsense"),
    ]
)
LINES = st.lists(st.lists(WORDS, min_size=1, max_size=5).map(" ".join), max_size=14)


async def live(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            SqliteStore(Path(folder) / "head.db", history_s=None) as store,
            Head(store, SCHEMA, Vault(base64.urlsafe_b64encode(bytes(range(32))))) as head,
        ):
            session = head.session()
            for mode, obj in sites.manual().objects():
                session.put((mode, obj.key), obj)
            await commit_session(head, session, "setup")
            said: list[str] = []
            shell = Shell(
                LocalBackend(head, name="basecm10", identity=Identity.local("alice")), said.append, said.append
            )
            for line in lines:
                before, count = head.revision, len(said)
                code = await shell.run_line(line)
                assert code in (0, 1, 2, 3), line
                assert code in (0, 3) or any(text.startswith("error: ") for text in said[count:]), line
                assert head.revision <= before + line.count("commit")
                assert shell.prompt().startswith("[basecm10")
                shell.complete(line)
                shell.complete(line + " ")
            await shell.run_line("/; revert")
            assert not shell.left()
            assert shell.desk.session.tree == head.tree


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LINES)
def test_no_line_breaks_the_shell(lines: list[str]) -> None:
    asyncio.run(live(lines))


@pytest.mark.soak
@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LINES)
def test_no_line_breaks_the_shell_in_many_tries(lines: list[str]) -> None:
    asyncio.run(live(lines))
