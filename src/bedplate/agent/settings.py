"""What an agent was told: its file, read whole and checked before anything starts.

In: `/etc/bedplate/agent.toml` below the root, and what a command line says instead. Out: `Settings`, or every problem
at once. `make` puts the pieces together that the settings name.

    node = "node001"                                  default: the host name
    urls = ["https://head1:8081", "https://head2:8081"]
    ca = "/etc/bedplate/ca.crt"                       the authority of the heads, the only one that is trusted
    cert = "/etc/bedplate/agent.pem"
    key = "/etc/bedplate/agent.key"                   where it is not in the certificate's file
    token = "/etc/bedplate/agent.token"               instead of cert and key
    services = "auto"                                 or systemd, supervisor
    packages = "auto"                                 or apt, dnf, zypper, none, or folder:/path
    edits = "restore"                                 or report, keep: what is done about changes by hand
    drift = 30                                        seconds between two looks at files and services
    alive = 100                                       seconds after which a node that has no news reports all the same

    [edit_paths]
    "/etc/motd" = "keep"                              for single paths, by pattern
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from bedplate.agent.apply import Effects
from bedplate.agent.files import Root
from bedplate.agent.link import Login
from bedplate.agent.node import Pace
from bedplate.agent.observe import Edits, Policy
from bedplate.agent.packages import Packages, native
from bedplate.agent.packages.folder import Folder
from bedplate.agent.services import Services
from bedplate.agent.services.docker import Bridged
from bedplate.agent.services.etcd import Etcd
from bedplate.agent.services.firewall import Firewalled
from bedplate.agent.services.proxied import Proxied, StandIn, WithBalancer, trials
from bedplate.agent.services.supervisor import Supervisor
from bedplate.agent.services.systemd import Systemd, is_pid_1
from bedplate.agent.state import State
from bedplate.core import errors

__all__ = ["FILE", "STATE", "Settings", "effects", "login", "loose", "pace", "place", "read", "write"]

FILE = "/etc/bedplate/agent.toml"
STATE = "/var/lib/bedplate-agent"
_RUN = "/run/bedplate-agent"
_LOGS = "/var/log/bedplate-agent"
_MANAGERS = {"apt": native.APT, "dnf": native.DNF, "zypper": native.ZYPPER}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file as a value. Paths of the credential and of the folder of packages are those of this process."""

    node: str = ""
    urls: tuple[str, ...] = ()
    ca: str = ""
    cert: str = ""
    key: str = ""
    token: str = ""
    services: Literal["auto", "systemd", "supervisor"] = "auto"
    packages: str = "auto"
    edits: Policy = "restore"
    edit_paths: dict[str, Policy] = {}
    drift: float = 30.0
    alive: float = 100.0
    root: str = "/"

    @property
    def name(self) -> str:
        return self.node or os.uname().nodename.partition(".")[0]


def read(root: str = "/", file: str = "", given: Mapping[str, Any] | None = None) -> Settings:
    """The settings of a file (by default the one below the root, which may be missing) and what was given instead.

    Raises `Invalid` with the problem of the file, or `NotFound` for a file that was named and is not there.
    """
    source = file or place(root)
    try:
        with open(source, "rb") as stream:
            values = tomllib.load(stream)
    except FileNotFoundError:
        if file:
            raise errors.NotFound(f"{file} does not exist", hint="name the agent's settings with --config") from None
        values = {}
    except OSError as err:
        raise errors.Invalid(f"{source} cannot be read: {err.strerror}", hint="run the agent as root") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise errors.Invalid(f"{source} is not TOML: {err}") from err
    merged = {
        **values,
        **{key: value for key, value in (given or {}).items() if value not in (None, "", ())},
        "root": root,
    }
    try:
        return msgspec.convert(merged, Settings)
    except msgspec.ValidationError as err:
        raise errors.Invalid(f"{source}: {err}", hint="see bedplate agent run --help for the settings") from err


def place(root: str) -> str:
    """Where the settings are below a root."""
    return Root(root).place(FILE)


def write(file: str, node: str, urls: Sequence[str], ca: str, cert: str) -> None:
    """Write the settings of a node that has just been enrolled; what else is in them stays as it is.

    Raises `Terminal` where they cannot be read or written.
    """
    new = {"node": node, "urls": list(urls), "ca": ca, "cert": cert}
    # JSON's strings and lists are TOML's, too.
    written = [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in new.items()]
    try:
        lines = _lines(file)
        rest = [line for line in lines if line.partition("=")[0].strip() not in (*new, "key", "token")]
        os.makedirs(os.path.dirname(file), mode=0o755, exist_ok=True)
        with open(f"{file}.new", "w") as stream:
            stream.write("\n".join((*written, *rest)) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(f"{file}.new", file)
    except (OSError, UnicodeDecodeError) as err:
        why = (err.strerror or str(err)).lower() if isinstance(err, OSError) else "it is not text"
        raise errors.Terminal(
            f"{file} cannot be written: {why}",
            hint="put that right (free space, run it as root), and enrol the node again with the same token",
        ) from err


def _lines(file: str) -> list[str]:
    try:
        with open(file) as stream:
            return stream.read().splitlines()
    except FileNotFoundError:
        return []


def problems(settings: Settings) -> Iterable[str]:
    """What keeps an agent from asking a head."""
    if not settings.urls:
        yield "no head is named: --url, or urls in the settings"
    if settings.key and not settings.cert:
        yield "a key needs its certificate: cert"
    if not settings.cert and not settings.token:
        yield "no credential: a certificate (cert, key) or a token; bedplate agent enrol gets one"
    plain = [url for url in settings.urls if settings.cert and not url.startswith("https:")]
    if plain:
        yield f"{plain[0]} proves nothing: with a certificate heads are asked over https alone"
    if not settings.ca and any(url.startswith("https:") for url in settings.urls):
        yield "no authority of the heads to trust: ca"
    for kind, path in (("ca", settings.ca), ("cert", settings.cert), ("key", settings.key), ("token", settings.token)):
        if path and not os.access(path, os.R_OK):
            yield f"{kind}: {path} cannot be read"


def loose(settings: Settings) -> Iterable[str]:
    """Secrets of this node that other users of the machine can read."""
    for path in (settings.cert if not settings.key else settings.key, settings.token):
        try:
            mode = os.stat(path).st_mode & 0o777 if path else 0
        except OSError:
            continue
        if mode & 0o077:
            yield f"{path} has mode {mode:04o}: other users of this machine can be this node; chmod 600 {path}"


def login(settings: Settings) -> Login:
    """Who this node is to its heads. Raises `Invalid` with every problem."""
    faults = list(problems(settings))
    if faults:
        raise errors.Invalid("the agent cannot ask a head", problems=faults, hint="see bedplate agent run --help")
    return Login(settings.name, settings.urls, settings.ca, settings.cert, settings.key, settings.token)


def pace(settings: Settings) -> Pace:
    return Pace(drift_s=max(1.0, settings.drift), alive_s=max(1.0, settings.alive))


def effects(settings: Settings) -> Effects:
    """What the agent works with on this machine, or in its sandbox."""
    root = Root(settings.root)
    if not os.path.isdir(root.folder):
        raise errors.NotFound(f"the folder {root.folder} does not exist", hint="create it, or give another --root")
    state = State(_folder(root, STATE))
    edits = Edits(settings.edits, tuple(settings.edit_paths.items()))
    stand_in = StandIn(root)
    packages = WithBalancer(_packages(settings, root, state), stand_in)
    services = _services(settings, root, stand_in)
    return Effects(root, state, services, packages, run=trials(stand_in), edits=edits, again=packages.again)


def _services(settings: Settings, root: Root, stand_in: StandIn) -> Services:
    folder = _folder(root, STATE)
    etcd = Etcd(Proxied(_back_end(settings, root), stand_in), root, os.path.join(folder, "etcd-member"))
    return Firewalled(Bridged(etcd, root, os.path.join(folder, "docker-link")), root)


def _back_end(settings: Settings, root: Root) -> Services:
    if settings.services == "systemd" or (settings.services == "auto" and root.is_machine and is_pid_1()):
        return Systemd()
    environ = {} if root.is_machine else {"BEDPLATE_ROOT": root.folder}
    return Supervisor(root, _folder(root, f"{_RUN}/services"), _folder(root, _LOGS), environ=environ)


def _folder(root: Root, path: str) -> str:
    """A folder of the agent's own; the root is prepared for it."""
    return os.path.dirname(root.place(f"{path}/x"))


def _packages(settings: Settings, root: Root, state: State) -> Packages:
    kind, _, place = settings.packages.partition(":")
    if kind == "folder" and place:
        return Folder(place, root, os.path.join(state.folder, "packages"))
    if kind == "none" or (kind == "auto" and not root.is_machine):
        return _NoPackages()
    if kind == "auto":
        manager = native.choose()
        return native.Native(manager) if manager is not None else _NoPackages()
    if kind not in _MANAGERS:
        raise errors.Invalid(
            f"packages: {settings.packages!r} is not known", hint="auto, apt, dnf, zypper, none or folder:/path"
        )
    return native.Native(_MANAGERS[kind])


class _NoPackages:
    """Packages are somebody else's: every one counts as there."""

    family = "none"

    async def installed(self, names: Iterable[str]) -> set[str]:
        return set(names)

    async def install(self, name: str) -> str | None:
        return None

    async def remove(self, name: str) -> str | None:
        return None

    async def upgrade(self, name: str, version: str, *, only_fetch: bool = False) -> str | None:
        return None
