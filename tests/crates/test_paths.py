"""A network is written by users and read by root: which of its paths count, and where its log may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.crates.conftest import Bench
from tests.crates.fakedaemon import fake_daemon

COMMANDS = ["ADD", "CHECK", "DEL", "GC", "STATUS"]


def strict(bench: Bench) -> None:
    """The node's file as `ipam-node` writes it: it allows nothing."""
    del bench.conf["allowNetworkPaths"]
    bench.write_conf()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_network_cannot_make_root_write_a_file(bench: Bench, command: str) -> None:
    strict(bench)
    script, log = bench.folder / "profile.d" / "x.sh", bench.folder / "other" / "y.sh"
    log.parent.mkdir()
    conf = {"daemonSocket": "unix:///$(touch z)", "logFile": str(log), "allowNetworkPaths": True}
    (log.parent / "nv-ipam.conf").write_text(json.dumps(conf))
    ipam = {
        "logFile": str(script),
        "daemonSocket": "unix:///$(touch z)",
        "confDir": str(log.parent),
        "logLevel": "debug",
    }
    network = bench.network(ipam=ipam | {"allowNetworkPaths": True}, **{"cni.dev/valid-attachments": []})
    answer = bench.call(command, network)
    assert answer.exit == 0, answer
    assert bench.daemon.names(), "the node's daemon was not called"
    assert not script.parent.exists() and not log.exists()
    assert bench.log.read_text().count("is ignored") == 3


@pytest.mark.parametrize("is_in_file", [True, False])
@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_log_that_the_node_did_not_name_is_below_var_log(bench: Bench, is_in_file: bool, is_allowed: bool) -> None:
    """The node allows paths of networks, or has no file at all; the path is in the network, or in a file it names."""
    path = bench.folder / "x.sh"
    ipam: dict[str, Any] = {"daemonSocket": bench.conf["daemonSocket"]}
    if is_in_file:
        (bench.folder / "other").mkdir()
        (bench.folder / "other" / "nv-ipam.conf").write_text(json.dumps({"logFile": str(path)}))
        ipam["confDir"] = str(bench.folder / "other")
    else:
        ipam["logFile"] = str(path)
    env = {} if is_allowed else {"NV_IPAM_CONF_DIR": str(bench.folder / "none")}
    answer = bench.call("ADD", bench.network(ipam=ipam), **env)
    assert (answer.exit, bench.daemon.names()) == (0, ["Allocate"])
    assert "must be below /var/log" in answer.stderr
    assert not path.exists()


@pytest.mark.parametrize("form", ["/var/log/../../{}/x", "/var/log", "/var/logs/x", "{}/x", "x"])
def test_no_form_of_a_path_leaves_var_log(bench: Bench, form: str) -> None:
    path = form.format(str(bench.folder).lstrip("/")) if form.startswith("/var") else form.format(bench.folder)
    answer = bench.call("ADD", bench.network(ipam={"logFile": path}))
    assert (answer.exit, "no log file" in answer.stderr) == (0, True)
    assert not (bench.folder / "x").exists() and not Path("/var/logs").exists()


def test_a_file_that_a_network_names_is_not_read_through_a_link(bench: Bench) -> None:
    secret = bench.folder / "secret"
    secret.write_text("token")
    (bench.folder / "other").mkdir()
    (bench.folder / "other" / "nv-ipam.conf").symlink_to(secret)
    error = bench.call("ADD", bench.network(ipam={"confDir": str(bench.folder / "other")})).error
    assert (error["code"], "token" in error["msg"], bench.daemon.names()) == (7, False, [])


def test_the_node_can_allow_a_socket_of_a_network(bench: Bench) -> None:
    with fake_daemon(f"unix:{bench.folder}/other.sock") as other:
        network = bench.network(ipam={"daemonSocket": f"unix://{bench.folder}/other.sock"})
        assert bench.call("ADD", network).exit == 0
        assert (other.names(), bench.daemon.names()) == (["Allocate"], [])
        strict(bench)
        assert bench.call("ADD", network).exit == 0
        assert (other.names(), bench.daemon.names()) == (["Allocate"], ["Allocate"])


@pytest.mark.parametrize("is_in_file", [True, False])
def test_a_call_takes_at_most_a_minute(bench: Bench, is_in_file: bool) -> None:
    ipam = {"daemonCallTimeoutSeconds": 86_400}
    if is_in_file:
        bench.conf.update(ipam)
        bench.write_conf()
    assert bench.call("ADD", bench.network(ipam={} if is_in_file else ipam)).exit == 0
    (deadline_s,) = bench.daemon.deadlines_s
    assert deadline_s is not None and deadline_s <= 60


def test_a_socket_name_cannot_write_lines_of_its_own(bench: Bench) -> None:
    ipam = {"daemonSocket": "unix:///a\n2026 [info] \x1b[2Jforged\r", "daemonCallTimeoutSeconds": 1}
    answer = bench.call("ADD", bench.network(ipam=ipam))
    assert answer.exit == 1
    assert "\x1b" not in bench.log.read_text() and "\r" not in bench.log.read_text()
    assert not [line for line in bench.log.read_text().splitlines() if line.startswith("2026 [info]")]
