"""Programs that are not part of this repository, for tests that are marked as talking to one.

In: the name of a program, or of a server. Out: its path, or the running server. Where it is missing the test is skipped
with the reason; a test that belongs to `make test` fails instead (see `tests/tiers.py`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import servers, tiers
from tests.store import etcd_cluster

from bedplate.core import errors
from bedplate.lab import binaries, building

HELM = "v3.22.0"


def on_path(name: str) -> Path:
    """A program of the machine: nginx, tmux, chromium, cargo, go, …"""
    tiers.guard(name)
    path = shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"{name} is not installed (make setup)")
    return Path(path)


def built(name: str, version: str = servers.KUBERNETES) -> Path:
    """A program that `make setup` builds into the cache folder: kubectl, helm, etcd, kube-apiserver, …"""
    try:
        return servers.binary(name, version)
    except servers.Missing as missing:
        pytest.skip(str(missing))


def module(name: str, version: str) -> Path:
    """The files of a Go module: charts and definitions that are published with a program."""
    tiers.guard(name)
    builder = building.Builder(binaries.cache_folder(), dict(os.environ), lambda line: None)
    try:
        return builder.fetch(name, version)
    except errors.BedplateError as err:
        pytest.skip(f"{name} {version} could not be fetched: {err}")


def etcd(folder: Path, **options: Any) -> etcd_cluster.Cluster:
    """An etcd of the test's own, not started yet."""
    try:
        return etcd_cluster.Cluster(folder, **options)
    except etcd_cluster.Missing as missing:
        pytest.skip(str(missing))


def nv_ipam() -> Path:
    """Our CNI plugin: part of this repository, but it takes a cargo to build it."""
    tiers.guard("nv-ipam")
    path = Path(sys.executable).with_name("nv-ipam")
    if not path.is_file():
        pytest.skip("nv-ipam is not built: there was no cargo (make setup)")
    return path


def original(name: str) -> Path:
    """A program of the original whose work ours takes over."""
    tiers.guard(f"the original's {name}")
    folder = os.environ.get("BEDPLATE_PEERS", "")
    path = Path(folder, name)
    if not folder or not path.is_file():
        pytest.skip(f"the original's {name} is not here (BEDPLATE_PEERS names the folder that holds it)")
    return path


@contextlib.contextmanager
def own_server(name: str, **options: Any) -> Iterator[servers.Server]:
    """A `real` or `embedded` server that nobody else uses."""
    with contextlib.ExitStack() as stack:
        try:
            running = stack.enter_context({"real": servers.real, "embedded": servers.embedded}[name](**options))
        except servers.Missing as missing:
            pytest.skip(f"{name}: {missing}")
        yield running


def server(name: str) -> servers.Server:
    """One of the servers that tests share: see `servers.Pool`."""
    if name == "real":
        tiers.guard(name)
    try:
        return servers.shared.get(name)
    except servers.Missing as missing:
        pytest.skip(f"{name}: {missing}")
