"""The `systemctl` that the agent answers, for programs such as kubeadm."""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.agent.machines import Services

from bedplate.agent.services.systemctl import Systemctl, Words, words_of


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["status", "kubelet"], Words("status", "kubelet")),
        (["--no-pager", "is-active", "--quiet", "kubelet.service"], Words("is-active", "kubelet")),
        (["daemon-reload"], Words("daemon-reload", "")),
        ([], Words("", "")),
    ],
)
def test_options_and_suffixes_do_not_matter(line: list[str], words: Words) -> None:
    assert words_of(line) == words


async def systemctl(folder: str, *words: str) -> tuple[int | None, str]:
    child = await asyncio.create_subprocess_exec(
        os.path.join(folder, "systemctl"), *words, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    return child.returncode, out.decode().strip()


async def test_it_starts_stops_and_tells_about_its_own_units_alone() -> None:
    services = Services()
    async with Systemctl(services, ["kubelet"]) as folder:
        assert await systemctl(folder, "is-active", "kubelet") == (3, "inactive")
        assert await systemctl(folder, "start", "kubelet") == (0, "")
        assert await systemctl(folder, "is-active", "kubelet") == (0, "active")
        assert await systemctl(folder, "is-active", "systemd-resolved") == (3, "inactive")
        assert await systemctl(folder, "stop", "containerd") == (3, "inactive")
        assert await systemctl(folder, "is-enabled", "kubelet") == (0, "enabled")
        assert await systemctl(folder, "stop", "kubelet") == (0, "")
        assert await systemctl(folder, "daemon-reload") == (0, "")
    assert services.did == ["start kubelet", "stop kubelet", "reload units"]
    assert not os.path.exists(folder)
