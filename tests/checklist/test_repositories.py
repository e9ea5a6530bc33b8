"""Checklist 176: the repository of a minor version, rendered for yum, apt and tarballs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.agent.imaging import bare, contents, grow
from tests.ui.rest.serving import Served, served
from tests.ui.transcripts.driving import Desk

from bedplate.core import errors
from bedplate.head.entities import SCHEMA
from bedplate.head.images.repositories import Bump, bump, paths
from bedplate.ui.remote import RemoteBackend

APT, YUM, ZYPPER = paths()
UBUNTU, ROCKY, SLES = "ID=ubuntu\nID_LIKE=debian\n", 'ID="rocky"\nID_LIKE="rhel centos fedora"\n', 'ID="sles"\n'


def step(os_release: str, version: str, present: str = "", path: str = "") -> Bump:
    return bump(os_release, {path: present} if path else {}, version, "x86_64")


def test_item_176_apt_has_a_list_and_holds_its_packages() -> None:
    found = step(UBUNTU, "1.29.4")
    assert (found.family, found.path) == ("apt", "/etc/apt/sources.list.d/kubernetes.list")
    assert found.content == (
        "deb [signed-by=/etc/apt/keyrings/kubernetes-apt-keyring.gpg] https://pkgs.k8s.io/core:/stable:/v1.29/deb/ /\n"
    )
    assert found.commands == (
        "apt-mark unhold kubeadm kubelet kubectl",
        "apt-get update",
        "apt-get install -y kubeadm=1.29.4-* kubelet=1.29.4-* kubectl=1.29.4-*",
        "apt-mark hold kubeadm kubelet kubectl",
    )


def test_item_176_yum_has_a_repository_that_excludes_its_packages() -> None:
    found = step(ROCKY, "1.29")
    assert (found.family, found.path) == ("yum", "/etc/yum.repos.d/kubernetes.repo")
    assert "baseurl=https://pkgs.k8s.io/core:/stable:/v1.29/rpm/\n" in found.content
    assert found.content.endswith("exclude=kubelet kubeadm kubectl cri-tools kubernetes-cni\n")
    assert found.commands == ("yum install -y kubeadm kubelet kubectl --disableexcludes=kubernetes",)


def test_item_176_sles_has_programs_up_to_1_28_and_packages_from_1_29() -> None:
    found = step(SLES, "v1.28.9")
    assert (found.family, found.path, found.content) == ("tarball", "", "")
    assert found.commands == (
        *(
            f"curl -fsSL -o /usr/bin/{name} https://dl.k8s.io/release/v1.28.9/bin/linux/amd64/{name}"
            for name in ("kubeadm", "kubelet", "kubectl")
        ),
        "chmod 0755 /usr/bin/kubeadm /usr/bin/kubelet /usr/bin/kubectl",
    )
    later = step(SLES, "1.29.0")
    assert (later.family, later.path) == ("zypper", "/etc/zypp/repos.d/kubernetes.repo")
    assert "exclude" not in later.content and later.commands[0] == "zypper refresh kubernetes"
    with pytest.raises(errors.Invalid, match="which patch version"):
        step(SLES, "1.28")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1.30", "the step to 1.30 is not one minor version up"),
        ("1.27", "the step to 1.27 is not one minor version up"),
        ("1.23.0", "have no 1.23"),
        ("latest", "not a version"),
        ("1.29.4; rm -r /", "not a version"),
    ],
)
def test_item_176_no_minor_version_is_skipped(version: str, words: str) -> None:
    before = step(UBUNTU, "1.28").content
    with pytest.raises(errors.Invalid, match=words):
        step(UBUNTU, version, before, APT)
    assert step(UBUNTU, "1.28.9", before, APT).version == "1.28.9"
    assert step(UBUNTU, "1.29", before, APT).version == "1.29"


def test_item_176_a_system_that_is_not_known_is_told() -> None:
    with pytest.raises(errors.Invalid, match=r"in the image \(plan9\)"):
        step("ID=plan9\n", "1.29")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    tree = grow(tmp_path / "images" / "default-image", {"/usr/lib/os-release": UBUNTU})
    (tree / "etc").mkdir()
    (tree / "etc/os-release").symlink_to("/usr/lib/os-release")
    async with served(tmp_path, tree=bare()) as opened:
        yield opened


@pytest.fixture
async def desk(server: Served) -> AsyncIterator[Desk]:
    async with server.client() as client, RemoteBackend(client, SCHEMA) as backend:
        yield Desk(server.head, backend=backend)


async def test_item_176_the_step_is_shown_and_then_written_into_the_image(desk: Desk, tmp_path: Path) -> None:
    tree = tmp_path / "images" / "default-image"
    assert "has no .bedplate-image" in (await desk.fails("softwareimage repository default-image 1.29")).err
    await desk.do("softwareimage adopt default-image")
    before = contents(tree)
    shown = await desk.do("softwareimage repository default-image 1.29")
    assert "would be that of 1.29" in shown and "/v1.29/deb/ /" in shown and contents(tree) == before
    assert "  softwareimage chroot default-image apt-get update" in shown.splitlines()
    assert "is that of 1.29" in await desk.do("softwareimage repository -w default-image 1.29")
    assert "/v1.29/deb/" in (tree / APT.lstrip("/")).read_text()
    assert "not one minor version up" in (await desk.fails("softwareimage repository -w default-image 1.31")).err
    (row,) = [row for row in (await desk.table("softwareimage trees")).rows if row[0] == "default-image"]
    assert row[4] == "2" and "repository of 1.29" in " ".join(row)


async def test_item_176_a_link_in_the_image_leads_to_no_file_of_the_head(desk: Desk, tmp_path: Path) -> None:
    tree, outside = tmp_path / "images" / "default-image", tmp_path / "outside"
    outside.mkdir()
    (tree / "etc/apt").symlink_to(outside)
    await desk.do("softwareimage adopt default-image")
    await desk.type("softwareimage repository -w default-image 1.29")
    assert not any(outside.iterdir())
