"""Where the Kubernetes packages of an image or a node come from, and the step to the next minor version.

In: what the image's `/etc/os-release` says, the repository file that is there, a version; `Mirror` where a site has its
own. Out: the file as it should be, and the commands that bring the packages into the image; `files` for a node whose
family is known. Pure. A minor version is never skipped, as kubeadm cannot.

    apt        /etc/apt/sources.list.d/kubernetes.list; packages are held, so that nothing else upgrades them
    yum        /etc/yum.repos.d/kubernetes.repo; packages are excluded unless they are asked for
    zypper     /etc/zypp/repos.d/kubernetes.repo, from 1.29 on
    tarball    SLES up to 1.28: no repository; programs are put into /usr/bin one by one
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from bedplate.core import errors

__all__ = ["KEYRING", "OS_RELEASE", "Bump", "Family", "Mirror", "bump", "family", "files", "paths", "raised"]

Family = Literal["apt", "yum", "zypper", "tarball"]

OS_RELEASE = "/etc/os-release"
_FIRST_MINOR = 24
_FIRST_ZYPPER = 29
_PROGRAMS = ("kubeadm", "kubelet", "kubectl")
_STABLE = "https://pkgs.k8s.io/core:/stable:"
KEYRING = "/etc/apt/keyrings/kubernetes-apt-keyring.gpg"
"""What verifies packages of apt where a site gives no key."""
_KEYS = {
    "apt": "/etc/apt/keyrings/bedplate-kubernetes.asc",
    "yum": "/etc/pki/rpm-gpg/RPM-GPG-KEY-bedplate-kubernetes",
    "zypper": "/etc/pki/rpm-gpg/RPM-GPG-KEY-bedplate-kubernetes",
}
_RELEASES = "https://dl.k8s.io/release"
_MINOR = re.compile(r"/v1\.(\d+)/")
_VERSION = re.compile(r"v?1\.(\d{1,3})(?:\.(\d{1,3}))?(?:-[\w.]+)?")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "amd64": "amd64", "arm64": "arm64"}
_APT = {"debian", "ubuntu"}
_YUM = {"rhel", "fedora", "centos", "rocky", "almalinux"}
_ZYPPER = {"sles", "suse", "opensuse"}


class Mirror(NamedTuple):
    """What a site has of its own; what is empty is as the Kubernetes project has it."""

    base: str = ""
    """A copy of the repositories, with a folder for each minor version: `<base>/v1.35/deb/`, `<base>/v1.35/rpm/`."""
    key: str = ""
    """The key that packages are signed with, ASCII-armored."""
    helm: str = ""
    """A repository with the package of Helm: a flat one of apt, or one of rpm. Its packages need the key, too."""


_UPSTREAM = Mirror()


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


def files(how: Family, version: str, mirror: Mirror = _UPSTREAM) -> dict[str, str]:
    """The files that give a node of this family the packages of a version, by path; none for tarballs. Raises
    `Invalid`."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        raise errors.Invalid(f"{version} is not a version of Kubernetes", hint="as 1.29 or 1.29.4")
    minor = int(parsed[1])
    if how == "tarball" or (how == "zypper" and minor < _FIRST_ZYPPER):
        return {}
    content = {_path(how): _content(how, minor, mirror)}
    if mirror.key:
        content[_KEYS[how]] = mirror.key
    if mirror.helm and not mirror.key:
        raise errors.Invalid("the repository of Helm has no key", hint="give the key that its packages are signed with")
    if mirror.helm:
        content[_path(how).replace("kubernetes", "helm")] = _helm(how, mirror)
    return content


def bump(
    os_release: str, present: dict[str, str], version: str, arch: str = "amd64", mirror: Mirror = _UPSTREAM
) -> Bump:
    """The step to a version; `present` are the files that are there, by path. Raises `Invalid`."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        raise errors.Invalid(f"{version} is not a version of Kubernetes", hint="as 1.29 or 1.29.4")
    minor, patch = int(parsed[1]), parsed[2]
    if minor < _FIRST_MINOR:
        raise errors.Invalid(f"the repositories have no 1.{minor}", hint=f"1.{_FIRST_MINOR} is the first")
    how = family(os_release, minor)
    path = _path(how)
    before = _MINOR.search(present.get(path, ""))
    if before is not None and not int(before[1]) <= minor <= int(before[1]) + 1:
        raise errors.Invalid(
            f"{path} has 1.{before[1]}: the step to 1.{minor} is not one minor version up",
            hint=f"1.{int(before[1]) + 1} comes next; a minor version is never skipped, and there is no way back",
        )
    if how == "tarball" and patch is None:
        raise errors.Invalid("programs are copied one by one: which patch version?", hint=f"as 1.{minor}.9")
    exact = f"1.{minor}.{patch}" if patch is not None else f"1.{minor}"
    content = _content(how, minor, mirror)
    if before is not None and mirror == _UPSTREAM:
        # A site may have pointed it at a copy of its own.
        content = raised(present[path], exact)
    return Bump(how, exact, path, content, _commands(how, exact, patch is not None, arch))


def raised(content: str, version: str) -> str:
    """The file of a repository with the minor version of another release in its URLs; what else it says stays."""
    return _MINOR.sub(f"/v{'.'.join(version.split('.')[:2])}/", content)


def paths() -> tuple[str, ...]:
    """Every file that may be a repository's."""
    return tuple(path for how in ("apt", "yum", "zypper") if (path := _path(how)))


def _path(how: str) -> str:
    return {
        "apt": "/etc/apt/sources.list.d/kubernetes.list",
        "yum": "/etc/yum.repos.d/kubernetes.repo",
        "zypper": "/etc/zypp/repos.d/kubernetes.repo",
    }.get(how, "")


def _content(how: Family, minor: int, mirror: Mirror) -> str:
    if how == "tarball":
        return ""
    base = mirror.base.rstrip("/") or _STABLE
    if how == "apt":
        return f"deb [signed-by={_KEYS['apt'] if mirror.key else KEYRING}] {base}/v1.{minor}/deb/ /\n"
    key = f"file://{_KEYS[how]}" if mirror.key else f"{base}/v1.{minor}/rpm/repodata/repomd.xml.key"
    lines = _rpm("kubernetes", "Kubernetes", f"{base}/v1.{minor}/rpm/", key)
    if how == "yum":
        lines.append("exclude=kubelet kubeadm kubectl cri-tools kubernetes-cni")
    return "\n".join(lines) + "\n"


def _helm(how: Family, mirror: Mirror) -> str:
    base = mirror.helm.rstrip("/")
    if how == "apt":
        return f"deb [signed-by={_KEYS['apt']}] {base}/ /\n"
    return "\n".join(_rpm("helm", "Helm", f"{base}/", f"file://{_KEYS[how]}")) + "\n"


def _rpm(name: str, title: str, url: str, key: str) -> list[str]:
    return [f"[{name}]", f"name={title}", f"baseurl={url}", "enabled=1", "gpgcheck=1", f"gpgkey={key}"]


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
