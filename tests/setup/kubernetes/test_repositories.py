"""Package repositories on nodes and in software images, written by the stages of a deployment and of an upgrade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agent.imaging import grow
from tests.setup.kubernetes.grounds import IMAGE, ground

from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head.desired import desired
from bedplate.head.images import disk
from bedplate.head.images.repositories import Mirror, files
from bedplate.setup.kubernetes import change, images, remove, repositories

STAGE = "Write Package Repositories"
KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQENB\n-----END PGP PUBLIC KEY BLOCK-----\n"
APT, YUM, ZYPPER = (
    "/etc/apt/sources.list.d/kubernetes.list",
    "/etc/yum.repos.d/kubernetes.repo",
    "/etc/zypp/repos.d/kubernetes.repo",
)


@pytest.mark.parametrize(
    ("family", "path", "words"),
    [
        ("apt", APT, "https://pkgs.k8s.io/core:/stable:/v1.35/deb/ /"),
        ("yum", YUM, "baseurl=https://pkgs.k8s.io/core:/stable:/v1.35/rpm/"),
        ("zypper", ZYPPER, "baseurl=https://pkgs.k8s.io/core:/stable:/v1.35/rpm/"),
    ],
)
def test_each_family_has_the_repository_of_the_minor_release(family: Any, path: str, words: str) -> None:
    content = files(family, "1.35.4")
    assert list(content) == [path]
    assert words in content[path]


def test_a_mirror_takes_the_place_of_upstream_with_its_key_and_helm() -> None:
    mirror = Mirror("https://mirror.example.com/k8s/", KEY, "https://mirror.example.com/helm")
    apt, yum = files("apt", "1.35.4", mirror), files("yum", "1.35.4", mirror)
    key = "/etc/apt/keyrings/bedplate-kubernetes.asc"
    assert apt[APT] == f"deb [signed-by={key}] https://mirror.example.com/k8s/v1.35/deb/ /\n"
    assert apt[key] == KEY
    assert apt["/etc/apt/sources.list.d/helm.list"] == f"deb [signed-by={key}] https://mirror.example.com/helm/ /\n"
    assert "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-bedplate-kubernetes\n" in yum[YUM]
    assert "[helm]\n" in yum["/etc/yum.repos.d/helm.repo"]
    with pytest.raises(errors.Invalid, match="has no key"):
        files("apt", "1.35.4", Mirror(helm="https://mirror.example.com/helm"))
    assert files("zypper", "1.28.9") == {}


async def test_nodes_get_the_file_of_their_package_manager_and_others_get_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch) as on:
        await on.tells("node001", id="ubuntu", version="24.04", packages="apt")
        await on.tells("node002", id="rocky", version="9.4", packages="yum")
        await on.tells("node003", id="debian", version="12", packages="folder")
        await on.do(STAGE)
        tree = on.backend.tree
        paths = {node: [file.path for file in desired(tree, node).files] for node in ("node001", "node002", "node003")}
        assert paths == {"node001": [APT], "node002": [YUM], "node003": []}
        assert "node003: no apt, dnf or zypper is known there; nothing is written" in on.said
        assert on.awaited == []  # the stage that installs packages waits
        assert set(remove.remains(tree, "default").overlays) == {"kube-default-repos-apt", "kube-default-repos-yum"}
        await on.do(STAGE)  # a run that was killed
        await on.undo(STAGE)
        assert repositories.overlays_of(on.backend.tree, "default") == []


async def test_a_site_whose_nodes_install_from_a_folder_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch) as on:
        await on.tells("node001", id="debian", version="12", packages="folder")
        before = on.served.head.revision
        await on.do(STAGE)
        assert on.served.head.revision == before
        assert any("node001..node003: no apt, dnf or zypper is known there" in line for line in on.said)


@pytest.mark.parametrize(
    ("content", "words"), [(None, "cannot be read"), ("binary", "not an ASCII-armored public key")]
)
async def test_a_key_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, words: str
) -> None:
    key = tmp_path / "key.asc"
    if content is not None:
        key.write_text(content)
    async with ground(tmp_path, monkeypatch, repositories__key=str(key)) as on:
        with pytest.raises(errors.Invalid, match=words):
            await on.do(STAGE)


async def test_an_adopted_image_gets_the_repository_and_what_stays_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = grow(tmp_path / "images" / IMAGE, {"/etc/os-release": "ID=ubuntu\nID_LIKE=debian\n"})
    async with ground(tmp_path, monkeypatch, version="1.35.4") as on:
        await on.do(STAGE)
        assert not (tree / APT.lstrip("/")).exists()  # nobody has adopted it
        await on.backend.fleet.act_on_image(IMAGE, headapi.ImageAction(action="adopt"))
        await on.do(STAGE)
        assert "/v1.35/deb/" in (tree / APT.lstrip("/")).read_text()
        await on.undo(STAGE)
        assert any(f"this stays: the package repository of 1.35.4 in {IMAGE}" in line for line in on.said)


async def test_an_adopted_image_gets_the_packages_and_who_shares_it_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path / "images" / IMAGE, {"/etc/os-release": "ID=ubuntu\nID_LIKE=debian\n"})
    commands: list[str] = []

    async def run(path: str, command: list[str], *, timeout_s: float, by: str) -> disk.Ran:
        commands.append(" ".join(command[2:]))
        return disk.Ran(0, "")

    async with ground(tmp_path, monkeypatch, version="1.35.4") as on:
        assert on.served.service.fleet is not None
        monkeypatch.setattr(on.served.service.fleet.imaging.trees, "run", run)
        await on.do("Update Software Images")
        assert commands == []
        assert "node001..node003: no software image that the head has adopted; nothing is done" in on.said
        await on.backend.fleet.act_on_image(IMAGE, headapi.ImageAction(action="adopt"))
        await on.do("Update Software Images")
        assert commands[2] == "apt-get install -y kubeadm=1.35.4-* kubelet=1.35.4-* kubectl=1.35.4-*"
        assert any(f"{IMAGE} is the image of node004..node006 as well" in line for line in on.said)
        await on.undo("Update Software Images")
        assert any(f"this stays: packages of 1.35.4 in {IMAGE}" in line for line in on.said)


async def test_a_command_that_fails_in_an_image_stops_the_run_and_names_the_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(tmp_path / "images" / IMAGE, {"/etc/os-release": "ID=rocky\n"})

    async def run(path: str, command: list[str], *, timeout_s: float, by: str) -> disk.Ran:
        return disk.Ran(1, "Error: Unable to find a match\n")

    async with ground(tmp_path, monkeypatch) as on:
        await on.backend.fleet.act_on_image(IMAGE, headapi.ImageAction(action="adopt"))
        with pytest.raises(errors.Invalid, match="only by a head that runs as root") as refused:
            await on.do("Update Software Images")
        assert "--skip-image-update" in refused.value.hint
        assert on.served.service.fleet is not None
        monkeypatch.setattr(on.served.service.fleet.imaging.trees, "run", run)
        with pytest.raises(errors.Terminal, match="Unable to find a match") as failed:
            await on.do("Update Software Images")
        assert "--skip-image-update" in failed.value.hint


async def test_an_upgrade_brings_the_repositories_up_and_gives_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = "https://mirror.example.com/k8s"
    async with ground(tmp_path, monkeypatch, version="1.34.4", repositories__base=base) as on:
        await on.tells("node001", packages="apt")
        await on.do(STAGE)
        on.notes.clear()  # another run
        await repositories.update(on.context(), "default", "1.35.4")
        await on.backend.catch_up()
        (file,) = desired(on.backend.tree, "node001").files
        assert f"{base}/v1.35/deb/" in file.content
        assert len(on.awaited) == 1
        await repositories.restore(on.context(), "default")
        await on.backend.catch_up()
        (file,) = desired(on.backend.tree, "node001").files
        assert f"{base}/v1.34/deb/" in file.content


async def test_an_upgrade_writes_the_repository_of_the_image_before_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = "deb [trusted=yes] https://mirror.example.com/k8s/v1.34/deb/ /\n"
    tree = grow(tmp_path / "images" / IMAGE, {"/etc/os-release": "ID=ubuntu\n", APT: mine})
    seen: list[str] = []

    async def run(path: str, command: list[str], *, timeout_s: float, by: str) -> disk.Ran:
        seen.append((tree / APT.lstrip("/")).read_text())
        return disk.Ran(0, "")

    async with ground(tmp_path, monkeypatch) as on:
        assert on.served.service.fleet is not None
        monkeypatch.setattr(on.served.service.fleet.imaging.trees, "run", run)
        await on.backend.fleet.act_on_image(IMAGE, headapi.ImageAction(action="adopt"))
        await images.update(on.context(), ["node001"], "1.35.4", has_repository=True)
        assert set(seen) == {mine.replace("v1.34", "v1.35")}


async def test_nodes_that_are_added_get_the_repository_and_docker_and_lose_both_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ground(tmp_path, monkeypatch, {"install": True}) as on:
        await on.tells("node001", packages="apt")
        await on.do("Create Networks", "Create Etcd Cluster", "Create Kube Cluster", STAGE)
        await on.do("Assign Docker Role", "Assign Roles", "Manage Nodes")
        tree = on.backend.tree
        overlays = change.assigned(tree, "default", ["node004"], is_plane=False)
        assert set(overlays) == {"kube-default-worker", "kube-default-docker"}
        system = headapi.System(packages="apt")
        assert change.with_repositories(tree, "default", overlays, {"node004": system, "node005": None}) == {
            **overlays,
            "kube-default-repos-apt": ["node001", "node004"],
        }
        left = change.unassigned(tree, "default", ["node002"])
        assert set(left) == {"kube-default-worker", "kube-default-docker"}
