"""`/etc/passwd` and `/etc/group` of a kernel's containers: the accounts of an operating system, and the user's.

In: the spec of a kernel. Out: the two files' text. Pure. Literal contents of the resource win; otherwise the few system
accounts of `image_os_flavor` (or those that every system has) are followed by the user's own line. A system account
with the user's name or number gives way, because look-ups take the first line that fits.
"""

from __future__ import annotations

from collections.abc import Mapping

from bedplate.operators.jupyter.kernel import KernelSpec

__all__ = ["FLAVORS", "group", "passwd"]

DEFAULT_SHELL = "/bin/bash"
DEFAULT_NAME = "jupyter"

_ROOT = "root:x:0:0:root:/root:/bin/bash"
_ANY = ((_ROOT, "nobody:x:65534:65534:nobody:/:/sbin/nologin"), ("root:x:0:", "nobody:x:65534:"))


def _debian(apt: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    shell = "/usr/sbin/nologin"
    accounts = (
        _ROOT,
        f"daemon:x:1:1:daemon:/usr/sbin:{shell}",
        f"bin:x:2:2:bin:/bin:{shell}",
        f"sys:x:3:3:sys:/dev:{shell}",
        "sync:x:4:65534:sync:/bin:/bin/sync",
        f"mail:x:8:8:mail:/var/mail:{shell}",
        f"www-data:x:33:33:www-data:/var/www:{shell}",
        f"nobody:x:65534:65534:nobody:/nonexistent:{shell}",
        f"_apt:x:{apt}:65534::/nonexistent:{shell}",
    )
    groups = ("root:x:0:", "daemon:x:1:", "bin:x:2:", "sys:x:3:", "adm:x:4:", "tty:x:5:", "disk:x:6:", "mail:x:8:")
    return accounts, (*groups, "www-data:x:33:", "shadow:x:42:", "video:x:44:", "users:x:100:", "nogroup:x:65534:")


def _redhat(nobody: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    shell = "/sbin/nologin"
    gecos = "Nobody" if nobody == 99 else "Kernel Overflow User"
    accounts = (
        _ROOT,
        f"bin:x:1:1:bin:/bin:{shell}",
        f"daemon:x:2:2:daemon:/sbin:{shell}",
        f"adm:x:3:4:adm:/var/adm:{shell}",
        f"lp:x:4:7:lp:/var/spool/lpd:{shell}",
        f"mail:x:8:12:mail:/var/spool/mail:{shell}",
        f"nobody:x:{nobody}:{nobody}:{gecos}:/:{shell}",
    )
    groups = ("root:x:0:", "bin:x:1:", "daemon:x:2:", "sys:x:3:", "adm:x:4:", "tty:x:5:", "disk:x:6:", "lp:x:7:")
    return accounts, (*groups, "mail:x:12:", "video:x:39:", "users:x:100:", f"nobody:x:{nobody}:")


def _suse(release: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    shell = "/sbin/nologin" if release >= 15 else "/bin/bash"
    mail = "/sbin/nologin" if release >= 15 else "/bin/false"
    nobody_group = 65534 if release >= 15 else 65533
    accounts = (
        _ROOT,
        f"bin:x:1:1:bin:/bin:{shell}",
        f"daemon:x:2:2:Daemon:/sbin:{shell}",
        f"lp:x:4:7:Printing daemon:/var/spool/lpd:{shell}",
        f"mail:x:8:12:Mailer daemon:/var/spool/clientmqueue:{mail}",
        f"nobody:x:65534:{nobody_group}:nobody:/var/lib/nobody:/bin/bash",
    )
    groups = ("root:x:0:", "bin:x:1:", "daemon:x:2:", "sys:x:3:", "tty:x:5:", "disk:x:6:", "lp:x:7:", "mail:x:12:")
    return accounts, (*groups, "video:x:33:", "users:x:100:", "nogroup:x:65533:", "nobody:x:65534:")


FLAVORS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ubuntu1604": _debian(104),
    "ubuntu1804": _debian(100),
    "ubuntu2004": _debian(100),
    "ubuntu2404": _debian(42),
    "rhel7": _redhat(99),
    "centos7": _redhat(99),
    "rhel8": _redhat(65534),
    "centos8": _redhat(65534),
    "sles12": _suse(12),
    "sles15": _suse(15),
}
"""Lines of passwd and of group, by the flavour of the image's operating system."""


def user_name(spec: KernelSpec) -> str:
    """The account's name."""
    return spec.username or DEFAULT_NAME


def home(spec: KernelSpec) -> str:
    """The account's home folder."""
    return spec.homedir or f"/home/{user_name(spec)}"


def passwd(spec: KernelSpec) -> str:
    """The text of `/etc/passwd`."""
    if spec.etc_passwd:
        return _ended(spec.etc_passwd)
    name = user_name(spec)
    line = f"{name}:x:{spec.uid}:{spec.gid}::{home(spec)}:{spec.usershell or DEFAULT_SHELL}"
    return _lines(FLAVORS.get(spec.image_os_flavor, _ANY)[0], name, spec.uid, line)


def group(spec: KernelSpec) -> str:
    """The text of `/etc/group`."""
    if spec.etc_group:
        return _ended(spec.etc_group)
    name = user_name(spec)
    return _lines(FLAVORS.get(spec.image_os_flavor, _ANY)[1], name, spec.gid, f"{name}:x:{spec.gid}:")


def _lines(system: tuple[str, ...], name: str, number: int, own: str) -> str:
    def gives_way(line: str) -> bool:
        fields = line.split(":")
        return fields[0] == name or fields[2] == str(number)

    return "\n".join([*(line for line in system if not gives_way(line)), own]) + "\n"


def _ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"
