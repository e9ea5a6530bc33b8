"""Docker::Host: which row becomes which key of the daemon's settings (behaviours 56 to 63)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.head.render import rooms

from bedplate.api.steps import notice, steps
from bedplate.core import errors
from bedplate.head.desired import desired
from bedplate.head.render import docker
from bedplate.head.schema.tables import show_rows
from bedplate.head.session import Session
from bedplate.head.tree import Tree

NODE = "node006"


def settings(tree: Tree) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rooms.file_of(tree, NODE, docker.CONF).content)
    return found


def unit(tree: Tree) -> list[str]:
    return rooms.file_of(tree, NODE, docker.UNIT).content.splitlines()


@pytest.fixture
def session() -> Session:
    return Session(rooms.full())


def test_item_056_an_assigned_role_shows_27_rows_and_renders() -> None:
    session = Session(rooms.full())
    path = session.add(("device", "node007", "roles"), "docker::host")
    assert path[-1] == "Docker::Host"
    assert len(show_rows(session.schema, session.tree.get(path))) == 27
    assert json.loads(rooms.file_of(session.tree, "node007", docker.CONF).content)["data-root"] == "/var/lib/docker"


@pytest.mark.parametrize(
    ("parameter", "text", "key", "value"),
    [
        ("spool", "/data", "data-root", "/data"),
        ("enableselinux", "no", "selinux-enabled", False),
        ("defaultulimits", "nofile=1:2", "default-ulimits", {"nofile": {"Name": "nofile", "Soft": 1, "Hard": 2}}),
        ("debug", "yes", "debug", True),
        ("loglevel", "fatal", "log-level", "fatal"),
        ("bridgeip", "10.0.0.1/24", "bip", "10.0.0.1/24"),
        ("bridge", "br0", "bridge", "br0"),
        ("mtu", "1450", "mtu", 1450),
        ("apisockets", "unix:///a,tcp://b", "hosts", ["unix:///a", "tcp://b"]),
        ("iptables", "no", "iptables", False),
        ("usernamespaceremap", "1000:1000", "userns-remap", "1000:1000"),
        ("insecureregistries", "a:5000", "insecure-registries", ["a:5000"]),
        ("enabletls", "yes", "tls", True),
        ("verifytls", "yes", "tlsverify", True),
        ("tlsca", "/ca", "tlscacert", "/ca"),
        ("tlscertificate", "/crt", "tlscert", "/crt"),
        ("tlskey", "/key", "tlskey", "/key"),
        ("containerdsocket", "/run/c.sock", "containerd", "/run/c.sock"),
        ("runtime", "nvidia", "default-runtime", "nvidia"),
    ],
)
def test_item_057_each_row_has_its_key(session: Session, parameter: str, text: str, key: str, value: object) -> None:
    session.set(rooms.DOCKER, parameter, text)
    assert settings(session.tree)[key] == value


def test_item_057_what_is_not_set_is_absent() -> None:
    assert settings(rooms.full()) == {
        "data-root": "/var/lib/docker",
        "selinux-enabled": True,
        "debug": False,
        "log-level": "info",
        "hosts": ["unix:///var/run/docker.sock"],
        "iptables": True,
        "default-runtime": "runc",
        "storage-driver": "overlay2",
    }


def test_item_057_what_the_file_cannot_hold_is_in_the_unit(session: Session) -> None:
    session.set(rooms.DOCKER, "certificatespath", "/etc/certs")
    session.set(rooms.DOCKER, "options", "--live-restore,label=a b,label=x%$y")
    assert unit(session.tree)[2:] == [
        "Environment=DOCKER_CERT_PATH=/etc/certs",
        "ExecStart=",
        'ExecStart=/usr/bin/dockerd --live-restore "--label=a b" --label=x%%$$y',
    ]


def test_item_058_an_mtu_of_zero_is_left_out_and_spool_is_put_into_the_tmp_dir(session: Session) -> None:
    session.set(rooms.DOCKER, "mtu", "0")
    session.set(rooms.DOCKER, "spool", "/data")
    assert "mtu" not in settings(session.tree)
    assert "Environment=DOCKER_TMPDIR=/data/tmp" in unit(session.tree)


def test_item_059_iptables_no_is_rendered_and_restarts_the_service(session: Session) -> None:
    before = session.tree
    session.set(rooms.DOCKER, "iptables", "no")
    assert settings(session.tree)["iptables"] is False
    actions = rooms.planned(before, session)
    assert {action.node for action in actions} == {NODE}
    assert rooms.verbs(actions, NODE, "file", docker.CONF) == ["change", "test"]
    assert rooms.verbs(actions, NODE, "service", "docker") == ["restart"]
    done = steps(desired(before, NODE), desired(session.tree, NODE))
    assert [text for step in done if (text := notice(step))] == ["Service docker was restarted"]


def test_item_060_a_sixth_log_level_is_refused(session: Session) -> None:
    with pytest.raises(errors.Invalid, match="loglevel"):
        session.set(rooms.DOCKER, "loglevel", "trace")


@pytest.mark.parametrize("text", ["1000", "1000:1000", "remap", "remap:group"])
def test_item_061_four_forms_of_a_remap_are_taken_with_a_warning(session: Session, text: str) -> None:
    session.set(rooms.DOCKER, "usernamespaceremap", text)
    assert settings(session.tree)["userns-remap"] == text
    (warning,) = desired(session.tree, NODE).warnings
    assert "user_namespace.enable=1" in warning
    assert [action.name for action in rooms.planned(rooms.full(), session) if action.kind == "warning"] == [warning]


@pytest.mark.parametrize("text", ["1000:", ":1000", "a b", "1000:a:b", "user:"])
def test_item_061_other_forms_of_a_remap_are_refused(session: Session, text: str) -> None:
    with pytest.raises(errors.Invalid, match="usernamespaceremap"):
        session.set(rooms.DOCKER, "usernamespaceremap", text)


def test_item_062_the_storage_driver_is_overlay2_unless_a_backend_says_otherwise(session: Session) -> None:
    place = (*rooms.DOCKER, "storage_backends")
    assert session.submode(place).words() == ["aufs", "devicemapper", "overlay2"]
    assert settings(session.tree)["storage-driver"] == "overlay2"
    session.add(place, "old", "aufs")
    assert settings(session.tree)["storage-driver"] == "aufs"
    session.set((*place, "old"), "options", "aufs.x=1")
    assert settings(session.tree)["storage-opts"] == ["aufs.x=1"]


def test_of_several_backends_the_preferred_one_is_used_and_that_is_told(session: Session) -> None:
    for word in ("aufs", "devicemapper", "overlay2"):
        session.add((*rooms.DOCKER, "storage_backends"), f"my{word}", word)
    assert settings(session.tree)["storage-driver"] == "overlay2"
    assert "myoverlay2 is used" in desired(session.tree, NODE).warnings[0]


def test_item_063_devicemapper_maps_to_nine_options_and_empty_ones_are_left_out(session: Session) -> None:
    backend = session.add((*rooms.DOCKER, "storage_backends"), "dm", "devicemapper")
    assert settings(session.tree)["storage-opts"] == ["dm.blkdiscard=true", "dm.blocksize=64K", "dm.fs=xfs"]
    rows = {
        "loopdatasize": "200GB",
        "loopdevicesize": "20GB",
        "loopmetadatasize": "4GB",
        "mkfsarguments": "-n ftype=1",
        "mountoptions": "nodiscard",
        "pooldevice": "/dev/mapper/pool",
        "blkdiscard": "no",
        "blocksize": "128K",
        "filesystem": "ext4",
    }
    for parameter, text in rows.items():
        session.set(backend, parameter, text)
    assert sorted(settings(session.tree)["storage-opts"]) == [
        "dm.basesize=20GB",
        "dm.blkdiscard=false",
        "dm.blocksize=128K",
        "dm.fs=ext4",
        "dm.loopdatasize=200GB",
        "dm.loopmetadatasize=4GB",
        "dm.mkfsarg=-n ftype=1",
        "dm.mountopt=nodiscard",
        "dm.thinpooldev=/dev/mapper/pool",
    ]


def test_a_ulimit_that_cannot_be_read_is_left_out_and_named(session: Session) -> None:
    session.set(rooms.DOCKER, "defaultulimits", "nofile=1024,many")
    assert list(settings(session.tree)["default-ulimits"]) == ["nofile"]
    assert "many" in desired(session.tree, NODE).warnings[0]


def test_without_add_services_a_change_restarts_nothing(session: Session) -> None:
    session.set(rooms.DOCKER, "addservices", "no")
    before = session.tree
    session.set(rooms.DOCKER, "debug", "yes")
    assert [step.kind for step in steps(desired(before, NODE), desired(session.tree, NODE))] == ["file", "file"]
    assert not any(action.kind == "service" for action in rooms.planned(before, session))
