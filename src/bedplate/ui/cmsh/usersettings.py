"""Which head a shell talks to, and as whom: flags, environment, data folder, the user's settings, in this order.

In: flags, the environment, `~/.config/bedplate`. Out: a `Target`. Nothing is opened or asked here.

`~/.config/bedplate/cmsh.yaml` may say `url` (one or a list), `data`, `token-file`, `cert`, `key`, `cacert`; paths are
relative to it. Without these, credentials are looked for beside it, under the names they have in a data folder:
`admin.token`, `admin.crt` with `admin.key`, `ca.crt`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from bedplate.core import errors

__all__ = ["DEFAULT_DATA", "OF_UP", "Flags", "Identity", "Target", "choose", "history_file"]

DEFAULT_DATA = pathlib.Path("/var/lib/bedplate/head")
"""Where a head is looked for when nothing says where it is."""

OF_UP = pathlib.Path(".bedplate/head")
"""Where `bedplate up` has its head."""

_TOKEN, _CERT, _KEY, _CA = "admin.token", "admin.crt", "admin.key", "ca.crt"


@dataclass(frozen=True, slots=True)
class Identity:
    """Files: a bearer token, or a certificate and its key; and the authority that is trusted."""

    token_file: pathlib.Path | None = None
    cert: pathlib.Path | None = None
    key: pathlib.Path | None = None
    cacert: pathlib.Path | None = None

    def over(self, other: Identity) -> Identity:
        """With the rest from another one. Who says one kind of credential does not want the other's second kind."""
        if self.token_file or self.cert:
            return replace(self, cacert=self.cacert or other.cacert)
        return replace(other, cacert=self.cacert or other.cacert)


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line, or the environment, or the settings file says."""

    urls: tuple[str, ...] = ()
    data: pathlib.Path | None = None
    identity: Identity = field(default_factory=Identity)

    @property
    def says_where(self) -> bool:
        return bool(self.urls) or self.data is not None


@dataclass(frozen=True, slots=True)
class Target:
    """Where to go: daemons at `urls`, or the head of the folder `data`, whichever way that one can be had.

    `identity` is complete for `urls`; for a folder it is what overrides the folder's own."""

    urls: tuple[str, ...]
    data: pathlib.Path | None
    identity: Identity


def choose(flags: Flags, environment: Mapping[str, str], home: pathlib.Path) -> Target:
    """The target that flags, environment and settings name. Raises `Invalid` when none does."""
    _paired(flags.identity, "--cert and --key")
    folder = _config_folder(environment, home)
    variables = from_environment(environment)
    _paired(variables.identity, "BEDPLATE_CERT and BEDPLATE_KEY")
    kept = from_folder(folder)
    explicit = flags.identity.over(variables.identity)
    for source in (flags, variables, kept):
        if source.says_where:
            break
    else:
        if not DEFAULT_DATA.is_dir():
            hint = "give --data DIR or --url URL, set BEDPLATE_DATA or BEDPLATE_URL, or create a head: "
            hint += "bedplate head init --data DIR"
            if OF_UP.is_dir():
                hint = f"--data {OF_UP} is that of `bedplate up` in this folder; for another {hint}"
            raise errors.Invalid("no head is configured", hint=hint)
        source = Flags(data=DEFAULT_DATA)
    if source.urls:
        behind = beside(source.data) if source.data is not None else kept.identity
        return Target(source.urls, source.data, explicit.over(behind))
    return Target((), source.data, explicit)


def from_environment(environment: Mapping[str, str]) -> Flags:
    """BEDPLATE_URL (several with commas or blanks), BEDPLATE_DATA, BEDPLATE_TOKEN_FILE, BEDPLATE_CERT, ..."""

    def path(name: str) -> pathlib.Path | None:
        text = environment.get(f"BEDPLATE_{name}", "")
        return pathlib.Path(text).expanduser() if text else None

    urls = tuple(environment.get("BEDPLATE_URL", "").replace(",", " ").split())
    return Flags(urls, path("DATA"), Identity(path("TOKEN_FILE"), path("CERT"), path("KEY"), path("CACERT")))


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    url: str | list[str] = ""
    data: str = ""
    token_file: str = ""
    cert: str = ""
    key: str = ""
    cacert: str = ""


def from_folder(folder: pathlib.Path) -> Flags:
    """What the user's settings say. Raises `Invalid` when they cannot be understood."""
    path = folder / "cmsh.yaml"
    if not path.is_file():
        return Flags(identity=beside(folder))
    import yaml

    from bedplate.core import yamls

    try:
        settings = msgspec.convert(yamls.load(path.read_text(), strict=True) or {}, _File)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as err:
        hint = "the keys are url, data, token-file, cert, key and cacert"
        raise errors.Invalid(f"{path} cannot be read: {err}", hint=hint) from err

    def named(text: str) -> pathlib.Path | None:
        return folder / pathlib.Path(text).expanduser() if text else None

    urls = (settings.url,) if isinstance(settings.url, str) else tuple(settings.url)
    own = Identity(named(settings.token_file), named(settings.cert), named(settings.key), named(settings.cacert))
    _paired(own, f"cert and key in {path}")
    return Flags(tuple(url for url in urls if url), named(settings.data), own.over(beside(folder)))


def beside(folder: pathlib.Path) -> Identity:
    """The credentials in a folder, by their usual names; the token where there are both kinds."""

    def there(name: str) -> pathlib.Path | None:
        path = folder / name
        return path if path.is_file() else None

    token, cert, key = there(_TOKEN), there(_CERT), there(_KEY)
    if token is not None or key is None:
        cert = key = None
    return Identity(token, cert, key, there(_CA))


def history_file(environment: Mapping[str, str], home: pathlib.Path) -> pathlib.Path:
    """Where the lines typed at a terminal are kept."""
    return _config_folder(environment, home) / "cmsh_history"


def _config_folder(environment: Mapping[str, str], home: pathlib.Path) -> pathlib.Path:
    base = environment.get("XDG_CONFIG_HOME", "")
    return (pathlib.Path(base) if base else home / ".config") / "bedplate"


def _paired(identity: Identity, what: str) -> None:
    if (identity.cert is None) != (identity.key is None):
        raise errors.Invalid(f"{what} must be given together: one of them is missing", hint="give both, or neither")
