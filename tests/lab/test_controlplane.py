"""The control plane without root: real etcd, real kube-apiserver."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bedplate.core import errors
from bedplate.lab import binaries
from bedplate.lab.controlplane import ControlPlane, free_ports

PROGRAMS = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not all(binaries.cached(name) for name in PROGRAMS),
        reason="no kube-apiserver and etcd in the cache (make setup builds them)",
    ),
]


@pytest.fixture(scope="module")
def cp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    running = ControlPlane(directory=tmp_path_factory.mktemp("cp"))
    asyncio.run(running.start())
    yield running
    asyncio.run(running.stop())


async def _get(cp: ControlPlane, path: str, user: str = "admin") -> tuple[int, Any]:
    context = ssl.create_default_context(cafile=str(cp.ca))
    context.load_cert_chain(cp.pki / f"{user}.crt", cp.pki / f"{user}.key")
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(cp.url + path, ssl=context) as answer:
        return answer.status, await answer.json(content_type=None)


def _exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


async def test_the_administrator_reads_namespaces_and_the_server_is_of_the_version_asked_for(cp: ControlPlane) -> None:
    status, body = await _get(cp, "/api/v1/namespaces")
    assert status == 200
    assert "default" in {item["metadata"]["name"] for item in body["items"]}
    _, version = await _get(cp, "/version")
    assert version["gitVersion"].startswith("v1.35.")


async def test_another_user_has_only_the_rights_rbac_gives(cp: ControlPlane) -> None:
    path = cp.kubeconfig_for("alice", groups=["devs"])
    assert path.stat().st_mode & 0o077 == 0
    status, body = await _get(cp, "/api/v1/namespaces", user="user-alice")
    assert status == 403
    assert 'User "alice" cannot list' in body["message"]


async def test_a_killed_apiserver_comes_back_on_its_port_with_its_data(cp: ControlPlane) -> None:
    before, port = cp.pid("kube-apiserver"), cp.url
    _, namespace = await _get(cp, "/api/v1/namespaces/default")
    await cp.kill("kube-apiserver")
    assert cp.pid("kube-apiserver") is None
    with pytest.raises(aiohttp.ClientError):
        await _get(cp, "/readyz")
    await cp.restart("kube-apiserver")
    assert cp.pid("kube-apiserver") not in (None, before)
    assert cp.url == port
    _, again = await _get(cp, "/api/v1/namespaces/default")
    assert again["metadata"]["uid"] == namespace["metadata"]["uid"]


async def test_a_frozen_etcd_stalls_writes_until_it_is_thawed(cp: ControlPlane) -> None:
    cp.freeze("etcd")
    waiting = asyncio.create_task(_get(cp, "/api/v1/namespaces/nothing-here"))
    done, _ = await asyncio.wait([waiting], timeout=1)
    assert not done
    cp.thaw("etcd")
    status, _ = await waiting
    assert status == 404


async def test_a_second_start_in_the_same_folder_finds_the_data(tmp_path: Path) -> None:
    async with ControlPlane(directory=tmp_path) as first:
        _, namespace = await _get(first, "/api/v1/namespaces/default")
    async with ControlPlane(directory=tmp_path) as second:
        _, again = await _get(second, "/api/v1/namespaces/default")
    assert again["metadata"]["uid"] == namespace["metadata"]["uid"]


async def test_all_components_run_and_stop_and_leave_no_temporary_folder() -> None:
    names = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    async with ControlPlane(components=names) as cp:
        folder = cp.directory
        pids = [cp.pid(name) for name in names]
        assert all(pid is not None and _exists(pid) for pid in pids)
        # The controller manager makes the default service account: it is really at work.
        async with asyncio.timeout(60):
            while (await _get(cp, "/api/v1/namespaces/default/serviceaccounts/default"))[0] != 200:
                await asyncio.sleep(0.2)
    assert not any(pid is not None and _exists(pid) for pid in pids)
    assert not folder.exists()


async def test_a_start_that_fails_says_why_and_leaves_no_process(tmp_path: Path) -> None:
    cp = ControlPlane(directory=tmp_path, extra_args={"kube-apiserver": ["--no-such-flag"]})
    with pytest.raises(errors.Terminal) as caught:
        await cp.start()
    assert "unknown flag: --no-such-flag" in str(caught.value)
    assert str(tmp_path / "logs" / "kube-apiserver.log") in str(caught.value)
    assert cp.pid("etcd") is None


def test_the_processes_die_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import asyncio, pathlib
        from bedplate.lab.controlplane import ControlPlane
        async def main():
            async with ControlPlane(directory=pathlib.Path({str(tmp_path)!r})) as cp:
                print(cp.pid("etcd"), cp.pid("kube-apiserver"), flush=True)
                await asyncio.sleep(600)
        asyncio.run(main())
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2 and all(_exists(pid) for pid in pids)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()  # type: ignore[union-attr]
    deadline = time.monotonic() + 30
    while any(_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    left = [pid for pid in pids if _exists(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


async def test_the_older_release_runs_too(tmp_path: Path) -> None:
    if binaries.cached("kube-apiserver", "1.34") is None:
        pytest.skip("kube-apiserver 1.34 is not in the cache: bedplate binaries get kube-apiserver --kubernetes 1.34")
    async with ControlPlane(version="1.34", directory=tmp_path) as cp:
        _, version = await _get(cp, "/version")
    assert version["gitVersion"].startswith("v1.34.")


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


def test_a_control_plane_without_etcd_is_refused() -> None:
    with pytest.raises(errors.Invalid, match="cannot run a control plane of kube-apiserver") as caught:
        ControlPlane(components=("kube-apiserver",))
    assert "etcd and kube-apiserver are needed" in caught.value.hint
