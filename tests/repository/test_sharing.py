"""Workers get the servers that they share from one place, and hear why one cannot be had."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator

import pytest
from tests import servers, sharing

STARTS: list[str] = []


def fake(name: str) -> servers.Server:
    folder = pathlib.Path("/nowhere")
    return servers.Server(name, "https://127.0.0.1:1", folder / "kubeconfig", folder / "ca", "t", None, None, "e")


@contextlib.contextmanager
def started() -> Iterator[servers.Server]:
    STARTS.append("start")
    yield fake("real")
    STARTS.append("stop")


@contextlib.contextmanager
def missing() -> Iterator[servers.Server]:
    raise servers.Missing("etcd is not built")
    yield


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[sharing.Desk]:
    STARTS.clear()
    monkeypatch.setattr(servers, "real_ones", lambda: {"real": started, "real-forgetful": missing})
    desk = sharing.Desk()
    yield desk
    desk.close()


def test_a_server_is_started_once_for_all_who_ask(desk: sharing.Desk) -> None:
    assert [sharing.ask(desk.path, "real") for _ in range(3)] == [fake("real")] * 3
    assert STARTS == ["start"]


def test_servers_end_with_the_desk(desk: sharing.Desk) -> None:
    sharing.ask(desk.path, "real")
    desk.close()
    assert STARTS == ["start", "stop"]
    assert not pathlib.Path(desk.path).exists()


def test_a_missing_program_is_told_to_whoever_asks(desk: sharing.Desk) -> None:
    with pytest.raises(servers.Missing, match="etcd is not built"):
        sharing.ask(desk.path, "real-forgetful")


def test_a_server_that_does_not_start_is_told_with_the_reason(desk: sharing.Desk) -> None:
    with pytest.raises(RuntimeError, match="KeyError"):
        sharing.ask(desk.path, "unknown")
