"""Members of an etcd cluster: who joins, who is removed, in which order; against a cluster that is played here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agent.machines import Machine, Services

from bedplate.agent.services import Status
from bedplate.agent.services.etcd import Etcd, EtcdProblem, Member, Settings
from bedplate.agent.services.systemd import is_pid_1

CONF = "/cm/local/apps/etcd/current/etc/cm-etcd.conf"
MEMBERS = "/cm/local/apps/etcd/current/etc/cm-etcd-members.conf"
JOIN = "/run/bedplate-agent/etcd-join.env"
DROP_IN = "/run/bedplate-agent/units/etcd.service.d/90-bedplate-join.conf"


class Cluster:
    """What the members answer. `up` are those that do; they agree while most of the `members` are among them."""

    def __init__(self, *members: Member, up: str = "") -> None:
        self.members = list(members)
        self.up = set(up)
        self.did: list[str] = []
        self.refusals: list[str] = []

    @property
    def is_agreed(self) -> bool:
        return 2 * sum(1 for member in self.members if member.name in self.up) > len(self.members)

    def start(self, name: str) -> None:
        self.up.add(name)
        new = member(name)
        self.members = [new if each.peers == new.peers else each for each in self.members]

    async def ask(self, settings: Settings, url: str, body: Mapping[str, Any] | None) -> bytes:
        host, _, path = url.removeprefix("http://").partition("/")
        if host not in self.up:
            raise EtcdProblem(f"{url}: connection refused")
        if path == "health":
            return b'{"health":"true"}' if self.is_agreed else b'{"health":"false","reason":"no leader"}'
        assert body is not None
        if not self.is_agreed and body.get("linearizable", True):
            raise EtcdProblem(f"{url}: no leader")
        if path.endswith(("add", "remove")) and self.refusals:
            raise EtcdProblem(self.refusals.pop())
        if path.endswith("remove"):
            gone = next(member for member in self.members if member.id == body["ID"])
            self.did.append(f"remove {gone.name or gone.id}")
            self.members.remove(gone)
        elif path.endswith("add"):
            self.did.append(f"add {body['peerURLs'][0]}")
            self.members.append(Member(id="new", peers=tuple(body["peerURLs"])))
        return msgspec.json.encode({"members": self.members})


def member(name: str, *, started: bool = True) -> Member:
    return Member(
        id=f"id-{name}", name=name, peers=(f"http://{name}:2",), clients=(f"http://{name}",) if started else ()
    )


class Running(Services):
    """Services of a node of which etcd answers once it was started."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        super().__init__()
        self._cluster, self._name = cluster, name

    def _run(self, verb: str, name: str) -> str | None:
        if name == "etcd":
            self._cluster.start(self._name)
        return super()._run(verb, name)


class Node:
    """One node with the role; `names` are all members by the head's list."""

    def __init__(self, folder: Path, name: str, names: str, cluster: Cluster) -> None:
        self.machine = Machine(folder / name)
        self.services = Running(cluster, name)
        self.memory = folder / f"{name}.memory"
        self.etcd = Etcd(self.services, self.machine.root, str(self.memory), ask=cluster.ask, pause_s=0)
        self.machine.put(CONF, f"ETCD_NAME={name}\nETCD_DATA_DIR=/var/lib/etcd\n")
        self.list(names)

    def list(self, names: str) -> None:
        peers = ",".join(f"{name}=http://{name}:2" for name in names)
        clients = ",".join(f"{name}=http://{name}" for name in names)
        self.machine.put(MEMBERS, f"ETCD_INITIAL_CLUSTER={peers}\nCM_ETCD_CLIENTS={clients}\n")

    def give_data(self) -> None:
        self.machine.put("/var/lib/etcd/member/wal/0.wal", "x")

    @property
    def has_data(self) -> bool:
        return self.machine.at("/var/lib/etcd/member").exists()

    @property
    def joins(self) -> str:
        place = self.machine.at(JOIN)
        return place.read_text() if place.exists() else ""


async def test_the_first_members_of_a_new_cluster_start_as_the_head_says(tmp_path: Path) -> None:
    cluster = Cluster(*(member(name, started=False) for name in "abc"))
    for name in "abc":
        node = Node(tmp_path, name, "abc", cluster)
        assert await node.etcd.start("etcd") is None
        assert (node.joins, node.services.did) == ("", ["start etcd"])
    assert cluster.did == []


async def test_other_services_are_left_alone(tmp_path: Path) -> None:
    node = Node(tmp_path, "a", "abc", Cluster())
    for act in (node.etcd.start, node.etcd.restart, node.etcd.reload, node.etcd.retire):
        assert await act("nginx") is None
    assert node.services.did == ["start nginx", "restart nginx", "reload nginx", "stop nginx"]


async def test_a_new_member_is_added_before_it_starts(tmp_path: Path) -> None:
    cluster = Cluster(member("a"), member("b"), up="ab")
    cluster.refusals = ["unhealthy cluster"]
    node = Node(tmp_path, "c", "abc", cluster)
    assert await node.etcd.start("etcd") is None
    assert cluster.did == ["add http://c:2"]
    assert node.joins == (
        "ETCD_INITIAL_CLUSTER_STATE=existing\nETCD_INITIAL_CLUSTER=a=http://a:2,b=http://b:2,c=http://c:2\n"
    )
    assert node.machine.at(DROP_IN).read_text() == f"[Service]\nEnvironmentFile=-{JOIN}\n"
    assert node.services.did == ["reload units", "start etcd"]


async def test_a_second_member_is_added_though_the_two_agree_on_nothing_until_it_has_started(tmp_path: Path) -> None:
    cluster = Cluster(member("a"), up="a")
    joins = "ETCD_INITIAL_CLUSTER_STATE=existing\nETCD_INITIAL_CLUSTER=a=http://a:2,b=http://b:2\n"
    node = Node(tmp_path, "b", "ab", cluster)
    assert await node.etcd.start("etcd", 1.0) is None
    assert (cluster.did, node.joins) == (["add http://b:2"], joins)
    # Killed between the two: the next agent goes on.
    cluster = Cluster(member("a"), Member(id="new", peers=("http://b:2",)), up="a")
    node = Node(tmp_path / "again", "b", "ab", cluster)
    assert await node.etcd.start("etcd", 1.0) is None
    assert (cluster.did, node.joins) == ([], joins)


async def test_a_member_that_lost_its_data_is_removed_and_added_again(tmp_path: Path) -> None:
    cluster = Cluster(member("a"), member("b"), member("c"), up="ab")
    node = Node(tmp_path, "c", "abc", cluster)
    # What etcd makes before it finds out that it may not start.
    node.machine.put("/var/lib/etcd/member/snap/db", "x")
    assert await node.etcd.start("etcd") is None
    assert cluster.did == ["remove c", "add http://c:2"]
    assert "STATE=existing" in node.joins
    assert not node.has_data


async def test_a_lost_member_goes_before_the_one_in_its_place_comes(tmp_path: Path) -> None:
    cluster = Cluster(member("a"), member("b"), member("c"), up="ab")
    node = Node(tmp_path, "d", "abd", cluster)
    assert await node.etcd.start("etcd") is None
    assert cluster.did == ["remove c", "add http://d:2"]
    assert "c=" not in node.joins


async def test_a_member_that_was_added_and_never_started_is_not_added_again(tmp_path: Path) -> None:
    cluster = Cluster(member("a"), member("b"), Member(id="x", peers=("http://c:2",)), up="ab")
    node = Node(tmp_path, "c", "abc", cluster)
    assert await node.etcd.start("etcd") is None
    assert cluster.did == []
    assert "c=http://c:2" in node.joins


async def test_a_member_with_its_data_starts_as_it_is(tmp_path: Path) -> None:
    cluster = Cluster(member("a"), member("b"), member("c"), up="abc")
    node = Node(tmp_path, "c", "abc", cluster)
    node.give_data()
    assert await node.etcd.restart("etcd") is None
    assert (cluster.did, node.joins, node.has_data) == ([], "", True)
    assert node.memory.exists()


async def test_data_of_a_member_that_was_removed_meanwhile_is_wiped(tmp_path: Path) -> None:
    cluster = Cluster(member("a"), member("b"), up="ab")
    node = Node(tmp_path, "c", "abc", cluster)
    node.give_data()
    assert await node.etcd.start("etcd") is None
    assert cluster.did == ["add http://c:2"]
    assert not node.has_data


async def test_without_data_nobody_begins_a_second_cluster(tmp_path: Path) -> None:
    cluster = Cluster(member("a"), member("b"), member("c"), up="a")
    node = Node(tmp_path, "c", "abc", cluster)
    assert "start the other members first" in str(await node.etcd.start("etcd"))
    cluster.up.clear()
    node.memory.write_text("x")
    assert "the data of this member is gone, and no other member answers" in str(await node.etcd.start("etcd"))
    assert node.services.did == []


async def test_members_that_are_not_listed_any_more_are_removed_by_a_reload(tmp_path: Path) -> None:
    cluster = Cluster(member("a"), member("b"), member("c"), up="ab")
    node = Node(tmp_path, "a", "abc", cluster)
    assert await node.etcd.reload("etcd") is None
    assert cluster.did == []
    node.list("ab")
    assert await node.etcd.reload("etcd") is None
    assert cluster.did == ["remove c"]
    assert node.services.did == []
    cluster.up.clear()
    assert "cannot be brought in line" in str(await node.etcd.reload("etcd", 0.0))


@pytest.mark.parametrize("times", [1, 9])
async def test_a_cluster_that_has_just_changed_is_waited_for_before_a_member_is_removed(
    tmp_path: Path, times: int
) -> None:
    cluster = Cluster(*map(member, "abc"), up="abc")
    cluster.refusals = ["etcdserver: unhealthy cluster"] * times
    node = Node(tmp_path, "a", "ab", cluster)
    assert await node.etcd.reload("etcd") is None
    assert cluster.did == ["remove c"]
    cluster.refusals = ["etcdserver: unhealthy cluster"] * times
    other = Node(tmp_path, "b", "ab", cluster)
    assert await other.etcd.start("etcd") is None, "its data is gone"
    assert cluster.did == ["remove c", "remove b", "add http://b:2"]


async def test_a_member_leaves_before_it_stops_and_takes_its_data_with_it(tmp_path: Path) -> None:
    cluster = Cluster(member("a"), member("b"), member("c"), up="abc")
    node = Node(tmp_path, "c", "abc", cluster)
    before = node.machine.tree()
    assert await node.etcd.start("etcd") is None
    node.give_data()
    node.memory.write_text("x")
    assert await node.etcd.retire("etcd") is None
    assert cluster.did[-1] == "remove c"
    assert node.services.did[-1] == "stop etcd"
    assert not node.has_data
    assert not node.joins
    assert not node.memory.exists()
    assert node.machine.tree().keys() - before.keys() <= {"/var", "/var/lib", "/run"}


async def test_where_systemd_runs_the_drop_in_is_in_its_folder_which_stays(tmp_path: Path) -> None:
    """Elsewhere that folder is not made: an agent that starts again would take systemd for PID 1."""
    cluster = Cluster(member("a"), member("b"), up="ab")
    node = Node(tmp_path, "c", "abc", cluster)
    folder = node.machine.at("/run/systemd/system")
    folder.mkdir(parents=True)
    assert await node.etcd.start("etcd") is None
    assert (folder / "etcd.service.d/90-bedplate-join.conf").exists() and not node.machine.at(DROP_IN).exists()
    assert await node.etcd.retire("etcd") is None
    assert list(folder.iterdir()) == []
    other = Node(tmp_path / "other", "c", "abc", Cluster(member("a"), member("b"), up="ab"))
    assert await other.etcd.start("etcd") is None
    assert other.machine.at(DROP_IN).exists() and not is_pid_1(str(other.machine.at("/run/systemd/system")))


async def test_the_last_member_just_stops(tmp_path: Path) -> None:
    cluster = Cluster(member("c"), up="c")
    node = Node(tmp_path, "c", "abc", cluster)
    node.give_data()
    assert await node.etcd.retire("etcd") is None
    assert (cluster.did, node.has_data) == ([], False)


async def test_who_cannot_leave_goes_all_the_same(tmp_path: Path) -> None:
    cluster = Cluster(member("a"), member("b"), member("c"), up="")
    node = Node(tmp_path, "c", "abc", cluster)
    node.give_data()
    assert await node.etcd.retire("etcd") is None
    assert (node.services.did, node.has_data) == (["stop etcd"], False)


async def test_a_restart_waits_for_a_healthy_cluster_and_says_when_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bedplate.agent.services.etcd._SETTLE_S", 0.0)
    cluster = Cluster(member("a"), member("b"), member("c"), up="ac")
    node = Node(tmp_path, "c", "abc", cluster)
    node.give_data()
    assert await node.etcd.restart("etcd") is None
    cluster.members += [member("d"), member("e")]
    why = str(await node.etcd.restart("etcd"))
    assert "etcd runs, but its cluster is not healthy" in why
    assert "no leader" in why


async def test_a_member_that_ends_again_and_again_is_told_without_waiting_for_its_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose folder of data is a file, for example: others wait for it as long as it has the turn."""
    node = Node(tmp_path, "c", "abc", Cluster(member("a"), member("b"), member("c"), up="ab"))
    node.give_data()
    ends = iter(range(10))

    async def status(names: Iterable[str]) -> Mapping[str, Status]:
        return {name: Status(name, "failed", restarts=next(ends), why="exit code 1") for name in names}

    monkeypatch.setattr(Cluster, "start", lambda cluster, name: None)
    monkeypatch.setattr(node.services, "status", status)
    assert await node.etcd.start("etcd") == "etcd ends again and again (exit code 1); see its log on this node"
    assert next(ends) == 4
