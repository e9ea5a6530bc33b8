"""The keys of a site: its authority is replaced while it is served, and another head gets them with a token."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from click.testing import CliRunner
from tests.head.folder.serving import serving
from tests.waiting import DEADLINE_S

from bedplate.cli.head import access
from bedplate.cli.head.command import head
from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.core.clock import ManualClock, SystemClock
from bedplate.head.folder import administration, administrator, creation, pki, sitekeys
from bedplate.head.folder.datafolder import Etcd, Folder, open_head
from bedplate.head.folder.sitekeys import SiteKeys
from bedplate.head.tokens import Tokens
from bedplate.serving import issuing

SITE = {"name": "basecm10", "nodes": 1}


def bundle(folder: Folder) -> int:
    return folder.file("ca.crt").read_text().count("BEGIN CERTIFICATE")


async def test_the_authority_is_replaced_in_two_steps_and_other_heads_follow(tmp_path: Path) -> None:
    folder = await creation.make(tmp_path / "one", **SITE)  # type: ignore[arg-type]
    other = await creation.join(tmp_path / "two", folder.path, name="basecm11")
    first = folder.file("ca.crt").read_bytes()
    async with open_head(folder.path) as opened:
        clock = ManualClock()
        keys = SiteKeys(folder, opened.store, opened.vault, clock)
        changed: list[int] = []
        follower = SiteKeys(other, opened.store, other.vault(), clock, lambda: changed.append(1))
        await follower.load()
        assert changed == []
        with pytest.raises(errors.Conflict, match="no rotation"):
            await keys.finish()
        state = await keys.begin()
        assert state.fingerprint == pki.fingerprint(first) != state.next
        assert bundle(folder) == 2
        with pytest.raises(errors.Conflict, match="under way"):
            await follower.begin()
        for each in (follower, follower):
            await each.load()
        assert changed == [1]
        assert {bundle(other), other.file("ca-next.key").stat().st_mode & 0o777} == {2, 0o600}
        finished = await follower.finish()
        await keys.load()
        assert (finished.fingerprint, finished.next) == (state.next, "")
        for each_folder in (folder, other):
            assert bundle(each_folder) == 1
            assert not each_folder.file("ca-next.key").exists()
            assert pki.fingerprint(each_folder.file("ca.crt").read_bytes()) == state.next
            pki.Authority.load(each_folder.path)
        record = await opened.store.get("/head/authority")
        assert record is not None and b"PRIVATE KEY" not in record.value


class Killed(BaseException):
    """The process is gone."""


def counting(step: int, steps: list[int]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes every call of something a step; at that one the process is killed."""

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            steps.append(1)
            if len(steps) == step:
                raise Killed
            return real(*args, **options)

        return call

    return counted


@pytest.mark.parametrize("finish", [False, True], ids=["begin", "finish"])
async def test_a_rotation_that_is_killed_between_any_two_files_is_found_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finish: bool
) -> None:
    base = await creation.make(tmp_path / "site", **SITE)  # type: ignore[arg-type]
    if finish:
        await administration.rotate_authority(base, finish=False)
    for step in itertools.count(1):
        folder, steps, out = Folder(tmp_path / f"{step}"), list[int](), tmp_path / f"{step}-out"
        shutil.copytree(base.path, folder.path)
        out.mkdir()
        counted = counting(step, steps)
        with monkeypatch.context() as patch:
            patch.setattr(sitekeys, "write_private", counted(sitekeys.write_private))
            patch.setattr(issuing, "write_private", counted(issuing.write_private))
            patch.setattr(Path, "unlink", counted(Path.unlink))
            with contextlib.suppress(Killed):
                await administration.rotate_authority(folder, finish=finish)
        # Whoever comes next finds an authority, and what it signs counts from then on.
        pki.Authority.load(folder.path)
        issued = await administration.issue_certificate(folder, "admin", out, is_node=False, days=1)
        async with open_head(folder.path) as opened:
            clock, tokens = SystemClock(), Tokens(opened.store)
            keys = SiteKeys(folder, opened.store, opened.vault, clock)
            await keys.load()
            await tokens.open()
            await administrator.renew(folder.path, opened.head, tokens, keys, clock)
        presented = pki.presented(issued.certificate)
        assert presented is not None and pki.Trust(folder.file("ca.crt"))(presented.der), step
        assert pki.is_pair(folder.file("admin.crt")) and bundle(folder) == (1 if finish else 2)
        assert bool(keys.state().next) is not finish
        assert pki.is_issued_by(folder.file("admin.crt"), folder.file("ca-next.crt"), folder.file("ca.crt"))
        if len(steps) < step:
            assert step > 4, "every file was a step"
            break


@pytest.mark.parametrize("file", ["server", "admin"])
async def test_a_key_whose_certificate_was_not_written_any_more_is_replaced_with_it(tmp_path: Path, file: str) -> None:
    folder = await creation.make(tmp_path / "site", **SITE)  # type: ignore[arg-type]
    folder.file(f"{file}.key").write_bytes(issuing.new_key_pem()[0])
    assert not pki.is_pair(folder.file(f"{file}.crt"))
    async with serving(folder):
        assert (await administration.status(folder)).revision == 1
    assert pki.is_pair(folder.file(f"{file}.crt"))


async def test_an_event_stream_ends_with_the_certificate_that_it_was_opened_with(tmp_path: Path) -> None:
    folder = await creation.make(tmp_path / "site", **SITE)  # type: ignore[arg-type]
    async with serving(folder) as daemon, administration.client(folder, daemon.url) as admin:
        await admin.create("user", "anna", {"role": "auditor"})
        await administration.issue_certificate(folder, "anna", tmp_path, is_node=False, days=1)
        context = ssl.create_default_context(cafile=str(folder.file("ca.crt")))
        context.load_cert_chain(tmp_path / "anna.crt", tmp_path / "anna.key")
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as http:
            async with http.get(f"{daemon.url}/api/v1/events") as answer, asyncio.timeout(DEADLINE_S):
                await answer.content.readuntil(b"\n\n")
                await admin.revoke_certificates("anna")
                await admin.patch("category", "default", {"notes": "not for anna"})
                assert b"event: revision" not in await answer.content.read()
            async with http.get(f"{daemon.url}/api/v1/events") as answer:
                assert answer.status == 401


async def test_nobody_with_the_new_authority_is_cut_off_by_its_rotation(tmp_path: Path) -> None:
    folder = await creation.make(tmp_path / "site", **SITE)  # type: ignore[arg-type]
    old_ca = tmp_path / "old-ca.crt"
    old_ca.write_bytes(folder.file("ca.crt").read_bytes())
    (tmp_path / "old").mkdir()
    await administration.issue_certificate(folder, "admin", tmp_path / "old", is_node=False, days=1)
    token = folder.admin_token()

    async def ask(ca: Path, cert: Path | None = None) -> str:
        pair = {"cert_file": f"{cert}.crt", "key_file": f"{cert}.key"} if cert is not None else {"token": token}
        async with HeadClient(daemon.url, ca_file=str(ca), attempts=1, **pair) as client:  # type: ignore[arg-type]
            return (await client.whoami()).user

    async def keep_asking() -> None:
        while True:
            assert await ask(folder.file("ca.crt")) == "admin"
            asked.append(1)

    asked: list[int] = []
    async with serving(folder) as daemon, contextlib.AsyncExitStack() as opened:
        assert await ask(old_ca, tmp_path / "old" / "admin") == "admin"
        asking = asyncio.create_task(keep_asking())
        files = {"cert_file": str(tmp_path / "old" / "admin.crt"), "key_file": str(tmp_path / "old" / "admin.key")}
        lasting = await opened.enter_async_context(HeadClient(daemon.url, ca_file=str(old_ca), attempts=1, **files))
        assert (await lasting.whoami()).user == "admin"
        events = lasting.events(types=["notice"])
        reading = asyncio.create_task(anext(events))  # type: ignore[arg-type]
        await administration.rotate_authority(folder, finish=False)
        assert await ask(old_ca, tmp_path / "old" / "admin") == "admin", "who has not heard of it goes on"
        both = tmp_path / "both.crt"
        async with HeadClient(daemon.url, token=token, ca_file=str(old_ca)) as client:
            both.write_text((await client.authority()).certificates)
        (tmp_path / "new").mkdir()
        await administration.issue_certificate(folder, "admin", tmp_path / "new", is_node=False, days=1)
        assert await ask(both, tmp_path / "new" / "admin") == "admin"
        await administration.rotate_authority(folder, finish=True)
        assert await ask(both, tmp_path / "new" / "admin") == "admin"
        assert await ask(folder.file("ca.crt")) == "admin"
        with pytest.raises(errors.Denied, match="not trusted"):
            await ask(old_ca)
        with pytest.raises(errors.BedplateError):
            await ask(both, tmp_path / "old" / "admin")
        with pytest.raises(errors.Denied):
            await lasting.whoami()
        async with HeadClient(daemon.url, token=token, ca_file=str(both)) as client:
            await client.put("category", "something-happens", {})
        with pytest.raises(errors.Denied):
            await reading
        assert (await administration.status(folder)).revision == 2, "the folder's own credential goes on working"
        assert not asking.done()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert asked


async def test_a_head_joins_over_the_network_with_a_token_that_is_good_once(tmp_path: Path) -> None:
    folder = await creation.make(tmp_path / "one", **SITE)  # type: ignore[arg-type]
    with pytest.raises(errors.Unavailable, match="no daemon serves"):
        await administration.create_token(folder, "basecm11", kind="join", name="", days=0)
    async with serving(folder) as daemon:
        about, token = await administration.create_token(folder, "basecm11", kind="join", name="", days=0)
        assert about.expires
        text, _, fingerprint = token.rpartition(".")
        with pytest.raises(errors.Denied, match="another authority"):
            await creation.join_over_network(tmp_path / "two", daemon.url, f"{text}.{'0' * 64}", name="basecm11")
        with pytest.raises(errors.Denied, match="does not let basecm12 join"):
            await creation.join_over_network(tmp_path / "two", daemon.url, token, name="basecm12")
        assert not (tmp_path / "two").exists()
        joined = await creation.join_over_network(tmp_path / "two", daemon.url, token, name="basecm11")
        assert joined.settings.name == "basecm11"
        for name in ("ca.crt", "ca.key", "secrets.key", "admin.crt", "admin.key", "admin.token"):
            assert joined.file(name).read_bytes() == folder.file(name).read_bytes()
        assert joined.loose_files() == []
        assert pki.is_issued_by(joined.file("server.crt"), folder.file("ca.crt"))
        assert not joined.file("head.db").exists()
        with pytest.raises(errors.Denied):
            await creation.join_over_network(tmp_path / "three", daemon.url, token, name="basecm11")
        async with HeadClient(daemon.url, token=folder.admin_token(), ca_file=str(folder.file("ca.crt"))) as client:
            assert "basecm11 joined the site" in (await client.notices(1))[0].text
        assert fingerprint == pki.fingerprint(folder.file("ca.crt").read_bytes())


async def test_a_join_trusts_the_authority_of_its_token_alone_whatever_else_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = await creation.make(tmp_path / "one", **SITE)  # type: ignore[arg-type]
    impostor = await creation.make(tmp_path / "impostor", **SITE)  # type: ignore[arg-type]
    async with serving(folder), serving(impostor) as between:
        _, token = await administration.create_token(folder, "basecm11", kind="join", name="", days=0)
        bundle = folder.file("ca.crt").read_bytes() + impostor.file("ca.crt").read_bytes()
        monkeypatch.setattr(creation, "_authority_of", lambda url: bundle)
        with pytest.raises(errors.BedplateError, match="certificate"):
            await creation.join_over_network(tmp_path / "two", between.url, token, name="basecm11")


@pytest.mark.parametrize("first", [1, 3])
async def test_a_join_that_is_killed_at_any_step_is_run_again_with_the_same_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    monkeypatch.setattr(pki, "host_names", lambda *more: ["localhost", *more])
    folder = await creation.make(tmp_path / "one", **SITE)  # type: ignore[arg-type]
    leave = creation.Workshop.__exit__

    def vanish(self: creation.Workshop, kind: object, *rest: object) -> None:
        if kind is Killed:
            os.close(self._descriptor)  # the kernel lets go of the lock; nobody clears up
        else:
            leave(self, kind, *rest)

    async with serving(folder) as daemon:
        for step in itertools.count(first, 4):
            data, steps = tmp_path / f"{step}", list[int]()
            _, token = await administration.create_token(folder, "basecm11", kind="join", name="", days=0)
            counted = counting(step, steps)
            with monkeypatch.context() as patch:
                patch.setattr(creation, "write_private", counted(creation.write_private))
                patch.setattr(HeadClient, "join", counted(HeadClient.join))
                patch.setattr(issuing, "write_private", counted(issuing.write_private))
                patch.setattr(os, "rename", counted(os.rename))
                patch.setattr(creation.Workshop, "__exit__", vanish)
                with contextlib.suppress(Killed):
                    await creation.join_over_network(data, daemon.url, token, name="basecm11")
            if not (data / "head.yaml").exists():
                await creation.join_over_network(data, daemon.url, token, name="basecm11")
                assert not [file for file in data.iterdir() if file.name.startswith(".")]
            creation.tidy(data)
            assert not [file for file in data.iterdir() if file.name.startswith(".")]
            assert pki.is_pair(data / "server.crt") and Folder.find(data).settings.name == "basecm11"
            with pytest.raises(errors.Denied, match="used already"):
                await creation.join_over_network(tmp_path / "thief", daemon.url, token, name="basecm11")
            assert not (tmp_path / "thief").exists()
            if len(steps) < step:
                assert step > 20, "every file was a step"
                break


async def test_a_join_whose_answer_was_lost_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = await creation.make(tmp_path / "one", **SITE)  # type: ignore[arg-type]
    ask = HeadClient.join

    async def lost(*args: Any) -> None:
        await ask(*args)
        raise errors.Unavailable("the connection was lost")

    async with serving(folder) as daemon:
        _, token = await administration.create_token(folder, "basecm11", kind="join", name="", days=0)
        with monkeypatch.context() as patch:
            patch.setattr(HeadClient, "join", lost)
            with pytest.raises(errors.Unavailable):
                await creation.join_over_network(tmp_path / "two", daemon.url, token, name="basecm11")
        listed = [token.name for token in await administration.list_tokens(folder) if token.kind == "join"]
        assert listed == ["one head node, used by basecm11"]
        await creation.join_over_network(tmp_path / "two", daemon.url, token, name="basecm11")
        async with HeadClient(daemon.url, token=folder.admin_token(), ca_file=str(folder.file("ca.crt"))) as client:
            said = [notice.text for notice in await client.notices(20) if "joined the site" in notice.text]
        assert len(said) == 1, "it is told once"


async def test_a_head_that_joins_gets_the_files_that_the_sites_etcd_asks_for(tmp_path: Path) -> None:
    folder = await creation.make(tmp_path / "one", **SITE)  # type: ignore[arg-type]
    files = {name: tmp_path / name for name in ("cafile", "certfile", "keyfile")}
    for name, file in files.items():
        file.write_text(f"the {name}")
    etcd = Etcd(("https://10.0.0.1:2379",), prefix="/site", **{name: str(file) for name, file in files.items()})
    async with serving(folder) as daemon:
        folder.remember(msgspec.structs.replace(folder.settings, etcd=etcd))
        _, token = await administration.create_token(folder, "basecm11", kind="join", name="", days=0)
        files["keyfile"].rename(tmp_path / "away")
        with pytest.raises(errors.Invalid, match="keyfile cannot be read") as refused:
            await creation.join_over_network(tmp_path / "two", daemon.url, token, name="basecm11")
        assert "--etcd-keyfile" in refused.value.hint and not (tmp_path / "two").exists()
        (tmp_path / "away").rename(files["keyfile"])
        joined = await creation.join_over_network(tmp_path / "two", daemon.url, token, name="basecm11")
    options = joined.store_options()
    found = {"cafile": options.etcd_cafile, "certfile": options.etcd_certfile, "keyfile": options.etcd_keyfile}
    assert {name: Path(file).read_text() for name, file in found.items()} == {name: f"the {name}" for name in files}
    assert all(Path(file).parent == joined.path for file in found.values())
    assert joined.file("etcd.key").stat().st_mode & 0o777 == 0o600
    assert (options.etcd_endpoints, options.etcd_prefix) == (("https://10.0.0.1:2379",), "/site")
    joined.file("etcd.key").chmod(0o644)
    assert "etcd.key is open to other users" in joined.loose_files()[0]
    # One more head, made of a copy of that folder, finds them where they are.
    third = await creation.join(tmp_path / "three", joined.path, name="basecm12")
    assert third.store_options().etcd_keyfile == str(joined.file("etcd.key"))


@pytest.mark.parametrize(
    ("etcd", "said"),
    [
        (None, "--bind 0.0.0.0 --store etcd --etcd-endpoints ..."),
        (Etcd(("https://10.0.0.1:2379",)), "--bind 0.0.0.0   with the etcd https://10.0.0.1:2379"),
        (Etcd(("https://127.0.0.1:2379",)), "on another machine add --etcd-endpoints"),
    ],
)
async def test_who_joined_is_told_how_to_serve(tmp_path: Path, etcd: Etcd | None, said: str) -> None:
    folder = await creation.make(tmp_path / "one", **SITE)  # type: ignore[arg-type]
    folder.remember(msgspec.structs.replace(folder.settings, etcd=etcd))
    joined = await creation.join(tmp_path / "two", folder.path, name="basecm11")
    assert said in access.joined(joined)


async def test_a_token_for_joining_opens_nothing_else(tmp_path: Path) -> None:
    folder = await creation.make(tmp_path / "one", **SITE)  # type: ignore[arg-type]
    async with serving(folder) as daemon:
        _, token = await administration.create_token(folder, "admin", kind="join", name="", days=0)
        async with HeadClient(
            daemon.url, token=token.rpartition(".")[0], ca_file=str(folder.file("ca.crt")), attempts=1
        ) as client:
            for refused in (client.tree(), client.tokens(), client.desired("node001"), client.export(), client.nodes()):
                with pytest.raises(errors.Denied):
                    await refused
            with pytest.raises(errors.Denied):
                await client.put("category", "x", {})
        async with HeadClient(daemon.url, token=folder.admin_token(), ca_file=str(folder.file("ca.crt"))) as client:
            with pytest.raises(errors.Denied):
                await client.join("basecm11")


def test_the_commands_say_what_was_done_and_what_is_next(tmp_path: Path) -> None:
    folder = asyncio.run(creation.make(tmp_path / "site", **SITE))  # type: ignore[arg-type]

    def run(*words: str) -> str:
        result = CliRunner().invoke(head, [*words, "--data", str(folder.path)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    begun = run("rotate-authority")
    assert "is trusted beside" in begun and "--finish" in begun and "/ca.crt" in begun
    assert "is the only one now" in run("rotate-authority", "--finish")
    assert "of node node001 issued before" in run("revoke-certificate", "node001", "--node")
    assert "no longer counts" in run("revoke-certificate", "--file", str(folder.file("admin.crt")))
    listed = json.loads(run("revoke-certificate", "--list", "-o", "json"))
    assert sorted(item.get("subject", "") for item in listed) == ["", "node001"]
    refused = CliRunner().invoke(head, ["revoke-certificate", "--data", str(folder.path)])
    assert refused.exit_code == 2 and "give one of NAME" in refused.output
    (tmp_path / "token").write_text("bph_not_one")
    words = ["join", "--data", str(tmp_path / "two"), "--url", "https://127.0.0.1:9", "--name", "basecm11"]
    refused = CliRunner().invoke(head, [*words, "--token-file", str(tmp_path / "token")])
    assert isinstance(refused.exception, errors.Invalid) and "--join" in refused.exception.hint
