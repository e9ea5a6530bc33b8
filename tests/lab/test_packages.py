"""Packages of a managed lab: laid out from programs and the machine's files, as far as they are there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bedplate.lab import binaries, cluster, managed, packages
from bedplate.lab.plan import Options


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with nginx and containerd, and without Docker."""
    root = tmp_path / "machine"
    for path in ("usr/sbin/nginx", "etc/nginx/nginx.conf", "usr/share/nginx/modules-available/stream.conf",
                 "lib/systemd/system/nginx.service", "usr/bin/containerd", "usr/sbin/runc"):  # fmt: skip
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(path)
    (root / "etc/nginx/modules-enabled").mkdir()
    (root / "etc/nginx/modules-enabled/50.conf").symlink_to("/usr/share/nginx/modules-available/stream.conf")
    return root


def test_what_is_there_is_laid_out_and_what_is_not_is_named(machine: Path, tmp_path: Path) -> None:
    etcd = tmp_path / "cache/etcd"
    etcd.parent.mkdir()
    etcd.write_text("etcd")
    folder = tmp_path / "packages"
    lacking = packages.fill(folder, packages.recipes({"etcd": etcd}, machine))
    assert lacking == [
        "cm-docker (no /usr/bin/dockerd)",
        "conntrack (no /usr/sbin/conntrack)",
        *(f"{name} (no /usr/bin/{name})" for name in ("kubelet", "kubeadm", "kubectl")),
        "nftables (no /usr/sbin/nft)",
    ]
    assert sorted(path.name for path in folder.iterdir()) == [
        "cm-containerd", "cm-containerd.owns", "cm-etcd", "cm-etcd.owns", "nginx", "nginx.owns",
    ]  # fmt: skip
    assert (folder / "nginx/usr/lib/systemd/system/nginx.service").read_text() == "lib/systemd/system/nginx.service"
    assert (folder / "nginx/etc/nginx/modules-enabled/50.conf").readlink() == Path(
        "/usr/share/nginx/modules-available/stream.conf"
    )
    assert "ExecStart=/usr/bin/etcd\n" in (folder / "cm-etcd/usr/lib/systemd/system/etcd.service").read_text()
    assert (folder / "nginx.owns").read_text() == "/var/log/nginx\n/var/lib/nginx\n"
    assert {"/usr/bin/etcd", "/etc/nginx/modules-enabled/50.conf", "/usr/sbin/runc"} < set(packages.paths_of(folder))


def test_docker_comes_from_debians_files_and_is_where_the_role_expects_it(machine: Path, tmp_path: Path) -> None:
    files = tmp_path / "cache/docker/20.10.24"
    library = "lib/no-such-machine/libdevmapper.so.1.02.1"
    for path in ("usr/sbin/dockerd", "usr/bin/docker", "usr/bin/tini-static", library):
        (files / path).parent.mkdir(parents=True, exist_ok=True)
        (files / path).write_text(path)
    folder = tmp_path / "packages"
    packages.fill(folder, packages.recipes({"dockerd": files / "usr/sbin/dockerd"}, machine))
    docker = folder / "cm-docker"
    assert (docker / "usr/bin/dockerd").read_text() == "usr/sbin/dockerd"
    assert (docker / "usr/bin/docker-init").read_text() == "usr/bin/tini-static"
    assert (docker / "usr/bin/containerd").read_text() == "usr/bin/containerd"
    assert (docker / "usr" / library).exists()
    assert "ExecStart=/usr/bin/dockerd\n" in (docker / "usr/lib/systemd/system/docker.service").read_text()


def test_the_kubelet_comes_with_a_unit_that_reads_the_roles_flags(machine: Path, tmp_path: Path) -> None:
    programs = {name: tmp_path / name for name in packages.TAKEN}
    for name, path in programs.items():
        path.write_text(name)
    folder = tmp_path / "packages"
    packages.fill(folder, packages.recipes(programs, machine))
    unit = (folder / "kubelet/usr/lib/systemd/system/kubelet.service").read_text()
    assert "ExecStart=/bin/sh /usr/bin/kubelet-start" in unit and "$KUBELET_EXTRA_ARGS" in unit
    script = (folder / "kubelet/usr/bin/kubelet-start").read_text()
    assert "exec /usr/bin/kubelet --config=/var/lib/kubelet/config.yaml" in script
    settings = yaml.safe_load((folder / "kubelet/var/lib/kubelet/config.yaml").read_text())
    assert settings["kind"] == "KubeletConfiguration"
    assert sorted(path.name for path in (folder / "kubeadm").rglob("*")) == ["bin", "kubeadm", "usr"]


def test_a_folder_that_is_not_there_has_no_packages(tmp_path: Path) -> None:
    assert packages.paths_of(tmp_path / "none") == []


def test_a_lab_of_two_versions_builds_those_and_does_without_add_ons_that_the_cache_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: set[str] = set()

    def ensure(names: Iterable[str], *_version: str, **_more: Any) -> dict[str, Path]:
        built.update(names)
        return {name: Path("/", name) for name in names}

    monkeypatch.setattr(binaries, "ensure", ensure)
    monkeypatch.setattr(binaries, "cached", lambda name, version: None)
    monkeypatch.setattr(managed, "make_images", lambda *_: None)
    options = Options(managed=True, nodes=2, kubernetes="1.34", next_kubernetes="1.35")
    programs = cluster.gather(options, lambda _line: None)
    assert built == {*packages.NEEDS, *packages.TAKEN, *managed.IMAGED}
    assert not set(managed.ADDONS) & set(programs)
