"""The care for a cluster on one node: renewed certificates, halted API servers, replaced data of etcd."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bedplate.agent import care as module
from bedplate.agent.apply import Effects
from bedplate.agent.care import Care, annotated
from bedplate.agent.commands import Ended
from bedplate.agent.files import Root
from bedplate.agent.services import Status
from bedplate.agent.state import Membership, State
from bedplate.api.desired import CareAction, Errand
from bedplate.core.clock import ManualClock

MANIFEST = "apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    a: b\n  name: x\nspec:\n  hostNetwork: true\n"
SPOOL = "var/lib/etcd"
DATABASE = b"database"


class Machine:
    """The programs and services of a node; `broken` are words of commands that fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broken = ""
        self.why_start: str | None = None
        self.calls: list[str] = []

    async def run(
        self, command: Sequence[str], *, timeout_s: float = 60.0, environ: Mapping[str, str] | None = None
    ) -> Ended:
        line = " ".join(command)
        self.calls.append(line)
        if self.broken and self.broken in line:
            return Ended(1, "", "no space left on device")
        if "snapshot save" in line:
            Path(command[-1]).write_bytes(DATABASE)
        if "snapshot restore" in line:
            (target,) = [word.partition("=")[2] for word in command if word.startswith("--data-dir=")]
            (Path(target) / "member").mkdir(parents=True)
            (Path(target) / "member" / "what").write_text("restored")
        status = {"hash": 1, "revision": 7, "totalKey": 3, "totalSize": 9}
        return Ended(0, json.dumps(status) if "snapshot status" in line else "")

    async def start(self, name: str, timeout_s: float = 90.0) -> str | None:
        self.calls.append(f"start {name}")
        return self.why_start

    async def stop(self, name: str, timeout_s: float = 90.0) -> str | None:
        self.calls.append(f"stop {name}")
        return None

    async def status(self, names: Any) -> Mapping[str, Status]:
        return {}

    @property
    def data(self) -> str:
        return (self.folder / SPOOL / "member" / "what").read_text()


class Line:
    """The head: what it gets, and what it gives."""

    def __init__(self, about: Mapping[str, object] | None = None) -> None:
        own = {"size": len(DATABASE), "sha256": hashlib.sha256(DATABASE).hexdigest(), "restore": "x"}
        self.given = json.dumps(about if about is not None else own).encode() + b"\n" + DATABASE
        self.got = b""

    @contextlib.asynccontextmanager
    async def snapshot(self, id_: str) -> AsyncIterator[Any]:
        yield self

    @property
    async def chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.given), 5):
            yield self.given[start : start + 5]

    async def send(self, data: bytes) -> None:
        self.got += data

    async def end(self) -> None:
        pass


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    etc = tmp_path / "cm/local/apps/etcd/current/etc"
    etc.mkdir(parents=True)
    (etc / "cm-etcd.conf").write_text(
        "ETCD_NAME=node001\nETCD_DATA_DIR=/var/lib/etcd\nETCD_INITIAL_CLUSTER_TOKEN=kube-default\n"
    )
    (etc / "cm-etcd-members.conf").write_text(
        "ETCD_INITIAL_CLUSTER=node001=https://node001:5002,node002=https://node002:5002\n"
        "CM_ETCD_CLIENTS=node001=https://node001:5001\n"
    )
    member = tmp_path / SPOOL / "member"
    member.mkdir(parents=True)
    (member / "what").write_text("old")
    manifests = tmp_path / "etc/kubernetes/manifests"
    manifests.mkdir(parents=True)
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        (manifests / f"{name}.yaml").write_text(MANIFEST)
    return Machine(tmp_path)


@pytest.fixture
def care(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Care:
    return _care(machine, tmp_path, monkeypatch, Line())


def _care(machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch, line: Any) -> Care:
    answers, manifest = iter([True, False] * 100), folder / "etc/kubernetes/manifests/kube-apiserver.yaml"
    monkeypatch.setattr(module, "_is_refused", lambda port: not manifest.exists() if port == 6443 else next(answers))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    state = State(str(folder / "state"))
    os.makedirs(folder / "state", exist_ok=True)
    state.save_membership(Membership("default", is_whole=True))
    effects = Effects(Root(str(folder), is_privileged=False), state, machine, None, machine.run)  # type: ignore[arg-type]
    made = Care(effects, line, ManualClock(), is_machine=True)
    made._data._which = lambda name: f"/usr/bin/{name}"
    return made


async def _ask(care: Care, action: CareAction, cluster: str = "default") -> Any:
    async def tell(text: str) -> None:
        return None

    return await care.run(Errand(id="1", kind="care", care=action, cluster=cluster), tell)


def test_an_annotation_is_added_beside_others_and_replaces_itself() -> None:
    first = annotated(MANIFEST, "one")
    assert first.startswith(
        'apiVersion: v1\nkind: Pod\nmetadata:\n  annotations:\n    bedplate.dev/certificates: "one"\n'
    )
    second = annotated(first, "two")
    assert '"one"' not in second and second.count("bedplate.dev/certificates") == 1
    assert second.count("annotations:") == 1 and second.endswith("  hostNetwork: true\n")


async def test_item_180_renewal_runs_kubeadm_for_what_it_issued_and_starts_those_that_read_once(
    care: Care, machine: Machine
) -> None:
    done = await _ask(care, "renew")
    assert (done.why, done.text) == ("", "renewed 6 certificates")
    assert not any(" renew apiserver " in line or "renew all" in line for line in machine.calls), (
        "that one is the head's"
    )
    folder = machine.folder / "etc/kubernetes/manifests"
    touched = {path.name for path in folder.iterdir() if "bedplate.dev/certificates" in path.read_text()}
    assert touched == {"kube-controller-manager.yaml", "kube-scheduler.yaml"}


async def test_a_renewal_is_for_the_cluster_of_the_node_and_tells_why_it_failed(care: Care, machine: Machine) -> None:
    assert "not part of the cluster other" in (await _ask(care, "renew", "other")).why
    machine.broken = "renew front-proxy-client"
    assert "front-proxy-client failed: exit code 1: no space left" in (await _ask(care, "renew")).why


async def test_item_181_an_api_server_is_halted_and_goes_on_with_the_same_manifest(
    care: Care, machine: Machine
) -> None:
    manifest = machine.folder / "etc/kubernetes/manifests/kube-apiserver.yaml"
    for _ in range(2):
        assert (await _ask(care, "halt")).why == "" and not manifest.exists()
    for _ in range(2):
        assert (await _ask(care, "go-on")).why == "" and manifest.read_text() == MANIFEST
    assert not (machine.folder / "etc/kubernetes/tmp").exists()
    manifest.unlink()
    assert "there is no" in (await _ask(care, "halt")).why


async def test_item_181_a_snapshot_is_checked_before_it_is_sent(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line()
    care = _care(machine, tmp_path, monkeypatch, line)
    done = await _ask(care, "snapshot")
    assert done.why == "" and done.text == "revision 7, 3 keys, 8 bytes, hash 00000001"
    first, _, rest = line.got.partition(b"\n")
    assert rest == DATABASE and json.loads(first)["sha256"] == hashlib.sha256(DATABASE).hexdigest()
    for broken in ("snapshot save", "snapshot status"):
        machine.broken = broken
        assert "no space left on device" in (await _ask(care, "snapshot")).why
    assert not (tmp_path / "state" / "snapshot.db").exists()


async def test_item_181_data_is_replaced_put_back_and_kept(care: Care, machine: Machine) -> None:
    assert "no snapshot is unpacked" in (await _ask(care, "replace")).why
    assert machine.data == "old"
    assert (await _ask(care, "fetch")).why == "" and machine.data == "old"
    (line,) = [line for line in machine.calls if "snapshot restore" in line]
    assert (
        "--name=node001 " in line and "--initial-cluster-token=kube-default x " in line and "--mark-compacted" in line
    )
    for _ in range(2):
        assert (await _ask(care, "replace")).why == "" and machine.data == "restored"
    assert "not finished" in (await _ask(care, "fetch")).why, "the former data must not be lost"
    for _ in range(2):
        assert (await _ask(care, "put-back")).why == "" and machine.data == "old"
    assert (await _ask(care, "replace")).why == "" and machine.data == "restored"
    assert (await _ask(care, "drop")).why == ""
    former = machine.folder / SPOOL / "member.before-restore" / "what"
    assert former.read_text() == "old"
    assert (await _ask(care, "put-back")).why == "" and machine.data == "restored", "that restore has ended"


async def test_item_181_data_of_an_earlier_restore_is_never_taken_for_that_of_this_one(
    care: Care, machine: Machine
) -> None:
    ancient = machine.folder / SPOOL / "member.before-restore"
    ancient.mkdir()
    (ancient / "what").write_text("ancient")
    # Killed while it unpacked: there is a folder, and nothing in it.
    (machine.folder / SPOOL / "restore").mkdir()
    assert (await _ask(care, "put-back")).why == "" and machine.data == "old"
    assert (await _ask(care, "fetch")).why == ""
    assert (await _ask(care, "put-back")).why == "" and machine.data == "old"
    assert (await _ask(care, "replace")).why == "" and machine.data == "restored"
    assert (await _ask(care, "put-back")).why == "" and machine.data == "old"


async def test_item_181_a_replacement_that_was_killed_half_way_goes_on_or_back(care: Care, machine: Machine) -> None:
    spool = machine.folder / SPOOL
    for action, data in (("replace", "restored"), ("put-back", "old")):
        assert (await _ask(care, "fetch")).why == ""
        (spool / "restore" / "replaced").touch()
        (spool / "member").rename(spool / "member.before-restore")
        assert (await _ask(care, action)).why == "" and machine.data == data  # type: ignore[arg-type]
        await _ask(care, "put-back")
        await _ask(care, "drop")
        assert machine.data == "old"


async def test_item_181_a_snapshot_that_does_not_arrive_or_fit_leaves_the_data(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in (Line({"size": 8, "sha256": "0" * 64}), Line({})):
        done = await _ask(_care(machine, tmp_path, monkeypatch, line), "fetch")
        assert "not the one that the head has" in done.why
    for broken in ("snapshot status", "snapshot restore"):
        machine.broken = broken
        done = await _ask(_care(machine, tmp_path, monkeypatch, Line()), "fetch")
        assert "no space left on device" in done.why
        assert machine.data == "old" and not (machine.folder / SPOOL / "restore").exists()
    assert not any(line.startswith(("stop", "start")) for line in machine.calls)


async def test_a_sandbox_and_an_action_of_a_later_release_are_refused(care: Care) -> None:
    assert "does not know" in (await _ask(care, "")).why
    care._is_machine = False
    assert "sandbox" in (await _ask(care, "inspect")).why
