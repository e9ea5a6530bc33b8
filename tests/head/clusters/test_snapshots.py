"""Snapshots of etcd on the head: whole, checked, for the owner alone; or not there at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bedplate.core import errors
from bedplate.head.clusters import snapshots as module
from bedplate.head.clusters.snapshots import Snapshot, Snapshots, check

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def content(size: int = 1024) -> bytes:
    body = bytes(range(256)) * (size // 256)
    return body + hashlib.sha256(body).digest()


def about(data: bytes) -> Snapshot:
    return Snapshot(size=len(data), sha256=hashlib.sha256(data).hexdigest(), taken="2026-01-01T00:00:00Z", revision=7)


async def chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 100):
        yield data[start : start + 100]


async def test_item_181_a_snapshot_is_kept_for_its_owner_alone_and_listed(tmp_path: Path) -> None:
    own, data = Snapshots(tmp_path), content()
    await own.receive("default", "one", about(data), chunks(data))
    file = own.place("default", "one")
    assert file.read_bytes() == data and file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    (listed,) = own.list("default")
    assert (listed.name, listed.revision, listed.size) == ("one", 7, len(data))
    assert sorted(path.name for path in file.parent.iterdir()) == ["one.db", "one.json"]


async def test_item_181_a_snapshot_that_was_cut_off_or_changed_is_not_kept(tmp_path: Path) -> None:
    own, data = Snapshots(tmp_path), content()
    damaged = data[:5] + b"x" + data[6:]
    for bad, told in ((data[:-100], data), (damaged, damaged), (data, content(2048)), (b"", data)):
        with pytest.raises(errors.Invalid):
            await own.receive("default", "one", about(told), chunks(bad))
    assert list(own.list("default")) == [] and list(tmp_path.glob("etcd-snapshots/default/*")) == []


async def test_item_181_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, os.strerror(28))

    own, data = Snapshots(tmp_path), content()
    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(errors.Unavailable, match="no space left on device"):
        await own.receive("default", "one", about(data), chunks(data))
    with pytest.raises(errors.Unavailable, match="no space left on device"):
        source = tmp_path / "file.db"
        source.write_bytes(data)
        own.adopt("default", source, NOW)
    assert list(tmp_path.glob("etcd-snapshots/default/*")) == []


async def test_the_oldest_go_first(tmp_path: Path) -> None:
    own, data = Snapshots(tmp_path), content()
    for name in ("1", "2", "3"):
        await own.receive("default", name, about(data), chunks(data))
    assert own.prune("default", 5) == [] and own.prune("default", 2) == ["1"]
    assert [each.name for each in own.list("default")] == ["2", "3"]


@pytest.mark.parametrize("name", ["..", "../x", "", "a/b", ".x", "x\n", "x" * 101])
def test_what_is_no_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    for cluster, given in (("default", name), (name, "one")):
        with pytest.raises(errors.Invalid, match="not the name"):
            Snapshots(tmp_path).place(cluster, given)


def test_a_file_of_somebody_else_is_checked_before_it_is_copied(tmp_path: Path) -> None:
    own, file = Snapshots(tmp_path), tmp_path / "file.db"
    for bad, why in ((b"", "not a snapshot"), (bytes(1024), "not a snapshot"), (bytes(1024 + 32), "damaged")):
        file.write_bytes(bad)
        with pytest.raises(errors.Invalid, match=why):
            own.adopt("default", file, NOW)
    file.write_bytes(content())
    kept = own.adopt("default", file, NOW)
    assert kept.name == "2026-01-01T00-00-00Z-from-file"
    target = tmp_path / "copy.db"
    own.copy("default", kept.name, target)
    assert check(target).size == len(content()) and target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(errors.NotFound, match="no snapshot other"):
        own.get("default", "other")


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(errors.Invalid, match="cannot be read"):
        check(tmp_path / "none")


PEM = b"-----BEGIN CERTIFICATE-----\nMIIC\nabcd\n-----END CERTIFICATE-----\n"
ROOT = b"/registry/configmaps/kube-system/kube-root-ca.crt"


@pytest.mark.parametrize(
    ("held", "authority", "whose"),
    [
        (ROOT + b"\x12" + PEM, PEM, "own"),
        (ROOT + b"\x12" + PEM.replace(b"abcd", b"efgh"), PEM, "other"),
        (ROOT + b"\x12" + PEM, b"", "unknown"),
        (b"/registry/namespaces/default", PEM, "unknown"),
        (b"/something/else", PEM, "not Kubernetes"),
    ],
)
def test_item_181_whose_snapshot_a_file_is_follows_from_the_authority_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bytes, authority: bytes, whose: str
) -> None:
    file = tmp_path / "x.db"
    for chunk, before in ((1 << 20, 0), (64, 40), (7, 3)):
        monkeypatch.setattr(module, "_CHUNK", chunk)
        file.write_bytes(bytes(before) + held + bytes(100))
        assert module.origin(file, authority) == whose, chunk
