"""The agent onto machines and off them, over the system's `ssh`.

In: destinations as `ssh` takes them, packages of the agent, one-time tokens. Out: what was done on each machine, or
`Trouble`: what is wrong there and what to do. The user's own ssh settings count: keys, names, jump hosts. A token goes
through standard input, never into a command line. Everything may be repeated: what is there already is left as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import shlex
import tomllib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

import msgspec

from bedplate.agent.placement import HOME, MACHINES, SERVICE
from bedplate.core import errors
from bedplate.core.tasks import TaskGroup

__all__ = ["Facts", "Host", "Machine", "Package", "Plan", "Ssh", "Trouble", "choose", "plan"]

_PATIENCE_S = 600.0
_PROBE_S = 60.0
_ARCHIVE = re.compile(r"bedplate-agent-(?P<version>[0-9].*)-linux-(?P<architecture>\w+)\.tar\.gz")
_DEBIAN = re.compile(r"bedplate-agent_(?P<version>[0-9].*)_(?P<architecture>\w+)\.deb")
_RPM = re.compile(r"bedplate-agent-(?P<version>[0-9].*)-1\.(?P<architecture>\w+)\.rpm")
_MARK = "--settings--"
_LEFT = "/etc/bedplate /var/lib/bedplate-agent /var/log/bedplate-agent /run/bedplate-agent"

_PROBE = """
echo machine=$(uname -m)
if [ "$(id -u)" = 0 ]; then echo root=yes; elif sudo -n true 2> /dev/null; then echo root=sudo; else echo root=no; fi
place={root}/opt
while [ ! -d "$place" ]; do place=${{place%/*}}; [ -n "$place" ] || place=/; done
echo free=$(df -Pk "$place" | awk 'NR == 2 {{ print $4 }}')
echo version=$(readlink {root}{home}/current)
[ ! -f {root}/var/lib/dpkg/info/{service}.list ] || echo package=dpkg
[ ! -f {root}{home}/.rpm ] || echo package=rpm
[ ! -f {root}/etc/bedplate/agent.pem ] || echo enrolled=yes
for tool in tar dpkg rpm; do if command -v $tool > /dev/null; then echo $tool=yes; fi; done
echo {mark}
[ ! -r {root}/etc/bedplate/agent.toml ] || cat {root}/etc/bedplate/agent.toml
"""
_UNPACK = """
set -e
umask 022
mkdir -p {root}{home}
cd {root}{home}
rm -rf .arriving
mkdir .arriving
if ! tar -xzf - -C .arriving; then rm -rf .arriving; exit 1; fi
rm -rf .leaving
[ ! -e {version} ] || mv {version} .leaving
mv .arriving/{version} {version}
rm -rf .arriving .leaving
{version}/bin/bedplate-agent setup --root {root_option}
"""
_INSTALL = """
set -e
file=$(mktemp)
trap 'rm -f "$file"' EXIT
cat > "$file"
{command} "$file" >&2
"""
_INSTALLERS = {"dpkg": "dpkg --install", "rpm": "rpm --upgrade --replacepkgs --oldpackage"}


class Trouble(errors.Terminal):
    """Why nothing more can be done on a machine."""


class Package(NamedTuple):
    """A package of the agent, known by its name; `needs_kb` is what its files take."""

    path: Path
    version: str
    architecture: str
    manager: str
    """`dpkg` or `rpm`; empty for the archive, which needs none."""
    needs_kb: int

    @classmethod
    def read(cls, path: Path) -> Package:
        """Raises `Invalid` for a file that is none."""
        kinds = {"": _ARCHIVE, "dpkg": _DEBIAN, "rpm": _RPM}
        matches = ((kind, pattern.fullmatch(path.name)) for kind, pattern in kinds.items())
        kind, match = next((pair for pair in matches if pair[1]), ("", None))
        if match is None:
            raise errors.Invalid(
                f"{path} is not named like a package of the agent",
                hint="make packages builds bedplate-agent-VERSION-linux-ARCHITECTURE.tar.gz, a .deb and an .rpm",
            )
        size = path.stat().st_size
        if not kind:
            # gzip ends with the size of what is in it.
            with path.open("rb") as stream:
                stream.seek(-4, 2)
                size = int.from_bytes(stream.read(4), "little")
        else:
            size *= 4
        # rpm knows versions with ~ where ours have -, and architectures by the names of the kernel.
        version = match["version"].replace("~", "-") if kind == "rpm" else match["version"]
        architecture = MACHINES.get(match["architecture"], match["architecture"])
        return cls(path, version, architecture, kind, size // 1024)


class Host(NamedTuple):
    """Where to go, and the node that the machine is to be; no node: the head says which."""

    destination: str
    node: str = ""

    @classmethod
    def parse(cls, text: str, *, is_named: bool = True) -> Host:
        """`NODE=DESTINATION`, or a destination, whose first label is the node's name. Raises `Invalid`."""
        node, equals, destination = text.rpartition("=")
        if not equals and is_named:
            name = text.rpartition("@")[2].removeprefix("ssh://").partition("/")[0].partition(":")[0]
            with contextlib.suppress(ValueError):
                ipaddress.ip_address(name)
                raise errors.Invalid(f"{text} is an address, not a name", hint=f"say which node it is: node001={text}")
            node = name.partition(".")[0]
        if not destination or text.startswith("-") or destination.startswith("-"):
            raise errors.Invalid(
                f"{text!r} is not a destination for ssh", hint="node001, admin@node001, node001=10.0.0.1"
            )
        return cls(destination, node)


class Facts(NamedTuple):
    """What a machine says of itself."""

    architecture: str = ""
    rights: str = "no"
    free_kb: int = 0
    version: str = ""
    packager: str = ""
    """`dpkg` or `rpm` where a package brought the agent that is there."""
    is_enrolled: bool = False
    has_tar: bool = False
    managers: tuple[str, ...] = ()
    """Those of `dpkg` and `rpm` that are there."""
    node: str = ""
    urls: tuple[str, ...] = ()


class Ended(NamedTuple):
    """How a command on a machine ended."""

    code: int
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Ssh:
    """How machines are reached: the program with its options. Nobody is asked for a password."""

    command: Sequence[str] = ("ssh",)
    connect_s: int = 10

    async def __call__(
        self, destination: str, script: str, *, stdin: bytes | IO[bytes] = b"", timeout_s: float = _PATIENCE_S
    ) -> Ended:
        """Run a script there. Raises `Trouble` when the machine cannot be reached."""
        words = [*self.command, "-o", "BatchMode=yes", "-o", f"ConnectTimeout={self.connect_s}", "--", destination]
        try:
            child = await asyncio.create_subprocess_exec(
                *words,
                f"sh -c {shlex.quote(script)}",
                stdin=asyncio.subprocess.PIPE if isinstance(stdin, bytes) else stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as err:
            raise Trouble(
                f"{self.command[0]} cannot be run: {(err.strerror or str(err)).lower()}",
                hint="install OpenSSH's client",
            ) from err
        try:
            async with asyncio.timeout(timeout_s):
                out, complaint = await child.communicate(stdin if isinstance(stdin, bytes) else None)
        except TimeoutError:
            raise Trouble(f"it did not answer within {timeout_s:g} s", hint="look at the machine") from None
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        ended = Ended(child.returncode or 0, out.decode(errors="replace"), complaint.decode(errors="replace"))
        if ended.code == 255:
            raise _unreachable(ended.why)
        return ended


def _unreachable(why: str) -> Trouble:
    """What ssh complained of, with what to do about it."""
    last = _last(why) or "ssh gave no reason"
    hints = {
        "host key": "look at its key, then accept it: ssh-keyscan, ssh-keygen -R",
        "permission denied": "let this user in with a key: ssh-copy-id; or name another one with --user",
        "not resolve": "check the name, or give its address: NODE=ADDRESS",
        "refused": "does sshd run there? --port names another port",
    }
    hint = next((hint for words, hint in hints.items() if words in why.lower()), "check that ssh reaches it")
    return Trouble(f"unreachable: {last}", hint=hint)


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


class Plan(NamedTuple):
    """What is to be done on a machine. Nothing of it: it has what it should have."""

    package: Package | None
    is_enrolling: bool

    @property
    def text(self) -> str:
        parts = [f"install {self.package.version}" if self.package else "", "enrol" if self.is_enrolling else ""]
        return ", ".join([part for part in parts if part] + ["start"]) if any(parts) else "nothing"


def choose(packages: Sequence[Package], facts: Facts, *, is_sandbox: bool = False) -> Package:
    """The package for a machine: its own kind where that was given. Raises `Trouble`."""
    fitting = [package for package in packages if package.architecture == facts.architecture]
    if not fitting:
        given = ", ".join(sorted({package.architecture for package in packages})) or "none"
        raise Trouble(
            f"wrong architecture: it is {facts.architecture or 'unknown'}, and packages were given for {given}",
            hint="give the package for it, too: --package",
        )
    # Of both managers the one is the machine's that brought the agent; else dpkg, for Debian has rpm as a mere tool.
    managers = () if is_sandbox else (facts.packager, *(name for name in ("dpkg", "rpm") if name in facts.managers))
    order = [name for name in managers if name] + [""]
    usable = [package for name in order for package in fitting if package.manager == name]
    if not usable:
        given = " or ".join(sorted({package.manager for package in fitting}))
        raise Trouble(
            f"it has no {given} for the package that was given", hint="give the archive (.tar.gz) with --package"
        )
    if not usable[0].manager and not facts.has_tar:
        raise Trouble("it has no tar to unpack the archive with", hint="install tar there, or give its .deb or .rpm")
    return usable[0]


def plan(
    host: Host,
    facts: Facts,
    packages: Sequence[Package],
    urls: Sequence[str],
    *,
    replace: bool = False,
    force: bool = False,
    is_sandbox: bool = False,
) -> Plan:
    """What is to be done on a machine, by what it says of itself. Raises `Trouble`."""
    package = choose(packages, facts, is_sandbox=is_sandbox)
    if facts.rights == "no" and not is_sandbox:
        raise Trouble("no sudo: this user is not root, and sudo asks for a password", hint="use root, or NOPASSWD")
    is_elsewhere = facts.is_enrolled and not set(_plain(facts.urls)) & set(_plain(urls))
    if is_elsewhere and not replace:
        raise Trouble(
            f"already enrolled at another head: {', '.join(facts.urls) or 'one that it does not name'}",
            hint="--replace enrols it here",
        )
    if facts.is_enrolled and host.node and facts.node and facts.node != host.node and not replace:
        raise Trouble(f"it is enrolled as {facts.node}, not as {host.node}", hint="--replace enrols it again")
    is_copying = force or facts.version != package.version
    if is_copying and facts.free_kb < package.needs_kb:
        raise Trouble(
            f"disk full: {facts.free_kb // 1024} MB are free for {HOME}, {package.needs_kb // 1024 + 1} MB are needed",
            hint="free space there",
        )
    return Plan(package if is_copying else None, replace or not facts.is_enrolled)


def _plain(urls: Sequence[str]) -> list[str]:
    return [url.rstrip("/").lower() for url in urls]


@dataclass(slots=True)
class Machine:
    """One machine; `root` is a folder there that counts as its root, for sandboxes."""

    host: Host
    ssh: Ssh
    root: str = "/"
    facts: Facts = field(default_factory=Facts)

    @property
    def is_sandbox(self) -> bool:
        return self.root != "/"

    def _filled(self, script: str, **words: str) -> str:
        prefix = shlex.quote(self.root) if self.is_sandbox else ""
        return script.format(
            root=prefix, root_option=shlex.quote(self.root), home=HOME, service=SERVICE, mark=_MARK, **words
        )

    async def probe(self) -> Facts:
        """What is there. Raises `Trouble`."""
        ended = await self.ssh(self.host.destination, self._filled(_PROBE), timeout_s=_PROBE_S)
        facts, _, settings = ended.text.partition(f"{_MARK}\n")
        pairs = dict(line.split("=", 1) for line in facts.splitlines() if "=" in line)
        if "machine" not in pairs:
            raise Trouble(
                f"it does not answer as a machine does: {_last(ended.why)}", hint="its login shell must be one"
            )
        try:
            known = tomllib.loads(settings)
        except tomllib.TOMLDecodeError:
            known = {}
        self.facts = Facts(
            architecture=MACHINES.get(pairs["machine"], pairs["machine"]),
            rights=pairs.get("root", "no"),
            free_kb=int(pairs["free"]) if pairs.get("free", "").isdecimal() else 1 << 40,
            version=pairs.get("version", ""),
            packager=pairs.get("package", ""),
            is_enrolled=pairs.get("enrolled") == "yes",
            has_tar="tar" in pairs,
            managers=tuple(name for name in _INSTALLERS if name in pairs),
            node=str(known.get("node") or ""),
            urls=tuple(str(url) for url in known.get("urls") or ()),
        )
        return self.facts

    async def _as_root(self, script: str, *, stdin: bytes | IO[bytes] = b"", timeout_s: float = _PATIENCE_S) -> str:
        """Run a script with all rights; what it said. Raises `Trouble`."""
        if self.facts.rights == "sudo" and not self.is_sandbox:
            script = f"exec sudo -n sh -c {shlex.quote(script)}"
        ended = await self.ssh(self.host.destination, script, stdin=stdin, timeout_s=timeout_s)
        if ended.code:
            why = _last(ended.why) or f"exit code {ended.code}"
            if "no space left" in ended.why.lower():
                raise Trouble("disk full: no space was left while the agent was copied", hint="free space below /opt")
            raise Trouble(why, hint="see what it says above")
        return ended.text

    async def copy(self, package: Package) -> None:
        """Put the package there. A copy that is interrupted leaves what was there."""
        if package.manager:
            script = _INSTALL.format(command=_INSTALLERS[package.manager])
        else:
            script = self._filled(_UNPACK, version=shlex.quote(package.version))
        with package.path.open("rb") as stream:
            await self._as_root(script, stdin=stream)

    async def enrol(self, urls: Sequence[str], token: str, *, timeout_s: float) -> str:
        """Let the agent there get its certificate; the node that it is."""
        words = ["enrol", "-o", "json", *(word for url in urls for word in ("--url", url))]
        text = await self._as_root(self._agent(*words), stdin=f"{token}\n".encode(), timeout_s=timeout_s)
        return _node(text)

    async def start(self, *, again: bool) -> None:
        """Let the agent run; `again`: it was replaced, or is another node now."""
        await self._as_root(self._agent("restart" if again else "start"))

    async def remove(self, *, purge: bool) -> None:
        """Take the agent away."""
        if self.facts.packager == "rpm" and not self.is_sandbox:
            # rpm knows no purge: what it leaves is removed by the agent's own rules for it.
            left = f" && rm -rf {_LEFT}" if purge else ""
            await self._as_root(f"rpm --erase {SERVICE} >&2{left}")
        elif self.facts.packager and not self.is_sandbox:
            await self._as_root(f"dpkg --{'purge' if purge else 'remove'} {SERVICE} >&2")
        elif self.facts.version:
            await self._as_root(self._agent("remove", *(["--purge"] if purge else [])))

    def _agent(self, verb: str, *words: str) -> str:
        program = f"{self.root.rstrip('/')}{HOME}/current/bin/bedplate-agent"
        return f"exec {shlex.join([program, verb, '--root', self.root, *words])}"


def _node(text: str) -> str:
    """The node that the agent says it is; a login shell may have said something before. Raises `Trouble`."""
    try:
        return msgspec.json.decode(text[text.index("{\n") :], type=dict[str, str])["node"]
    except (ValueError, KeyError, msgspec.DecodeError):
        raise Trouble(
            f"its agent does not say which node it is: {_last(text) or 'it says nothing'}",
            hint="look there: bedplate-agent status; a login shell should print nothing to standard output",
        ) from None


async def at_once(count: int, work: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Do pieces of work, so many at a time."""
    places = asyncio.Semaphore(count)

    async def one(piece: Callable[[], Awaitable[None]]) -> None:
        async with places:
            await piece()

    async with TaskGroup() as tasks:
        for piece in work:
            tasks.create_task(one(piece))
