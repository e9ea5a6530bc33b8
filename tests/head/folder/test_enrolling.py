"""A machine enrols at a daemon with mutual TLS, reads its state, renews, is replaced and revoked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509
from tests.head.csrs import csr, key_pem, new_key
from tests.head.folder.test_sitekeys import serving

from bedplate.api.headapi import Token
from bedplate.cli.head.command import head as head_commands
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.access import NODES
from bedplate.head.daemon import Daemon
from bedplate.head.folder import administration, creation, pki
from bedplate.head.folder.datafolder import Folder

SITE = {"name": "basecm10", "nodes": 2}


@pytest.fixture
async def folder(tmp_path: Path) -> Folder:
    return await creation.make(tmp_path / "site", **SITE)  # type: ignore[arg-type]


async def token_for(folder: Folder, node: str, **more: object) -> str:
    options: dict[str, object] = {"kind": "enrol", "name": "", "days": 0, **more}
    return (await administration.create_token(folder, node, **options))[1]  # type: ignore[arg-type]


class Machine:
    """A machine with a folder for its key and its certificate."""

    def __init__(self, folder: Path, daemon: Daemon, ca: Path) -> None:
        folder.mkdir()
        self.folder, self.daemon, self.ca = folder, daemon, ca
        self.key = new_key()
        (folder / "key").write_bytes(key_pem(self.key))

    async def enrol(self, token: str) -> str:
        text, _, fingerprint = token.rpartition(".")
        assert fingerprint == pki.fingerprint(self.ca.read_bytes())
        async with HeadClient(self.daemon.url, token=text, ca_file=str(self.ca), attempts=1) as client:
            answer = await client.enrol(csr(self.key))
        if answer.certificate:
            (self.folder / "crt").write_text(answer.certificate)
        return answer.state

    def client(self) -> HeadClient:
        files = {"cert_file": str(self.folder / "crt"), "key_file": str(self.folder / "key")}
        return HeadClient(self.daemon.url, ca_file=str(self.ca), attempts=1, **files)


@contextlib.asynccontextmanager
async def site(folder: Folder, tmp_path: Path) -> AsyncIterator[tuple[Daemon, HeadClient]]:
    async with serving(folder) as daemon, administration.client(folder, daemon.url) as admin:
        yield daemon, admin


async def test_an_enrolled_machine_is_its_node_and_nobody_else(folder: Folder, tmp_path: Path) -> None:
    async with site(folder, tmp_path) as (daemon, admin):
        one = Machine(tmp_path / "one", daemon, folder.file("ca.crt"))
        assert await one.enrol(await token_for(folder, "node001")) == "issued"
        async with one.client() as node:
            who = await node.whoami()
            assert (who.node, who.role, who.via) == ("node001", "node", "certificate")
            assert await node.desired("node001") is not None
            await node.report("node001", applied=1)
            for refused in (node.desired("node002"), node.report("node002"), node.tree(), node.nodes()):
                with pytest.raises(errors.Denied):
                    await refused
            with pytest.raises(errors.Conflict, match="the next one is issued from"):
                await node.renew_certificate("node001", csr())
            with pytest.raises(errors.Denied):
                await node.renew_certificate("node002", csr())
        with pytest.raises(errors.Denied):
            await admin.renew_certificate("node001", csr())


async def test_a_certificate_late_in_its_life_is_renewed_for_the_node_alone(folder: Folder, tmp_path: Path) -> None:
    async with site(folder, tmp_path) as (daemon, _):
        one = Machine(tmp_path / "one", daemon, folder.file("ca.crt"))
        from bedplate.core.clock import SystemClock

        authority, now = pki.Authority.load(folder.path), SystemClock().now()
        old = authority.certify(csr(one.key).encode(), "node001", NODES, now - timedelta(days=9), timedelta(days=10))
        (one.folder / "crt").write_bytes(old)
        async with one.client() as node:
            answer = await node.renew_certificate("node001", csr(one.key, name="admin"))
        made = x509.load_pem_x509_certificate(answer.certificate.encode())
        assert made.subject == x509.load_pem_x509_certificate(old).subject
        (one.folder / "crt").write_text(answer.certificate)
        async with one.client() as node:
            assert (await node.whoami()).node == "node001"


async def test_during_a_rotation_nodes_get_certificates_of_the_next_authority(folder: Folder, tmp_path: Path) -> None:
    async with site(folder, tmp_path) as (daemon, _):
        ca = tmp_path / "ca.crt"
        ca.write_bytes(folder.file("ca.crt").read_bytes())
        one = Machine(tmp_path / "one", daemon, ca)
        await one.enrol(await token_for(folder, "node001"))
        await administration.rotate_authority(folder, finish=False)
        async with one.client() as node:
            answer = await node.renew_certificate("node001", csr(one.key))
        (one.folder / "crt").write_text(answer.certificate)
        ca.write_text(answer.authority)
        await administration.rotate_authority(folder, finish=True)
        async with one.client() as node:
            assert (await node.whoami()).node == "node001"


async def test_a_revoked_node_and_a_replaced_one_are_out_at_once_and_their_polls_too(
    folder: Folder, tmp_path: Path
) -> None:
    async with site(folder, tmp_path) as (daemon, admin):
        one, two = (Machine(tmp_path / name, daemon, folder.file("ca.crt")) for name in ("one", "two"))
        await one.enrol(await token_for(folder, "node001"))
        assert await two.enrol(await token_for(folder, "node001")) == "pending"
        async with one.client() as node:
            wanted = await node.desired("node001")
            assert wanted is not None
            waiting = asyncio.create_task(node.desired("node001", wanted.etag, wait_s=300))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await admin.decide_enrolment("node001", approve=True)
            async with asyncio.timeout(10):
                with pytest.raises(errors.Denied):
                    await waiting
            with pytest.raises(errors.Denied):
                await node.whoami()
        async with HeadClient(daemon.url, token=folder.admin_token(), ca_file=str(folder.file("ca.crt"))) as client:
            held = next(one for one in await client.enrolments() if one.by != "policy")
            assert held.by == "admin"
        three = Machine(tmp_path / "three", daemon, folder.file("ca.crt"))
        assert await three.enrol(await token_for(folder, "node001", replace=True)) == "issued"
        async with three.client() as node:
            wanted = await node.desired("node001")
            assert wanted is not None
            waiting = asyncio.create_task(node.desired("node001", wanted.etag, wait_s=300))
            await asyncio.sleep(0.2)
            await admin.revoke_certificates("node001", kind="node")
            async with asyncio.timeout(10):
                with pytest.raises(errors.Denied):
                    await waiting
        four = Machine(tmp_path / "four", daemon, folder.file("ca.crt"))
        assert await four.enrol(await token_for(folder, "node001")) == "issued", "the others count no more"
        await administration.rotate_authority(folder, finish=False)
        async with four.client() as node:
            (four.folder / "crt").write_text((await node.renew_certificate("node001", csr(four.key))).certificate)
        async with four.client() as node:
            assert (await node.whoami()).node == "node001"
        for machine in (one, three):
            async with machine.client() as node:
                with pytest.raises(errors.Denied):
                    await node.whoami()


def test_the_command_makes_tokens_for_enrolments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = asyncio.run(creation.make(tmp_path / "site", **SITE))  # type: ignore[arg-type]

    def run(*words: str) -> Result:
        return CliRunner().invoke(head_commands, ["token", "create", *words, "--data", str(folder.path)])

    for words in (
        (),
        ("node001", "--enrol", "node001"),
        ("--enrol", "node001", "--uses", "3"),
        ("--enrol", "node001", "--days", "3"),
        ("--enrol", "node001", "--lasts", "never"),
        ("--enrol", "node001", "--lasts", "9000h"),
        ("admin", "--replace"),
    ):
        assert run(*words).exit_code == 2, words
    refused = run("--enrol", "node001")
    assert isinstance(refused.exception, errors.Unavailable) and "no node can enrol" in str(refused.exception)
    asked: list[dict[str, object]] = []

    async def made(folder: Folder, subject: str, **options: object) -> tuple[Token, str]:
        asked.append({"subject": subject, **options})
        return Token(id="x", kind="enrol", subject=subject, name="", created="", expires="then", uses=20), "bph_x_y.z"

    monkeypatch.setattr(administration, "create_token", made)
    told = run("--enrol-category", "default", "--uses", "20", "--lasts", "90m", "--replace")
    assert "to enrol new nodes of default, 20 times, good until then" in told.output
    wanted = {"subject": "default", "kind": "enrol-category", "uses": 20, "lasts_s": 5400.0, "replace": True}
    assert asked == [{**wanted, "name": "", "days": 0}]


async def test_uses_are_counted_down_and_listed(folder: Folder, tmp_path: Path) -> None:
    async with site(folder, tmp_path) as (daemon, _):
        token = await token_for(folder, "default", kind="enrol-category", uses=2, lasts_s=60)
        machine = Machine(tmp_path / "one", daemon, folder.file("ca.crt"))
        assert await machine.enrol(token) == "issued"
        listed = [one for one in await administration.list_tokens(folder) if one.kind == "enrol-category"]
        assert [(one.subject, one.left, one.uses) for one in listed] == [("default", 1, 2)]
