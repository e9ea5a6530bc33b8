"""The daemon decides, in this process: which addresses it names, which certificates it renews, what it repeats."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from bedplate.cli.head.command import head as head_commands
from bedplate.core import errors
from bedplate.core.clock import ManualClock
from bedplate.head import daemon
from bedplate.head.daemon import Daemon, Options
from bedplate.head.folder import creation, pki
from bedplate.head.folder.datafolder import Etcd, Folder
from bedplate.ui import web


@pytest.fixture
async def folder(tmp_path: Path) -> Folder:
    return await creation.make(tmp_path / "site", name="basecm10", nodes=0, clock=ManualClock())


@pytest.mark.parametrize(
    ("bind", "advertise", "url", "local"),
    [
        ("127.0.0.1", "", "https://127.0.0.1:7", "https://127.0.0.1:7"),
        ("0.0.0.0", "", "https://198.51.100.4:7", "https://127.0.0.1:7"),
        ("::", "", "https://198.51.100.4:7", "https://[::1]:7"),
        ("::1", "", "https://[::1]:7", "https://[::1]:7"),
        ("head1", "", "https://head1:7", "https://head1:7"),
        ("0.0.0.0", "https://head1:8081/", "https://head1:8081", "https://127.0.0.1:7"),
    ],
)
async def test_others_are_told_an_address_they_can_reach_and_this_machine_its_own(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, bind: str, advertise: str, url: str, local: str
) -> None:
    monkeypatch.setattr(pki, "outward_addresses", lambda: ["198.51.100.4", "2001:db8::4"])
    daemon = Daemon(folder, Options(bind=bind, advertise=advertise), web.serve)
    daemon._name_addresses(7)
    assert (daemon.url, daemon.local_url) == (url, local)


async def test_certificates_are_renewed_before_they_end_and_not_otherwise(folder: Folder) -> None:
    clock = ManualClock()

    def held() -> list[bytes]:
        return [folder.file(f"{name}.crt").read_bytes() for name in ("server", "ca")]

    daemon = Daemon(folder, Options(bind="127.0.0.1"), web.serve, clock=clock)
    daemon._renew()
    before = held()
    clock.jump(timedelta(days=300).total_seconds())
    daemon._renew()
    assert held() == before
    clock.jump(timedelta(days=40).total_seconds())
    daemon._renew()
    after = held()
    assert after[0] != before[0] and after[1] == before[1]
    end = pki.good_until(folder.file("server.crt"))
    assert end is not None and end > clock.now() + timedelta(days=360)


async def test_a_head_whose_authority_is_kept_elsewhere_serves_on(folder: Folder) -> None:
    folder.file("ca.key").unlink()
    before = folder.file("server.crt").read_bytes()
    Daemon(folder, Options(bind="127.0.0.1"), web.serve, clock=ManualClock())._renew()
    assert folder.file("server.crt").read_bytes() == before


async def test_a_new_name_of_the_machine_gets_into_the_certificate(folder: Folder) -> None:
    daemon = Daemon(folder, Options(advertise="https://new-name.example.org:8081"), web.serve, clock=ManualClock())
    before = folder.file("server.crt").read_bytes()
    daemon._renew()
    assert folder.file("server.crt").read_bytes() != before
    assert not pki.lacks(folder.file("server.crt"), ["new-name.example.org"], ManualClock().now())


async def test_what_the_store_breaks_off_is_done_again_and_what_is_a_bug_is_not() -> None:
    clock, tried = ManualClock(), asyncio.Event()
    failures = [errors.Unavailable("away"), errors.Conflict("another client wrote first"), None]

    async def work() -> None:
        failure = failures.pop(0)
        if failure is not None:
            raise failure
        tried.set()
        await asyncio.Event().wait()

    doing = asyncio.create_task(daemon._persistently("work", work, clock))
    async with asyncio.timeout(60):
        while not tried.is_set():
            await clock.advance(1.0)
    doing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await doing

    async def wrong() -> None:
        raise RuntimeError("a bug")

    with pytest.raises(BaseException) as raised:
        await daemon._persistently("wrong", wrong, clock)
    assert "a bug" in repr(raised.value)


async def test_a_folder_without_a_tree_is_not_served_from_itself(folder: Folder, tmp_path: Path) -> None:
    joined = await creation.join(tmp_path / "b", folder.path, name="basecm11")
    with pytest.raises(errors.Invalid, match="holds no tree") as refused:
        await Daemon(joined, Options(port=0), web.serve).run()
    assert "--etcd-endpoints" in refused.value.hint
    folder.remember(msgspec.structs.replace(folder.settings, etcd=Etcd(("http://127.0.0.1:1",))))
    with pytest.raises(errors.Invalid, match="kept in an etcd"):
        await Daemon(folder, Options(port=0), web.serve).run()


async def test_key_files_that_others_may_read_are_told_at_start(folder: Folder) -> None:
    assert folder.loose_files() == []
    folder.file("ca.key").chmod(0o644)
    folder.file("admin.token").chmod(0o640)
    folder.file("server.crt").chmod(0o644)
    sentences = folder.loose_files()
    assert [sentence.split()[0] for sentence in sentences] == [str(folder.file(n)) for n in ("ca.key", "admin.token")]
    assert "mode 0644" in sentences[0] and "chmod 600" in sentences[0]


def test_a_head_listens_on_this_machine_alone_unless_it_is_opened() -> None:
    assert Options().bind == "127.0.0.1"
    shown = " ".join(CliRunner().invoke(head_commands, ["serve", "--help"]).output.split())
    assert "0.0.0.0 (or ::) opens the head to other machines, such as agents. [default: 127.0.0.1]" in shown
