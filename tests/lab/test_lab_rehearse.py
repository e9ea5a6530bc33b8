"""The upgrade of a cluster rehearsed in a lab beside it, and the cluster that knows nothing of it.

The cluster is one of a managed lab; the rehearsal makes a second lab on this machine, upgrades a copy of the cluster
there while a client writes, and takes that lab down. The tests follow one another.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.lab.test_lab_managed import Site
from tests.lab.test_lab_setup import Lab, answers_file

from bedplate.lab import binaries, managed, packages, versions

pytestmark = [pytest.mark.root, pytest.mark.lab, pytest.mark.soak, pytest.mark.xdist_group("lab")]

_OLD, _NEW = versions.KNOWN["1.34"].removeprefix("v"), versions.KNOWN["1.35"].removeprefix("v")
_REHEARSAL = "rehearsal-default"


class Place(NamedTuple):
    """The lab with the cluster, and this machine as it was before a rehearsal."""

    lab: Lab
    look: Callable[[], Any]
    before: Any

    def head(self) -> dict[str, str]:
        """Everything that a rehearsal must not change: the tree, journals, kubeconfigs and module files."""
        folders = (
            self.lab.site.folder / "setup",
            self.lab.site.data / "kubernetes",
            self.lab.site.data / "modulefiles",
        )
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        hashes = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
        return {**hashes, "tree": self.lab.tree_of_head()}


@pytest.fixture(scope="module")
def place(new_lab: Callable[..., Any], look: Callable[..., Any]) -> Iterator[Place]:
    for version in ("1.34", "1.35"):
        binaries.ensure((*packages.TAKEN, *managed.IMAGED), version, progress=print)
    made = new_lab("r")
    lab = Lab(Site(made, made.ok("up", "--managed", "--nodes", "2", "--kubernetes", "1.34").strip()), {}, {}, "", None)
    both = {"masters": {"nodes": ["node001"]}, "workers": {"nodes": ["node001", "node002"]}}
    lab.setup("-c", str(answers_file(lab.site.folder, nodes=both, version="1.34")), "--on-error-action", "abort")

    def look_again() -> Any:
        return look(_REHEARSAL, made.state)

    yield Place(lab, look_again, look_again())
    made.run("down", "--name", _REHEARSAL)
    made.run("down")


def _is_untouched(place: Place, head: dict[str, str]) -> None:
    made = place.lab.site.lab
    assert place.head() == head
    items = place.lab.get("nodes")["items"]
    assert {item["status"]["nodeInfo"]["kubeletVersion"] for item in items} == {f"v{_OLD}"}
    assert not any(item["spec"].get("unschedulable") for item in items)
    assert place.lab.get("configmaps")["items"][0]["metadata"]["name"] == "kube-root-ca.crt"
    listed = subprocess.run(made.command("list"), env=made.environ, capture_output=True, text=True, check=True)
    assert made.name in listed.stdout and _REHEARSAL not in listed.stdout
    assert place.look().more_than(place.before) == {}


def test_an_upgrade_is_rehearsed_in_a_lab_and_the_cluster_stays_as_it_is(place: Place) -> None:
    head = place.head()
    said = place.lab.setup("--upgrade", "1.35", "--rehearse")
    print(said)
    assert "node001 stands for node001: control plane, worker, etcd" in said
    assert "node002 stands for node002: worker" in said
    assert re.search(r"ok +\d+\.\d s  Upgrade node001 \(for node001\)", said)
    assert re.search(r"ok +\d+\.\d s  Upgrade node002 \(for node002\)", said)
    writes = re.search(
        r"Writes through the proxy: (\d+), 0 lost; \d+ retries of \d+ of them with 1 control plane node;", said
    )
    assert writes is not None and int(writes[1]) > 20
    assert f"The rehearsal of the upgrade to {_NEW} succeeded." in said
    _is_untouched(place, head)


def test_an_interrupted_rehearsal_takes_its_lab_down(place: Place) -> None:
    head = place.head()
    line = place.lab._command("--upgrade", "1.35", "--rehearse")
    pipe = subprocess.PIPE
    with subprocess.Popen(
        line, env=place.lab.site.lab.environ, stdout=pipe, stderr=subprocess.STDOUT, text=True, cwd="/"
    ) as tool:
        assert tool.stdout is not None
        said = []
        for text in tool.stdout:
            said.append(text)
            if text.strip() == "#### stage: kubernetes: Assign Roles":
                os.kill(tool.pid, signal.SIGTERM)
        assert tool.wait() != 0, "".join(said)
    assert f"The lab {_REHEARSAL} is gone" in "".join(said)
    _is_untouched(place, head)


def test_versions_that_are_not_in_the_cache_are_refused_before_a_lab_starts(place: Place, tmp_path: Path) -> None:
    head = place.head()
    environ = {**place.lab.site.lab.environ, "BEDPLATE_CACHE": str(tmp_path)}
    line = place.lab._command("--upgrade", "1.35", "--rehearse")
    result = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=120, check=False, cwd="/")
    assert result.returncode == 1 and "bedplate binaries get" in result.stderr
    _is_untouched(place, head)
