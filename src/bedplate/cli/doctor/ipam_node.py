"""Looks at the machine this runs on as a node: the plugin, its configuration and log, the daemon's socket, the store.

In: paths. Out: findings, each with the command or edit that fixes it. Reads files, asks the daemon whether it is ready,
and runs the plugin for its version; changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.cli.ipam import stores
from bedplate.cloud.doctor import Finding, fine, note, problem, unknown
from bedplate.core import errors
from bedplate.core.explanation import State
from bedplate.ipam.node import grpcclient, install, options
from bedplate.ipam.node.http2 import Code
from bedplate.ipam.node.storeview import read_store

__all__ = ["Places", "check_node", "is_node"]

TIMEOUT_S = 5.0
STATUS = "/bedplate.ipam.node.v1.NodeService/Status"
LEVELS = ("panic", "error", "warning", "info", "debug", "verbose")
_TAIL_BYTES = 64 * 1024
_DEFAULT = options.Options()


@dataclass(frozen=True, slots=True)
class Places:
    """Where a node has what belongs to address management."""

    conf_dir: Path = Path(_DEFAULT.cni.cni_conf_dir)
    bin_dir: Path = Path(_DEFAULT.cni.cni_bin_dir)
    store: Path = Path(_DEFAULT.daemon.store_file)

    @property
    def conf(self) -> Path:
        return self.conf_dir / install.CONF_NAME

    @property
    def plugin(self) -> Path:
        return self.bin_dir / install.PLUGIN_NAME


def is_node(places: Places) -> bool:
    """Whether this machine has anything of it."""
    return any(place.exists() for place in (places.conf, places.plugin, places.store))


async def check_node(places: Places) -> list[Finding]:
    """All checks of this machine."""
    findings, conf = _configuration(places)
    findings += await _plugin(places)
    findings.append(await _socket(conf))
    findings += _log(places, conf)
    return [*findings, *_store(places)]


def _configuration(places: Places) -> tuple[list[Finding], dict[str, Any]]:
    about = f"file {places.conf}"
    restart = "restart this node's nv-ipam-node-ds pod: the daemon writes it at every start"
    try:
        conf = json.loads(places.conf.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return [problem("node", about, "does not exist: the plugin uses its defaults", restart)], {}
    except OSError as err:
        return [unknown("node", about, str(err.strerror), "run the doctor as root")], {}
    except ValueError as err:
        return [problem("node", about, f"is not JSON, so every ADD fails: {err}", restart)], {}
    if not isinstance(conf, dict):
        return [problem("node", about, "is not a JSON object, so every ADD fails", restart)], {}
    level = conf.get("logLevel", "info")
    if level not in LEVELS:
        text = f"its logLevel is {level!r}, which is not one of {', '.join(LEVELS)}"
        return [problem("node", about, text, f'set "logLevel": "info" in {places.conf}')], conf
    text = f"daemonSocket {conf.get('daemonSocket', 'default')}, logLevel {level}"
    raised = "" if level in ("debug", "verbose") else f'to see every call: set "logLevel": "debug" in {places.conf}'
    return [fine("node", about, text + (f"; {raised}" if raised else ""))], conf


async def _plugin(places: Places) -> list[Finding]:
    about = f"plugin {places.plugin}"
    restart = "restart this node's nv-ipam-node-ds pod: the daemon installs it at every start"
    if not places.plugin.exists():
        return [problem("node", about, "does not exist: pods of such a network cannot start", restart)]
    if not os.access(places.plugin, os.X_OK):
        return [problem("node", about, "cannot be executed", f"chmod 755 {places.plugin}")]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            pipe = asyncio.subprocess.PIPE
            child = await asyncio.create_subprocess_exec(
                str(places.plugin),
                env={"CNI_COMMAND": "VERSION", "PATH": "/usr/bin"},
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
            )
            output, _ = await child.communicate(b'{"cniVersion": "1.1.0"}')
        versions = json.loads(output)["supportedVersions"]
    except (OSError, TimeoutError, ValueError, KeyError, TypeError) as err:
        return [
            problem(
                "node", about, f"does not respond to CNI_COMMAND=VERSION: {str(err) or type(err).__name__}", restart
            )
        ]
    findings = [fine("node", about, f"speaks CNI {versions[0]} to {versions[-1]}")]
    shipped = install.find_plugin(_DEFAULT.cni)
    if shipped is not None and shipped.read_bytes() != places.plugin.read_bytes():
        findings.append(note("node", about, f"is not the one shipped with this program ({shipped})"))
    return findings


async def _socket(conf: dict[str, Any]) -> Finding:
    target = str(conf.get("daemonSocket") or _DEFAULT.cni.cni_daemon_socket)
    about = f"daemon at {target}"
    fix = "kubectl -n kube-system get pods -o wide -l name=nv-ipam-node   # then kubectl logs of the one on this node"
    if not target.startswith("unix:"):
        return note("node", about, "not checked: only unix sockets can be checked")
    path = target.removeprefix("unix:").removeprefix("//")
    try:
        await grpcclient.call(path, STATUS, b"", timeout_s=TIMEOUT_S)
    except grpcclient.CallFailed as err:
        if err.code is Code.UNIMPLEMENTED:
            return fine("node", about, "responds; it is the original's")
        if err.code is not None:
            return problem("node", about, f"responds, but cannot allocate addresses now: {err}", fix)
        return problem("node", about, f"does not respond, so ADD and DEL fail: {err}", fix)
    return fine("node", about, "responds and can allocate addresses")


def _log(places: Places, conf: dict[str, Any]) -> Iterator[Finding]:
    path = Path(str(conf.get("logFile") or _DEFAULT.cni.cni_log_file))
    about = f"log {path}"
    try:
        if path.is_symlink():
            yield problem("node", about, "is a symbolic link: the plugin does not write there", f"rm {path}")
            return
        with path.open("rb") as opened:
            opened.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = opened.read().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        yield note("node", about, "does not exist: the plugin has not been called here yet")
        return
    except OSError as err:
        yield unknown("node", about, str(err.strerror), "run the doctor as root")
        return
    bad = [line for line in lines if "[error]" in line or "[panic]" in line]
    if bad:
        yield note("node", about, f"{len(bad)} errors at its end, the last: {bad[-1][:200]}", f"tail -n 50 {path}")
    else:
        yield fine("node", about, f"no error in its last {len(lines)} lines")


def _store(places: Places) -> Iterator[Finding]:
    about = f"store {places.store}"
    try:
        seen = stores.check(places.store, read_store(places.store))
    except errors.NotFound:
        yield note("node", about, "does not exist: the daemon has not allocated an address here yet")
        return
    except errors.BedplateError as err:
        yield unknown("node", about, err, "run the doctor as root")
        return
    for finding in seen.findings:
        text = f"{finding.topic}: {finding.answer}: {finding.why}"
        if finding.state == State.BAD:
            yield problem("node", about, text, f"bedplate ipam store check {places.store}")
        elif finding.state == State.NOTICE:
            yield note("node", about, text)
    if all(finding.state == State.GOOD for finding in seen.findings):
        counts = next(finding for finding in seen.findings if finding.topic == "reservations")
        yield fine("node", about, f"is intact and holds {counts.answer} reservations")
