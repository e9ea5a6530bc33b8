"""Checklist C, items 56 to 63, from the shell: what is set in the role stands in the file that `explain -v` prints."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.ui.transcripts.driving import Desk, read_table

CONF = "/etc/docker/daemon.json"
ROLE = ("category use default", "roles", "assign docker::host")


async def rendered(desk: Desk, path: str = CONF) -> str:
    """The file on a node of the category, staged changes included; back to where one stood."""
    return await desk.do(f"device explain -v node001 {path}")


async def daemon(desk: Desk) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await rendered(desk))
    return found


async def planned(desk: Desk) -> list[list[str]]:
    said = await desk.type("plan")
    assert said.code == 3 and not said.err, said
    table = read_table(said.out[: said.out.rstrip("\n").rindex("\n")])
    return [row[:4] for row in table.rows]


async def test_item_056_an_assigned_role_has_27_rows_with_the_defaults(desk: Desk) -> None:
    await desk.do(*ROLE)
    rows = dict((await desk.table("show")).rows)
    assert len(rows) == 27
    defaults = {
        "Type": "DockerHostRole",
        "Add services": "yes",
        "Spool": "/var/lib/docker",
        "Tmp dir": "$spool/tmp",
        "Enable SELinux": "yes",
        "Debug": "no",
        "Log Level": "info",
        "MTU": "0",
        "API Sockets": "unix:///var/run/docker.sock",
        "Iptables": "yes",
        "Enable TLS": "no",
        "Verify TLS": "no",
        "Certificates Path": "/etc/docker",
        "Storage Backends": "<0 in submode>",
        "Runtime": "runc",
    }
    assert {label: value for label, value in rows.items() if value and label != "Name"} == defaults


KEYS: list[tuple[str, str, str, object]] = [
    ("spool", "/data/docker", "data-root", "/data/docker"),
    ("enableselinux", "no", "selinux-enabled", False),
    ("debug", "yes", "debug", True),
    ("loglevel", "warn", "log-level", "warn"),
    ("bridgeip", "172.17.0.1/16", "bip", "172.17.0.1/16"),
    ("bridge", "br0", "bridge", "br0"),
    ("mtu", "9000", "mtu", 9000),
    ("apisockets", "unix:///var/run/docker.sock,tcp://0.0.0.0:2376", "hosts", None),
    ("iptables", "no", "iptables", False),
    ("usernamespaceremap", "1000:1000", "userns-remap", "1000:1000"),
    ("insecureregistries", "node001:5000", "insecure-registries", ["node001:5000"]),
    ("enabletls", "yes", "tls", True),
    ("verifytls", "yes", "tlsverify", True),
    ("tlsca", "/etc/docker/ca.pem", "tlscacert", "/etc/docker/ca.pem"),
    ("tlscertificate", "/etc/docker/cert.pem", "tlscert", "/etc/docker/cert.pem"),
    ("tlskey", "/etc/docker/key.pem", "tlskey", "/etc/docker/key.pem"),
    ("containerdsocket", "/run/containerd.sock", "containerd", "/run/containerd.sock"),
    ("runtime", "nvidia", "default-runtime", "nvidia"),
]


@pytest.mark.parametrize(("parameter", "value", "key", "expected"), KEYS)
async def test_item_057_each_parameter_has_its_key(
    desk: Desk, parameter: str, value: str, key: str, expected: object
) -> None:
    await desk.do(*ROLE)
    before = await daemon(desk)
    said = await desk.type(f"set {parameter} {value}")
    assert said.code == 0
    after = await daemon(desk)
    assert after[key] == (value.split(",") if expected is None else expected)
    others = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    assert others == {key}, "one parameter, one key"


async def test_item_057_what_is_not_set_is_absent(desk: Desk) -> None:
    await desk.do(*ROLE)
    held = await daemon(desk)
    unset = {"bip", "bridge", "mtu", "userns-remap", "insecure-registries", "tlscacert", "tlscert", "tlskey"}
    assert not {*unset, "containerd", "default-ulimits", "storage-opts", "tlsverify"} & set(held)


async def test_item_057_ulimits_and_further_options_are_passed_on(desk: Desk) -> None:
    await desk.do(*ROLE, "set defaultulimits nofile=1024:2048", "set options --live-restore")
    assert (await daemon(desk))["default-ulimits"] == {"nofile": {"Name": "nofile", "Soft": 1024, "Hard": 2048}}
    assert "--live-restore" in await rendered(desk, "/etc/systemd/system/docker.service.d/20-bedplate.conf")


async def test_item_058_an_mtu_of_0_is_left_out_and_spool_is_put_in_its_place(desk: Desk) -> None:
    await desk.do(*ROLE, "set mtu 1400", "set mtu 0", "set spool /data/docker")
    assert "mtu" not in await daemon(desk)
    unit = await rendered(desk, "/etc/systemd/system/docker.service.d/20-bedplate.conf")
    assert "DOCKER_TMPDIR=/data/docker/tmp" in unit and "$spool" not in unit


async def test_item_059_iptables_off_is_rendered_and_the_plan_restarts_the_service(desk: Desk) -> None:
    await desk.do(*ROLE, "commit", "set iptables no")
    assert (await daemon(desk))["iptables"] is False
    actions = await planned(desk)
    assert ["node001", "file", CONF, "change"] in actions
    assert ["node001", "service", "docker", "restart"] in actions
    assert {action[0] for action in actions} == {f"node00{number}" for number in range(1, 7)}


@pytest.mark.parametrize("level", ["fatal", "error", "warn", "info", "debug"])
async def test_item_060_the_five_log_levels_are_taken(desk: Desk, level: str) -> None:
    await desk.do(*ROLE, f"set loglevel {level}")
    assert (await daemon(desk))["log-level"] == level


@pytest.mark.parametrize("level", ["trace", "warning", "5", "''"])
async def test_item_060_other_log_levels_are_refused(desk: Desk, level: str) -> None:
    await desk.do(*ROLE)
    said = await desk.fails(f"set loglevel {level}")
    assert "loglevel" in said.err and "fatal, error, warn, info, debug" in said.err


@pytest.mark.parametrize("form", ["1000", "1000:1000", "dockremap", "dockremap:docker"])
async def test_item_061_the_four_forms_are_taken_with_a_word_on_the_kernel(desk: Desk, form: str) -> None:
    await desk.do(*ROLE)
    said = await desk.type(f"set usernamespaceremap {form}")
    assert said.code == 0
    assert "user_namespace.enable=1" in said.out + said.err
    assert (await daemon(desk))["userns-remap"] == form


@pytest.mark.parametrize("form", ["1000:docker", "docker:1000", "a:b:c", "'two words'", ":1000", "1000:", "-1"])
async def test_item_061_other_forms_are_refused(desk: Desk, form: str) -> None:
    await desk.do(*ROLE)
    assert "usernamespaceremap: " in (await desk.fails(f"set usernamespaceremap {form}")).err


async def test_item_062_tab_offers_three_types_and_overlay2_is_the_driver_unless_said(desk: Desk) -> None:
    await desk.do(*ROLE, "storagebackends")
    assert desk.completes("add ") == ["aufs", "devicemapper", "overlay2"]
    assert (await daemon(desk))["storage-driver"] == "overlay2"


OPTIONS = [
    ("blkdiscard", "no", "dm.blkdiscard=false"),
    ("blocksize", "512K", "dm.blocksize=512K"),
    ("filesystem", "ext4", "dm.fs=ext4"),
    ("loopdatasize", "200GB", "dm.loopdatasize=200GB"),
    ("loopdevicesize", "20G", "dm.basesize=20G"),
    ("loopmetadatasize", "4GB", "dm.loopmetadatasize=4GB"),
    ("mkfsarguments", "'-O ^has_journal'", "dm.mkfsarg=-O ^has_journal"),
    ("mountoptions", "nodiscard", "dm.mountopt=nodiscard"),
    ("pooldevice", "/dev/mapper/pool", "dm.thinpooldev=/dev/mapper/pool"),
]


async def test_item_063_the_rows_of_devicemapper_have_their_defaults_and_empty_ones_are_left_out(desk: Desk) -> None:
    await desk.do(*ROLE, "storagebackends", "add devicemapper dm")
    rows = dict((await desk.table("show")).rows)
    set_rows = {label: value for label, value in rows.items() if value and label not in ("Name", "Type")}
    assert set_rows == {"Filesystem": "xfs", "Block Size": "64K", "Blk Discard": "yes"}
    held = await daemon(desk)
    assert held["storage-driver"] == "devicemapper"
    assert sorted(held["storage-opts"]) == ["dm.blkdiscard=true", "dm.blocksize=64K", "dm.fs=xfs"]


@pytest.mark.parametrize(("parameter", "value", "option"), OPTIONS)
async def test_item_063_each_row_of_devicemapper_has_its_option(
    desk: Desk, parameter: str, value: str, option: str
) -> None:
    await desk.do(*ROLE, "storagebackends", "add devicemapper dm", f"set {parameter} {value}")
    assert option in (await daemon(desk))["storage-opts"]


async def test_item_066_the_services_of_a_node_have_the_documented_rows(desk: Desk) -> None:
    await desk.do(*ROLE, "commit", "/", "device use node001", "services")
    table = await desk.table("list")
    assert table.headers == ["Service (key)", "Monitored", "Autostart"]
    assert ["docker", "yes", "yes"] in table.rows
    rows = (await desk.table("show docker")).rows
    assert rows == [
        ["Revision", ""],
        ["Service", "docker"],
        ["Run if", "ALWAYS"],
        ["Monitored", "yes"],
        ["Autostart", "yes"],
        ["Timeout", "-1"],
        ["Belongs to role", "yes"],
        ["Sickness check script", ""],
        ["Sickness check script timeout", "10"],
        ["Sickness check interval", "60"],
    ]
