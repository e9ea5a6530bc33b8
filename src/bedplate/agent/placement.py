"""Where the agent's own files are, and which of its versions runs.

In: the folder of one version, as the agent's archive holds it. Out: `/opt/bedplate-agent/VERSION`, a link `current` to
the version that runs, the program's name, the unit, settings. The link is replaced whole, so that there is always one
version that runs. A package of the distribution puts the same files in the same places.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from collections.abc import Sequence

from bedplate.agent.files import Root
from bedplate.core import errors

__all__ = ["HOME", "MACHINES", "SERVICE", "Placement", "own_home"]

HOME = "/opt/bedplate-agent"
SERVICE = "bedplate-agent"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Architectures as the kernel calls them, and as packages do."""
_CURRENT = "current"
_PROGRAM = "/usr/bin/bedplate-agent"
_UNIT = "/etc/systemd/system/bedplate-agent.service"
_SETTINGS = "/etc/bedplate/agent.toml"
_CREDENTIALS = ("/etc/bedplate/agent.pem", "/etc/bedplate/ca.crt", "/etc/bedplate/agent.key.new")
_FOLDERS = ("/var/lib/bedplate-agent", "/var/log/bedplate-agent", "/run/bedplate-agent")
_PACKAGES = {"dpkg": "/var/lib/dpkg/info/bedplate-agent.list", "rpm": f"{HOME}/.rpm"}
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+~-]{0,63}")


def own_home() -> str | None:
    """The folder of the version that this process is of; None when it does not run from one."""
    home = os.path.dirname(os.path.dirname(sys.executable))
    return home if os.path.isfile(os.path.join(home, "libexec", "python3")) else None


class Placement:
    """The agent's files below a root."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.home = self._at(HOME)

    def _at(self, path: str) -> str:
        return os.path.join(self._root.folder, path.lstrip("/"))

    @property
    def current(self) -> str:
        """The version that runs, or is started next; empty when there is none."""
        try:
            return os.readlink(os.path.join(self.home, _CURRENT))
        except OSError:
            return ""

    @property
    def packager(self) -> str:
        """`dpkg` or `rpm` where a package of the distribution brought it; else empty."""
        return next((name for name, mark in _PACKAGES.items() if os.path.exists(self._at(mark))), "")

    def versions(self) -> Sequence[str]:
        """All that are there."""
        try:
            return sorted(name for name in os.listdir(self.home) if _VERSION.fullmatch(name))
        except FileNotFoundError:
            return ()

    def program(self, version: str) -> str:
        return os.path.join(self.home, version, "bin", "bedplate-agent")

    def switch(self, version: str) -> None:
        """Let another version be the one that is started from now on. It is on the disk when this returns."""
        new = os.path.join(self.home, f".{_CURRENT}.new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        os.symlink(version, new)
        os.rename(new, os.path.join(self.home, _CURRENT))
        handle = os.open(self.home, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def set_up(self, home: str) -> str:
        """Make the version in a folder the one that runs, with its name, unit and settings; the version.

        Raises `Invalid` for a folder elsewhere."""
        folder, version = os.path.split(os.path.realpath(home))
        if folder != os.path.realpath(self.home) or not _VERSION.fullmatch(version):
            raise errors.Invalid(
                f"{home} is not a version below {self.home}", hint=f"unpack the agent's archive there: tar -C {HOME}"
            )
        if not self.packager:
            self._copy(os.path.join(home, "share", "bedplate-agent.service"), _UNIT)
            if not os.path.exists(self._at(_SETTINGS)):
                self._copy(os.path.join(home, "share", "agent.toml"), _SETTINGS)
            self._link()
        self.switch(version)
        return version

    def _copy(self, source: str, path: str) -> None:
        place = self._at(path)
        os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
        shutil.copyfile(source, f"{place}.new")
        os.chmod(f"{place}.new", 0o644)
        os.rename(f"{place}.new", place)

    def _link(self) -> None:
        place = self._at(_PROGRAM)
        os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
        os.symlink(f"../..{HOME}/{_CURRENT}/bin/bedplate-agent", place)

    def prune(self, *kept: str) -> None:
        """Remove versions but those named."""
        for name in self.versions():
            if name not in kept:
                shutil.rmtree(os.path.join(self.home, name), ignore_errors=True)

    def remove(self, *, purge: bool) -> None:
        """Take it away; with `purge` its settings, certificate and state as well. What it wrote for the head stays.

        Raises `Invalid` for one that a package brought."""
        if self.packager:
            verb = "erase" if self.packager == "rpm" else "purge" if purge else "remove"
            raise errors.Invalid(
                "the agent is installed as a package",
                hint=f"the package manager removes it: {self.packager} --{verb} {SERVICE}",
            )
        for path in (_PROGRAM, _UNIT, *((_SETTINGS, *_CREDENTIALS) if purge else ())):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._at(path))
        for path in (HOME, *(_FOLDERS if purge else ())):
            shutil.rmtree(self._at(path), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(self._at(os.path.dirname(_SETTINGS)))
