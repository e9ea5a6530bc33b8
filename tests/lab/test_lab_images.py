"""Software images on a managed lab: to many nodes at once, to one that starts, and back into another image.

`/usr`, `/opt` and `/etc` of a lab's node are this machine's, with a layer above: they are left out by exclude lists.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.imaging import grow
from tests.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.external, pytest.mark.xdist_group("lab")]

NODES = ("node001", "node002")
LEFT = ("/usr", "/opt", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/.before")


class Site:
    """The lab with its head."""

    def __init__(self, lab: Any, shell: str) -> None:
        self.lab = lab
        self.data = Path(shell.split()[-1])
        self.images = self.data.parent / "images"

    def cmsh(self, *lines: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "bedplate.apps.cmsh", "--data", str(self.data), "-c", "; ".join(lines)]
        result = subprocess.run(command, env=self.lab.environ, capture_output=True, text=True, timeout=240, check=False)
        assert result.returncode == code, result.stdout + result.stderr
        return result.stdout + result.stderr

    def on(self, node: str, script: str) -> str:
        said: str = self.lab.run("exec", node, "--", "sh", "-c", script).stdout
        return said.strip()


@pytest.fixture(scope="module")
def site(new_lab: Callable[..., Any]) -> Iterator[Site]:
    lab = new_lab("i")
    made = Site(lab, lab.ok("up", "--managed", "--nodes", str(len(NODES))).strip())
    yield made
    lab.run("down")


def test_an_image_comes_to_nodes_to_one_that_starts_and_back(site: Site) -> None:
    grow(site.images / "default-image", {"/srv/app/version": "1", "/srv/app/run": "#!/bin/sh\n"})
    lists = [f"append excludelist{mode} {path}" for mode in ("update", "sync", "full", "grab") for path in LEFT]
    site.cmsh("softwareimage adopt default-image", "category use default", *lists, "commit --wait")

    # Many at once, with what becomes of each.
    assert site.on("node001", "cat /srv/app/version") == ""
    said = site.cmsh("device imageupdate -c default -w --wait")
    assert all(f"{node}: done: " in said for node in NODES), said
    assert {site.on(node, "cat /srv/app/version") for node in NODES} == {"1"}

    # A start with the mode for it: what the image does not have goes, homes as well. The other node keeps its own.
    for node in NODES:
        site.on(node, "mkdir -p /home/ann; echo x > /home/ann/thesis; echo x > /srv/stray")
    site.cmsh("device use node001", "set nextinstallmode full", "commit --wait")
    site.lab.ok("stop-node", "node001")
    site.lab.ok("start-node", "node001")
    look = "ls /srv; cat /home/ann/thesis"
    wait_until(
        lambda: site.on("node001", look) == "app",
        "node001 is its image",
        step_s=0.5,
        describe=lambda: site.on("node001", look) + site.cmsh("device status"),
    )
    assert site.on("node002", "cat /home/ann/thesis /srv/stray") == "x\nx"
    assert site.on("node001", "hostname") == "node001"

    # Back, into another image, and from there to the other node, which has it for its own.
    site.on("node001", "echo 2 > /srv/app/version; ln -s version /srv/app/current")
    wait_until(lambda: " at imageupdate" not in site.cmsh("softwareimage trees"), "the start is over")
    site.cmsh("softwareimage", "clone default-image new-image", "set path /cm/images/new-image", "commit")
    assert "node001: done: " in site.cmsh("device grabimage -i new-image -w --wait node001")
    tree = site.images / "new-image"
    assert (tree / "srv/app/version").read_text() == "2\n" and (tree / "srv/app/current").readlink() == Path("version")
    assert (site.images / "default-image/srv/app/version").read_text() == "1"
    site.cmsh("device use node002", "set softwareimage new-image", "commit --wait", "imageupdate -w --wait")
    assert site.on("node002", "cat /srv/app/current; ls /srv") == "2\napp"
