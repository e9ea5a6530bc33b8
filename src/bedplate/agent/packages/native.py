"""Packages of the machine's own package manager: apt, dnf or zypper.

In: a name. Out: the manager is run without a question, waits for its lock, and what it said last when it failed. The
command lines are data (`APT`, `DNF`, `ZYPPER`); `Native` runs them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass

from bedplate.agent.commands import Ended, Run, run

__all__ = ["APT", "DNF", "ZYPPER", "Manager", "Native", "choose"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:~=-]*")
_VERSION = re.compile(r"[0-9][A-Za-z0-9+.~]*")
_INSTALL_S = 1800.0
_QUERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Manager:
    """Command lines by purpose; `{}` stands for names. `update` is run once when an installation fails. `installed`
    marks a line of the answer to `query`, which begins with the name."""

    name: str
    install: tuple[str, ...]
    remove: tuple[str, ...]
    query: tuple[str, ...]
    update: tuple[str, ...]
    exact: str = "{}-{}"
    """How a version is named."""
    fetch: str = "--download-only"
    unheld: tuple[str, ...] = ()
    """What lets packages change that others must not upgrade by the way."""
    installed: str = ""
    environ: tuple[tuple[str, str], ...] = ()


APT = Manager(
    "apt-get",
    install=(
        "apt-get",
        "-y",
        "-q",
        "-o",
        "DPkg::Lock::Timeout=600",
        "-o",
        "Dpkg::Options::=--force-confdef",
        "-o",
        "Dpkg::Options::=--force-confold",
        "--no-install-recommends",
        "install",
        "{}",
    ),
    remove=("apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=600", "purge", "{}"),
    query=("dpkg-query", "-W", "-f", "${Package}\t${db:Status-Status}\n", "{}"),
    update=("apt-get", "-q", "-o", "DPkg::Lock::Timeout=600", "update"),
    exact="{}={}-*",
    unheld=("--allow-change-held-packages",),
    installed="installed",
    environ=(("DEBIAN_FRONTEND", "noninteractive"), ("NEEDRESTART_MODE", "l"), ("LC_ALL", "C.UTF-8")),
)
_RPM_QUERY = ("rpm", "-q", "--qf", "%{NAME}\tinstalled\n", "{}")
DNF = Manager(
    "dnf",
    install=("dnf", "-y", "-q", "--setopt=exit_on_lock=False", "install", "{}"),
    remove=("dnf", "-y", "-q", "--setopt=exit_on_lock=False", "--noautoremove", "remove", "{}"),
    query=_RPM_QUERY,
    update=("dnf", "-q", "makecache", "--refresh"),
    fetch="--downloadonly",
    unheld=("--disableexcludes=all",),
    installed="installed",
    environ=(("LC_ALL", "C.UTF-8"),),
)
ZYPPER = Manager(
    "zypper",
    install=(
        "zypper",
        "--non-interactive",
        "--quiet",
        "install",
        "--no-recommends",
        "--auto-agree-with-licenses",
        "{}",
    ),
    remove=("zypper", "--non-interactive", "--quiet", "remove", "{}"),
    query=_RPM_QUERY,
    update=("zypper", "--non-interactive", "--quiet", "refresh"),
    installed="installed",
    environ=(("ZYPP_LOCK_TIMEOUT", "600"), ("LC_ALL", "C.UTF-8")),
)


_FAMILIES = {"apt-get": "apt", "dnf": "yum", "zypper": "zypper"}
_KUBERNETES = frozenset({"kubeadm", "kubelet", "kubectl"})
"""What its repository excludes from updates: it has to be asked for."""


def choose() -> Manager | None:
    """The manager of this machine."""
    for manager, program in ((APT, "apt-get"), (DNF, "dnf"), (ZYPPER, "zypper")):
        if shutil.which(program):
            return manager
    return None


class Native:
    """`options` are put after the name of the manager's program, for a root or a repository of its own."""

    def __init__(
        self, manager: Manager, run: Run = run, *, options: tuple[str, ...] = (), query_options: tuple[str, ...] = ()
    ) -> None:
        self._manager = manager
        self._run = run
        self._options = options
        self._query_options = query_options

    @property
    def family(self) -> str:
        """Which kind of repository it reads."""
        return _FAMILIES[self._manager.name]

    async def installed(self, names: Iterable[str]) -> set[str]:
        plain_names = {name: _plain(name) for name in names if _NAME.fullmatch(name)}
        if not plain_names:
            return set()
        program, *rest = self._manager.query
        # The answer is good for those that are known, whatever the exit code says about the others.
        words = [program, *self._query_options, *_filled(rest, sorted(set(plain_names.values())))]
        ended = await self._do(words, _QUERY_S)
        known = set()
        for line in ended.text.splitlines():
            name, _, status = line.partition("\t")
            if status == self._manager.installed:
                known.add(name)
        return {name for name, plain in plain_names.items() if plain in known}

    async def install(self, name: str) -> str | None:
        if not _NAME.fullmatch(name):
            return f"{name!r} is not the name of a package"
        words = self._asking(*(self._manager.unheld if _plain(name) in _KUBERNETES else ()))
        ended = await self._do(self._with_options(words, name), _INSTALL_S)
        if not ended.is_good:
            # Lists of packages may be old, or were never fetched.
            await self._do(self._with_options(self._manager.update, name), _INSTALL_S)
            ended = await self._do(self._with_options(words, name), _INSTALL_S)
        return self._said(ended)

    async def upgrade(self, name: str, version: str, *, only_fetch: bool = False) -> str | None:
        if not _NAME.fullmatch(name) or not _VERSION.fullmatch(version):
            return f"{name!r} {version!r} is not a version of a package"
        words = self._asking(*self._manager.unheld, *((self._manager.fetch,) if only_fetch else ()))
        chosen = self._manager.exact.format(name, version)
        ended = await self._do(self._with_options(words, chosen), _INSTALL_S)
        if not ended.is_good:
            await self._do(self._with_options(self._manager.update, name), _INSTALL_S)
            ended = await self._do(self._with_options(words, chosen), _INSTALL_S)
        return self._said(ended)

    async def remove(self, name: str) -> str | None:
        if name not in await self.installed([name]):
            return None
        return self._said(await self._do(self._with_options(self._manager.remove, _plain(name)), _INSTALL_S))

    def _asking(self, *options: str) -> tuple[str, ...]:
        """The command that installs, with further options."""
        words = self._manager.install
        place = words.index("install") + 1
        return (*words[:place], *options, *words[place:])

    def _with_options(self, words: tuple[str, ...], name: str) -> list[str]:
        return [words[0], *self._options, *_filled(words[1:], [name])]

    async def _do(self, words: list[str], timeout_s: float) -> Ended:
        return await self._run(words, timeout_s=timeout_s, environ=dict(self._manager.environ))

    def _said(self, ended: Ended) -> str | None:
        if ended.is_good:
            return None
        errors = [line for line in (ended.why + "\n" + ended.text).splitlines() if line.startswith(("E:", "Error"))]
        return f"{self._manager.name}: {'; '.join(errors[:3])}" if errors else f"{self._manager.name}: {ended.reason}"


def _plain(name: str) -> str:
    """Without a version: `kubelet=1.31.1-1.1`."""
    return name.partition("=")[0]


def _filled(words: Iterable[str], names: list[str]) -> list[str]:
    return [word for item in words for word in (names if item == "{}" else [item])]
