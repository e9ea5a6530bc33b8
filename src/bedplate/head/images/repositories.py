"""Where the Kubernetes packages of an image come from, and the step to the next minor version.

In: what the image's `/etc/os-release` says, the repository file that is there, a version. Out: the file as it should
be, and the commands that bring the packages into the image. Pure. A minor version is never skipped, as kubeadm cannot.

    apt        /etc/apt/sources.list.d/kubernetes.list; packages are held, so that nothing else upgrades them
    yum        /etc/yum.repos.d/kubernetes.repo; packages are excluded unless they are asked for
    zypper     /etc/zypp/repos.d/kubernetes.repo, from 1.29 on
    tarball    SLES up to 1.28: no repository; programs are put into /usr/bin one by one
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from bedplate.core import errors

__all__ = ["OS_RELEASE", "Bump", "Family", "bump", "family", "paths"]

Family = Literal["apt", "yum", "zypper", "tarball"]

OS_RELEASE = "/etc/os-release"
_FIRST_MINOR = 24
_FIRST_ZYPPER = 29
_PROGRAMS = ("kubeadm", "kubelet", "kubectl")
_STABLE = "https://pkgs.k8s.io/core:/stable:"
_RELEASES = "https://dl.k8s.io/release"
_VERSION = re.compile(r"v?1\.(\d{1,3})(?:\.(\d{1,3}))?(?:-[\w.]+)?")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "amd64": "amd64", "arm64": "arm64"}
_APT = {"debian", "ubuntu"}
_YUM = {"rhel", "fedora", "centos", "rocky", "almalinux"}
_ZYPPER = {"sles", "suse", "opensuse"}


class Bump(NamedTuple):
    """The file of the repository (no path: none is used), and what to run in the image then."""

    family: Family
    version: str
    path: str
    content: str
    commands: tuple[str, ...]


def family(os_release: str, minor: int) -> Family:
    """How packages come into an image. Raises `Invalid` for a system that is not known."""
    words = set()
    for line in os_release.splitlines():
        key, _, value = line.partition("=")
        if key.strip() in ("ID", "ID_LIKE"):
            words |= set(value.strip().strip("'\"").lower().replace("-", " ").split())
    if words & _APT:
        return "apt"
    if words & _YUM:
        return "yum"
    if words & _ZYPPER:
        return "zypper" if minor >= _FIRST_ZYPPER else "tarball"
    named = " ".join(sorted(words)) or "it has no ID"
    raise errors.Invalid(
        f"no repository is known for the system in the image ({named})",
        hint=f"{OS_RELEASE} of the image names it: Debian, Ubuntu, RHEL and its kin, SLES",
    )


def bump(os_release: str, present: dict[str, str], version: str, arch: str = "amd64") -> Bump:
    """The step to a version; `present` are the files that are there, by path. Raises `Invalid`."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        raise errors.Invalid(f"{version} is not a version of Kubernetes", hint="as 1.29 or 1.29.4")
    minor, patch = int(parsed[1]), parsed[2]
    if minor < _FIRST_MINOR:
        raise errors.Invalid(f"the repositories have no 1.{minor}", hint=f"1.{_FIRST_MINOR} is the first")
    how = family(os_release, minor)
    path = _path(how)
    before = re.search(r"/v1\.(\d+)/", present.get(path, ""))
    if before is not None and not int(before[1]) <= minor <= int(before[1]) + 1:
        raise errors.Invalid(
            f"{path} has 1.{before[1]}: the step to 1.{minor} is not one minor version up",
            hint=f"1.{int(before[1]) + 1} comes next; a minor version is never skipped, and there is no way back",
        )
    if how == "tarball" and patch is None:
        raise errors.Invalid("programs are copied one by one: which patch version?", hint=f"as 1.{minor}.9")
    exact = f"1.{minor}.{patch}" if patch is not None else f"1.{minor}"
    return Bump(how, exact, path, _content(how, minor), _commands(how, exact, patch is not None, arch))


def paths() -> tuple[str, ...]:
    """Every file that may be a repository's."""
    return tuple(path for how in ("apt", "yum", "zypper") if (path := _path(how)))


def _path(how: str) -> str:
    return {
        "apt": "/etc/apt/sources.list.d/kubernetes.list",
        "yum": "/etc/yum.repos.d/kubernetes.repo",
        "zypper": "/etc/zypp/repos.d/kubernetes.repo",
    }.get(how, "")


def _content(how: Family, minor: int) -> str:
    if how == "tarball":
        return ""
    if how == "apt":
        key = "/etc/apt/keyrings/kubernetes-apt-keyring.gpg"
        return f"deb [signed-by={key}] {_STABLE}/v1.{minor}/deb/ /\n"
    lines = [
        "[kubernetes]",
        "name=Kubernetes",
        f"baseurl={_STABLE}/v1.{minor}/rpm/",
        "enabled=1",
        "gpgcheck=1",
        f"gpgkey={_STABLE}/v1.{minor}/rpm/repodata/repomd.xml.key",
    ]
    if how == "yum":
        lines.append("exclude=kubelet kubeadm kubectl cri-tools kubernetes-cni")
    return "\n".join(lines) + "\n"


def _commands(how: Family, version: str, is_exact: bool, arch: str) -> tuple[str, ...]:
    """What to run in the image, in this order."""
    if how == "tarball":
        place = f"{_RELEASES}/v{version}/bin/linux/{_ARCHITECTURES.get(arch, arch)}"
        programs = " ".join(f"/usr/bin/{name}" for name in _PROGRAMS)
        return (*(f"curl -fsSL -o /usr/bin/{name} {place}/{name}" for name in _PROGRAMS), f"chmod 0755 {programs}")
    names = " ".join(_PROGRAMS)
    if how == "apt":
        chosen = " ".join(f"{name}={version}-*" for name in _PROGRAMS) if is_exact else names
        return (
            f"apt-mark unhold {names}",
            "apt-get update",
            f"apt-get install -y {chosen}",
            f"apt-mark hold {names}",
        )
    chosen = " ".join(f"{name}-{version}" for name in _PROGRAMS) if is_exact else names
    if how == "yum":
        return (f"yum install -y {chosen} --disableexcludes=kubernetes",)
    return ("zypper refresh kubernetes", f"zypper install -y {chosen}")
