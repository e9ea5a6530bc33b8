"""Which images a lab needs, and what is in each.

In: the programs of a release and the tools of this machine. Out: recipes for `images.Store`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path

from bedplate.core import errors
from bedplate.lab import building, images, versions

__all__ = [
    "BUSYBOX_IMAGE",
    "COREDNS_IMAGE",
    "PAUSE_IMAGE",
    "TOOL_IMAGE",
    "addon_recipes",
    "base_recipes",
    "build_tool",
    "kubeadm_recipes",
]

PAUSE_IMAGE = "registry.k8s.io/pause:3.10.1"
COREDNS_IMAGE = "registry.k8s.io/coredns/coredns:lab"
TOOL_IMAGE = "docker.io/bedplate/tool:latest"
BUSYBOX_IMAGE = "docker.io/library/busybox:latest"

_HOSTS = {
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/passwd": "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
}
# What kube-proxy calls: nft for its own mode, conntrack to forget stale flows, iptables to clean up after other modes.
_PROXY_TOOLS = ("nft", "conntrack", "xtables-nft-multi", "xtables-legacy-multi", "kmod")


def build_tool(builder: building.Builder, cache: Path) -> Path:
    """Our own static program, built from the source shipped with the package; once per content."""
    source = {
        name: resources.files("bedplate.lab").joinpath("tool", name).read_text() for name in ("go.mod", "main.go")
    }
    digest = hashlib.sha256(repr(sorted(source.items())).encode()).hexdigest()[:16]
    target = cache / "tool" / digest / "bin" / "tool"
    if not target.exists():
        builder.build_folder(source, target)
    return target


def base_recipes(tool: Path, coredns: Path) -> list[images.Recipe]:
    """The images every lab has: the sandbox, CoreDNS, busybox and our tool."""
    busybox = _find("busybox", "busybox-static")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True, timeout=20).stdout.split()
    links = {f"bin/{name}": "/bin/busybox" for name in applets if name != "busybox"}
    return [
        images.Recipe(PAUSE_IMAGE, {"pause": tool}, entrypoint=("/pause",)),
        images.Recipe(TOOL_IMAGE, {"tool": tool}, entrypoint=("/tool",), command=("serve",), texts=_HOSTS),
        images.Recipe(COREDNS_IMAGE, {"coredns": coredns}, entrypoint=("/coredns",), texts=_HOSTS),
        images.Recipe(BUSYBOX_IMAGE, {"bin/busybox": busybox}, command=("sh",), links=links, texts=_HOSTS),
    ]


def kubeadm_recipes(names: Iterable[str], programs: Mapping[str, Path], tool: Path) -> list[images.Recipe]:
    """The control plane's images under the names `kubeadm config images list` prints."""
    recipes = []
    for name in names:
        base = name.rsplit("/", 1)[-1].split(":")[0]
        if base == "pause":
            recipes.append(images.Recipe(name, {"pause": tool}, entrypoint=("/pause",)))
        elif base == "coredns":
            recipes.append(images.Recipe(name, {"coredns": programs[base]}, entrypoint=("/coredns",), texts=_HOSTS))
        elif base == "kube-proxy":
            recipes.append(_proxy_recipe(name, programs[base]))
        elif base == "etcd":
            files = {f"usr/local/bin/{each}": programs[each] for each in ("etcd", "etcdctl")}
            recipes.append(images.Recipe(name, files, texts=_HOSTS))
        elif base in programs:
            recipes.append(images.Recipe(name, {f"usr/local/bin/{base}": programs[base]}, texts=_HOSTS))
        else:
            raise errors.Terminal(f"kubeadm needs the image {name}, which this lab cannot build")
    return recipes


def addon_recipes(programs: Mapping[str, Path]) -> list[images.Recipe]:
    """The images of add-ons, under the names that their manifests have; of those whose programs are there."""
    recipes = []
    if "metrics-server" in programs:
        name = f"registry.k8s.io/metrics-server/metrics-server:{versions.METRICS_SERVER}"
        files = {"metrics-server": programs["metrics-server"]}
        recipes.append(images.Recipe(name, files, entrypoint=("/metrics-server",), texts=_HOSTS))
    if "traefik" in programs:
        name = f"docker.io/library/traefik:{versions.TRAEFIK}"
        recipes.append(images.Recipe(name, {"traefik": programs["traefik"]}, entrypoint=("/traefik",), texts=_HOSTS))
    if "local-path-provisioner" in programs:
        name = f"docker.io/rancher/local-path-provisioner:{versions.LOCAL_PATH}"
        files = {"usr/bin/local-path-provisioner": programs["local-path-provisioner"]}
        recipes.append(images.Recipe(name, files, texts=_HOSTS))
    nginx = shutil.which("nginx")
    if nginx is not None:
        files = {inside: source.resolve() for inside, source in images.with_libraries([Path(nginx).resolve()]).items()}
        folders = ("tmp", "var/log/nginx", "var/lib/nginx", "run")
        recipes.append(
            images.Recipe("docker.io/library/nginx:stable", files, command=("nginx",), folders=folders, texts=_HOSTS)
        )
    return recipes


def _proxy_recipe(name: str, proxy: Path) -> images.Recipe:
    tools = [Path(path).resolve() for tool in _PROXY_TOOLS if (path := shutil.which(tool))]
    files = {"usr/local/bin/kube-proxy": proxy}
    links: dict[str, str] = {}
    for inside, source in images.with_libraries(tools).items():
        files[inside] = source.resolve()
    for module in Path("/usr/lib").glob("*/xtables/*.so"):
        files[str(module).lstrip("/")] = module
    for applet in ("iptables", "ip6tables"):
        for suffix in ("", "-save", "-restore"):
            links[f"usr/sbin/{applet}{suffix}"] = "/usr/sbin/xtables-nft-multi"
    return images.Recipe(name, files, links=links, texts=_HOSTS)


def _find(program: str, package: str) -> Path:
    path = shutil.which(program)
    if path is None:
        raise errors.NotFound(f"{program} is not installed", hint=f"apt-get install {package}")
    return Path(path).resolve()
