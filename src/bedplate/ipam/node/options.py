"""Every flag of `ipam-node` as one typed value, and what is wrong with them.

In: the words of a command line; for `path_problems` the file system. Out: `Options` and every problem found, grammar
and values together. The groups `daemon` and `cni` hold the original's flags; the others are ours.
"""

# Flags are made by a function, and no value of them can be changed.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bedplate.core.flags import Duration, Group, flag
from bedplate.ipam import commonflags
from bedplate.ipam.node import server
from bedplate.ipam.node.reservations import StaticIPCheck
from bedplate.program import options as program
from bedplate.program.options import Reading

__all__ = ["GROUPS", "Access", "Checks", "Cni", "Daemon", "Options", "cri_path", "path_problems", "read", "uids"]

DEFAULT_SOCKET = "unix:///var/lib/cni/nv-ipam/daemon.sock"
DEFAULT_PLUGIN = "/nv-ipam"
LOG_LEVELS = ("panic", "error", "warning", "info", "debug", "verbose")


@dataclass(frozen=True, slots=True)
class Daemon:
    """The daemon itself; the original's flags."""

    bind_address: str = flag(
        DEFAULT_SOCKET, "Address that CNI plugins connect to: unix:///PATH, or with --allow-tcp tcp://HOST:PORT."
    )
    health_probe_bind_address: str = flag(":8081", "Address of /healthz and /readyz; 0 disables them.")
    ippools_namespace: str = flag("kube-system", "The namespace whose IPPools and CIDRPools are served.")
    kubeconfig: str = flag("", "Kubeconfig of the cluster; default: KUBECONFIG, then the pod's service account.")
    metrics_bind_address: str = flag(":8080", "Address of /metrics; 0 disables it.")
    node_name: str = flag("", "Name of this Node. Required.")
    store_file: str = flag("/var/lib/cni/nv-ipam/store", "File with the reservations; its folder must exist.")


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask the daemon for addresses."""

    allow_tcp: bool = flag(
        False, "Allow a --bind-address of tcp://: everyone who reaches the port can take and release addresses."
    )
    allowed_uids: str = flag(
        "",
        "User IDs, separated by commas, whose processes may call in addition to root's and the daemon's own. Without "
        "any, only the owner can open the socket.",
    )


@dataclass(frozen=True, slots=True)
class Cni:
    """What is installed for container runtimes; the original's flags, and the first, which is ours."""

    cni_allow_network_paths: bool = flag(
        False,
        "Written to nv-ipam.conf: use confDir, daemonSocket and logFile of networks, which any user who may write "
        "networks can set; their log files stay below /var/log.",
    )
    cni_bin_dir: str = flag("/opt/cni/bin", "Folder of CNI plugins, where nv-ipam is installed.")
    cni_conf_dir: str = flag("/etc/cni/net.d/nv-ipam.d", "Folder where nv-ipam.conf is written.")
    cni_daemon_call_timeout: int = flag(
        5, "Written to nv-ipam.conf: seconds the plugin waits for the daemon, at most 60."
    )
    cni_daemon_socket: str = flag(DEFAULT_SOCKET, "Written to nv-ipam.conf: where the plugin finds the daemon.")
    cni_force_pool_name: bool = flag(
        False, "Written to nv-ipam.conf: refuse network configurations that do not name a pool."
    )
    cni_log_file: str = flag("/var/log/nv-ipam-cni.log", "Written to nv-ipam.conf: the plugin's log file.")
    cni_log_level: str = flag("info", "Written to nv-ipam.conf: panic, error, warning, info, debug or verbose.")
    cni_nv_ipam_bin_file: str = flag(
        DEFAULT_PLUGIN, "The plugin to install; default: the one shipped with this program."
    )
    cni_skip_nv_ipam_binary_copy: bool = flag(False, "Do not install the plugin.")
    cni_skip_nv_ipam_config_creation: bool = flag(False, "Do not write nv-ipam.conf.")


@dataclass(frozen=True, slots=True)
class Checks:
    """What is given, and what is taken back."""

    cleaner: str = flag("on", "on: free addresses whose owners are proven dead. off: only DEL and GC free addresses.")
    cleaner_grace: Duration = flag(
        240.0,
        "With --cri-socket: reservations younger than this are kept, because "
        "their sandbox may still be under creation.",
    )
    cleaner_interval: Duration = flag(60.0, "Time between two passes of the cleaner.")
    cleaner_misses: int = flag(4, "Without --cri-socket: in how many consecutive passes a pod must be gone.")
    cri_socket: str = flag(
        "",
        "The container runtime's socket (unix:///run/containerd/containerd.sock): an address whose sandbox the runtime "
        "does not have in two passes is freed, also after a reboot. Without it pods are looked up in the API server, "
        "which takes longer.",
    )
    static_ip_check: str = flag(
        "warn",
        "A requested address inside another node's block: refuse it, warn (log, event, metric), or off. Only off "
        "allows a network's own address and its broadcast address.",
    )


GROUPS = (
    Group("daemon", "Node daemon", Daemon),
    Group("access", "Callers", Access),
    Group("cni", "CNI plugin", Cni),
    Group("checks", "Addresses", Checks),
    *commonflags.GROUPS,
)


@dataclass(frozen=True, slots=True)
class Options(commonflags.Options):
    """What the program was told."""

    GROUPS: ClassVar = GROUPS

    daemon: Daemon = field(default_factory=Daemon)
    access: Access = field(default_factory=Access)
    cni: Cni = field(default_factory=Cni)
    checks: Checks = field(default_factory=Checks)


def read(words: Sequence[str]) -> Reading[Options]:
    """Parse a command line; every problem of syntax and values is reported."""
    return commonflags.read(Options, words, _problems)


def _problems(options: Options) -> Iterator[str]:
    chosen = options.daemon
    if not chosen.node_name:
        yield "--node-name is required"
    if not chosen.ippools_namespace:
        yield "--ippools-namespace must not be empty"
    try:
        bind = server.parse_bind(chosen.bind_address)
        if not bind.path and not options.access.allow_tcp:
            yield f"--bind-address: {chosen.bind_address!r}: a port is open to everyone; --allow-tcp permits it"
    except ValueError as err:
        yield f"--bind-address: {chosen.bind_address!r}: {err}"
    try:
        uids(options.access)
    except ValueError:
        yield f"--allowed-uids: {options.access.allowed_uids!r} must be user IDs, separated by commas"
    yield from program.listener_problems(
        {
            "metrics-bind-address": chosen.metrics_bind_address,
            "health-probe-bind-address": chosen.health_probe_bind_address,
        }
    )
    if options.cni.cni_log_level.lower() not in LOG_LEVELS:
        yield f"--cni-log-level: {options.cni.cni_log_level!r} is not one of {', '.join(LOG_LEVELS)}"
    yield from _check_problems(options.checks)


def _check_problems(chosen: Checks) -> Iterator[str]:
    known = [check.value for check in StaticIPCheck]
    if chosen.static_ip_check not in known:
        yield f"--static-ip-check: {chosen.static_ip_check!r} is not one of {', '.join(known)}"
    if chosen.cleaner not in ("on", "off"):
        yield f"--cleaner: {chosen.cleaner!r} is neither on nor off"
    if chosen.cleaner_interval <= 0:
        yield "--cleaner-interval: must be greater than 0 (--cleaner=off switches it off)"
    if chosen.cleaner_misses < 2:
        yield f"--cleaner-misses: must be at least 2, is {chosen.cleaner_misses} (--cleaner=off switches it off)"
    if chosen.cleaner_grace < 0:
        yield "--cleaner-grace: must not be negative"
    if chosen.cri_socket and not cri_path(chosen.cri_socket).startswith("/"):
        yield f"--cri-socket: {chosen.cri_socket!r} is neither unix:///PATH nor a path"


def uids(chosen: Access) -> frozenset[int]:
    """What `--allowed-uids` lists; `ValueError` when it is not a list of numbers."""
    written = [int(each) for each in chosen.allowed_uids.split(",") if each.strip()]
    if any(uid < 0 for uid in written):
        raise ValueError("a user ID must not be negative")
    return frozenset(written)


def cri_path(written: str) -> str:
    """The path of `--cri-socket`, written as an address or as a path."""
    return written.removeprefix("unix://")


def path_problems(options: Options, plugin: Path | None) -> Iterator[str]:
    """Files and folders that have to be there and are not; `plugin` is what would be installed."""
    cni = options.cni
    required = [("store-file", Path(options.daemon.store_file).parent, "its folder")]
    if not cni.cni_skip_nv_ipam_binary_copy:
        required.append(("cni-bin-dir", Path(cni.cni_bin_dir), "the folder"))
        if plugin is None:
            yield (
                f"--cni-nv-ipam-bin-file: {cni.cni_nv_ipam_bin_file} does not exist, "
                "and no plugin was shipped with this program"
            )
    if not cni.cni_skip_nv_ipam_config_creation:
        required.append(("cni-conf-dir", Path(cni.cni_conf_dir), "the folder"))
    required.append(("cni-log-file", Path(cni.cni_log_file).parent, "its folder"))
    for name, path, what in required:
        if not path.exists():
            yield f"--{name}: {what} {path} does not exist"
