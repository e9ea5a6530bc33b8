"""The administrator's kubeconfig: good for a year, renewed in time, at a control plane node, and shown."""

from __future__ import annotations

import base64
import contextlib
import pathlib
import stat
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import yaml
from tests.head.clusters import kubesites
from tests.head.clusters.kubesites import PLANES, with_nodes
from tests.head.committing import commit
from tests.ui.rest.serving import KEY

from bedplate.core.clock import ManualClock
from bedplate.head.clusters.administrator import LIFE, Administrators, due, present, text
from bedplate.head.entities import SCHEMA
from bedplate.head.kubeclusters import file_of
from bedplate.head.objects import Secret
from bedplate.head.service import Head
from bedplate.head.session import Edit
from bedplate.head.vault import Vault
from bedplate.serving import issuing
from bedplate.store.sqlite import SqliteStore

HOSTS = ["10.141.0.1", "10.141.0.2"]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pair(clock: ManualClock) -> issuing.Pair:
    return issuing.Authority.create("kubernetes", clock.now(), timedelta(days=3650)).pair


def test_its_certificate_lasts_a_year_and_is_due_at_80_percent(clock: ManualClock, pair: issuing.Pair) -> None:
    known = present(text(pair, "https://10.141.0.1:10443", "default", clock.now()))
    assert known is not None
    assert timedelta(days=364) <= known.ends - known.begins <= LIFE + timedelta(days=1)
    assert due(known, HOSTS, clock.now()) == ""
    assert due(known, HOSTS, clock.now() + 0.79 * LIFE) == ""
    assert "ends on 2027-01-01" in due(known, HOSTS, clock.now() + 0.81 * LIFE)


def test_one_of_ten_years_and_one_for_a_node_that_left_are_due(clock: ManualClock, pair: issuing.Pair) -> None:
    known = present(text(pair, "https://10.141.0.9:10443", "default", clock.now()))
    assert known is not None
    assert due(known, HOSTS, clock.now()) == "10.141.0.9 is no longer a control plane node"
    # A cluster whose nodes nobody knows, such as one that is being made, is not judged.
    assert due(known, [], clock.now()) == ""
    long = known._replace(server="https://10.141.0.1:10443", ends=known.begins + timedelta(days=3649))
    assert "longer than 365 days" in due(long, HOSTS, clock.now())


@pytest.mark.parametrize("content", ["", "{", "a: b", "clusters: []", "clusters: 5", "users: [{user: {}}]"])
def test_what_is_no_kubeconfig_of_ours_is_none(content: str) -> None:
    assert present(content) is None


@contextlib.asynccontextmanager
async def opened(folder: pathlib.Path, clock: ManualClock, pair: issuing.Pair) -> AsyncIterator[Head]:
    async with (
        SqliteStore(folder / "x.db", history_s=None) as store,
        Head(store, SCHEMA, Vault(KEY), clock=clock) as head,
    ):
        tree = kubesites.tree(planes=("node001", "node002"), workers=("node003",))
        cluster = tree.get(("kubernetes", "default"))
        cluster = cluster.with_value("kube_ca_cert", Secret(pair.certificate.decode()))
        cluster = cluster.with_value("kube_ca_key", Secret(pair.key.decode()))
        tree = tree.with_object("kubernetes", "default", cluster)
        await commit(head, [Edit(mode, obj.key, None, obj) for mode, obj in tree.objects()])
        yield head


async def test_the_head_renews_it_in_time_and_lets_others_alone(
    tmp_path: pathlib.Path, clock: ManualClock, pair: issuing.Pair
) -> None:
    async with opened(tmp_path, clock, pair) as head:
        own, file = Administrators(head, tmp_path, clock=clock), file_of(tmp_path, "default")
        assert not own.look(head.tree, "default")
        file.parent.mkdir()
        file.write_text(text(pair, "https://10.141.0.1:10443", "default", clock.now()))
        first = file.read_text()
        assert not own.look(head.tree, "default")
        (shown,) = own.certificates()
        assert (shown.use, shown.subject) == ("kubernetes", "kubernetes-admin@default")
        assert shown.expires.startswith("2027-01-01")
        clock.jump(0.8 * LIFE.total_seconds())
        assert own.look(head.tree, "default")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text() != first
        document = yaml.safe_load(file.read_text())
        assert document["clusters"][0]["cluster"]["server"] == "https://10.141.0.1:10443"
        (shown,) = own.certificates()
        assert shown.expires.startswith("2027-10")
        # Its server leaves the control plane.
        await commit(
            head, [Edit("configurationoverlay", PLANES, None, with_nodes(head.tree, PLANES, "node002").get(
                ("configurationoverlay", PLANES)))], force=True,
        )  # fmt: skip
        assert own.look(head.tree, "default")
        server = yaml.safe_load(file.read_text())["clusters"][0]["cluster"]["server"]
        assert server == "https://10.141.0.2:10443"
        # One that trusts another authority is not ours.
        other = issuing.Authority.create("kubernetes", clock.now(), timedelta(days=3650)).pair
        foreign = text(other, "https://192.0.2.1:6443", "default", clock.now())
        assert base64.b64encode(other.certificate).decode() in foreign
        file.write_text(foreign)
        assert not own.look(head.tree, "default")
        assert file.read_text() == foreign
