"""The packages of a managed lab: programs of the cache and of this machine, laid out for the agents' folder back end.

In: programs by name, the machine's own files. Out: a folder with a tree for each package that can be had here, under
the names that roles ask for, and beside it `NAME.owns` with the folders that its programs fill. Files are linked, not
copied, where that is possible. A package in another version is a tree of its own, `NAME=VERSION`, with its program.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FETCHED", "NEEDS", "TAKEN", "Recipe", "fill", "paths_of", "recipes", "versioned"]

NEEDS = ("etcd", "etcdctl", "etcdutl")
TAKEN = ("kubelet", "kubeadm", "kubectl")
"""Programs that are taken from the cache when it has them; building them takes minutes, and few need them."""
FETCHED = {"cm-docker": "dockerd", **{name: name for name in TAKEN}}
"""Packages whose programs `bedplate binaries get` brings into the cache."""

_UNITS = "/usr/lib/systemd/system"
# etcd says that it is ready once it has found the other members, which start after it: no start may wait for that.
_ETCD_UNIT = """\
[Unit]
Description=etcd
After=network-online.target

[Service]
Type=simple
ExecStart=/usr/bin/etcd
Restart=always
RestartSec=1
LimitNOFILE=65536

[Install]
WantedBy=multi-user.target
"""
_CONTAINERD_UNIT = """\
[Unit]
Description=containerd
After=network.target

[Service]
Type=notify
ExecStart=/usr/bin/containerd --config /cm/local/apps/containerd/var/etc/config.toml
KillMode=process
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""
# Before kubeadm has made the node part of a cluster it runs the pods of its own folder alone. It says when it is ready;
# the group that its pods are in is the node's own, which the lab writes down for each node.
_KUBELET_UNIT = """\
[Unit]
Description=kubelet
Wants=containerd.service
After=network-online.target containerd.service

[Service]
Type=notify
EnvironmentFile=-/etc/default/kubelet
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/bin/sh /usr/bin/kubelet-start $KUBELET_LAB_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
Restart=always
RestartSec=2

[Install]
WantedBy=multi-user.target
"""
_KUBELET_START = """\
#!/bin/sh
folder=/etc/kubernetes
if [ -e $folder/kubelet.conf ] || [ -e $folder/bootstrap-kubelet.conf ]; then
    set -- --bootstrap-kubeconfig=$folder/bootstrap-kubelet.conf --kubeconfig=$folder/kubelet.conf "$@"
fi
exec /usr/bin/kubelet --config=/var/lib/kubelet/config.yaml "$@"
"""
# Groups and disk are the machine's, which a lab shares with everything else on it.
_KUBELET_CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enforceNodeAllocatable: []
evictionHard: {memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1%}
failCgroupV1: false
failSwapOn: false
resolvConf: /etc/resolv.conf
staticPodPath: /etc/kubernetes/manifests
"""
_DOCKER_UNIT = """\
[Unit]
Description=Docker
After=network.target

[Service]
Type=notify
ExecStart=/usr/bin/dockerd
ExecReload=/bin/kill -s HUP $MAINPID
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One package: where each of its files comes from, texts of our own, and folders that go with it. Without one of
    the `needed` sources there is no package."""

    name: str
    sources: Mapping[str, Path]
    texts: Mapping[str, str]
    owns: tuple[str, ...]
    needed: tuple[str, ...]

    @property
    def missing(self) -> list[str]:
        """What this machine does not have."""
        return [path for path in self.needed if path not in self.sources or not self.sources[path].exists()]


def versioned(name: str, version: str) -> str:
    """The package of a program in a version."""
    return f"{name}={version.removeprefix('v')}"


def recipes(programs: Mapping[str, Path], root: Path = Path("/")) -> list[Recipe]:
    """The packages that roles ask for; `root` is where this machine's files are."""
    etcd = {f"/usr/bin/{name}": path for name, path in programs.items() if name in NEEDS}
    containerd = _found(root, "usr/bin", ("containerd", "containerd-shim", "containerd-shim-runc-v2", "ctr"))
    containerd |= _found(root, "usr/sbin", ("runc",))
    docker = _docker(programs["dockerd"].parents[2] if "dockerd" in programs else root)
    nginx = _found(root, "usr/sbin", ("nginx",))
    for tree in ("etc/nginx", "usr/lib/nginx", "usr/share/nginx"):
        nginx |= {f"/{path.relative_to(root)}": path for path in _below(root / tree)}
    for units in ("lib/systemd/system", "usr/lib/systemd/system"):
        if (root / units / "nginx.service").exists():
            nginx[f"{_UNITS}/nginx.service"] = root / units / "nginx.service"
    return [
        Recipe("cm-etcd", etcd, {f"{_UNITS}/etcd.service": _ETCD_UNIT}, ("/var/lib/etcd",), ("/usr/bin/etcd",)),
        Recipe(
            "cm-containerd",
            containerd,
            {f"{_UNITS}/containerd.service": _CONTAINERD_UNIT},
            ("/etc/cni/net.d", "/opt/containerd", "/run/containerd", "/var/lib/containerd"),
            ("/usr/bin/containerd", "/usr/sbin/runc"),
        ),
        Recipe(
            "cm-docker",
            {**{path: source for path, source in containerd.items() if not path.endswith("/ctr")}, **docker},
            {f"{_UNITS}/docker.service": _DOCKER_UNIT},
            ("/etc/docker", "/opt/containerd", "/run/docker", "/run/containerd", "/var/lib/docker"),
            ("/usr/bin/dockerd", "/usr/bin/containerd", "/usr/sbin/runc"),
        ),
        *_kubelet(programs, root),
        *_later(programs),
        Recipe("nftables", _found(root, "usr/sbin", ("nft",)), {}, (), ("/usr/sbin/nft",)),
        Recipe(
            "nginx", nginx, {}, ("/var/log/nginx", "/var/lib/nginx"), ("/usr/sbin/nginx", f"{_UNITS}/nginx.service")
        ),
    ]


def _docker(root: Path) -> dict[str, Path]:
    """The engine's files, dockerd where the role expects it; libraries of it that this machine does not have."""
    docker = _found(root, "usr/bin", ("dockerd", "docker-proxy", "docker-init", "docker"))
    docker |= _found(root, "usr/sbin", ("dockerd", "docker-proxy"))
    if "/usr/sbin/dockerd" in docker:
        docker["/usr/bin/dockerd"] = docker.pop("/usr/sbin/dockerd")
    if "/usr/bin/docker-init" not in docker:
        inits = list(_found(root, "usr/bin", ("tini-static", "tini")).values())
        docker |= {"/usr/bin/docker-init": inits[0]} if inits else {}
    for library in sorted(root.glob("lib/*/libdevmapper.so.*")):
        if not Path("/", library.relative_to(root)).exists():
            docker[f"/usr/{library.relative_to(root)}"] = library
    return docker


def _kubelet(programs: Mapping[str, Path], root: Path) -> list[Recipe]:
    """The packages of the role `kubelet`, each named as its program."""
    texts = {
        f"{_UNITS}/kubelet.service": _KUBELET_UNIT,
        "/usr/bin/kubelet-start": _KUBELET_START,
        "/var/lib/kubelet/config.yaml": _KUBELET_CONFIG,
    }
    # On machines the package of the kubelet needs that of the plugins.
    plugins = {f"/opt/cni/bin/{path.name}": path for path in _below(root / "usr/lib/cni")}
    owns = ("/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/usr/libexec/kubernetes")
    recipes = [Recipe("conntrack", _found(root, "usr/sbin", ("conntrack",)), {}, (), ("/usr/sbin/conntrack",))]
    for name in TAKEN:
        path = f"/usr/bin/{name}"
        sources = {path: programs[name]} if name in programs else {}
        is_kubelet = name == "kubelet"
        sources |= plugins if is_kubelet else {}
        recipes.append(Recipe(name, sources, texts if is_kubelet else {}, owns if is_kubelet else (), (path,)))
    return recipes


def _later(programs: Mapping[str, Path]) -> list[Recipe]:
    """Packages of programs in another version than the one that is installed first."""
    later = {name: path for name, path in programs.items() if "=" in name}
    paths = {name: f"/usr/bin/{name.partition('=')[0]}" for name in later}
    return [Recipe(name, {paths[name]: path}, {}, (), (paths[name],)) for name, path in later.items()]


def fill(folder: Path, offered: list[Recipe]) -> list[str]:
    """Lay out the packages that can be had; what is missing for the others, in words."""
    lacking = []
    folder.mkdir(parents=True, exist_ok=True)
    for recipe in offered:
        if recipe.missing:
            lacking.append(f"{recipe.name} (no {', '.join(recipe.missing)})")
            continue
        for path, source in recipe.sources.items():
            _place(source, folder / recipe.name / path.lstrip("/"))
        for path, text in recipe.texts.items():
            target = folder / recipe.name / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        (folder / f"{recipe.name}.owns").write_text("".join(f"{path}\n" for path in recipe.owns))
    return lacking


def paths_of(folder: Path) -> list[str]:
    """Every path that a package of the folder brings."""
    packages = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    return sorted({f"/{path.relative_to(package)}" for package in packages for path in _below(package)})


def _found(root: Path, folder: str, names: tuple[str, ...]) -> dict[str, Path]:
    return {f"/{folder}/{name}": root / folder / name for name in names if (root / folder / name).exists()}


def _below(folder: Path) -> Iterator[Path]:
    """Files and links of a tree."""
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        yield from (Path(parent) / name for name in sorted([*names, *links]))


def _place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink() and not target.name.startswith(("docker", "runc", "containerd")):
        target.symlink_to(os.readlink(source))
        return
    source = source.resolve()
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
