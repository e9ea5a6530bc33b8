"""Oxide's configuration: the profile that OXIDE_PROFILE names, else environment, `--cloud-config`, another profile.

In: a mapping of environment variables, an optional YAML file, and the profiles of the Oxide CLI: `credentials.toml`
(host and token by profile) and `config.toml` (which is the default). Out: a `Config`, or `Invalid` with every problem,
each naming the key and the variable. The token itself is read when it is used, from where `token_source` says, so that
a rotated one is found; it stands in no message.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from bedplate.cloud.http import client as http_client
from bedplate.cloud.http.secrets import Secret
from bedplate.cloud.http.tokens import (
    FixedToken,
    Reloads,
    TokenFile,
    TokenSource,
    file_problem,
    whole_text,
    yaml_key,
)
from bedplate.core import errors, yamls
from bedplate.core.logging import get_logger

__all__ = ["API_VERSION", "LABELS", "Config", "load"]

log = get_logger("cloud.oxide")
API_VERSION = "2026060800.0.0"
LABELS = {"project-id": "oxide.computer/project-id", "cpu-platform": "oxide.computer/cpu-platform"}
"""Labels a configuration may ask for, by the short name it uses."""


class _LoadBalancer(msgspec.Struct, frozen=True, rename="camel"):
    delete_orphans: bool = False


class _File(msgspec.Struct, frozen=True, rename="camel"):
    host: str = ""
    token: str = ""
    token_file: str = ""
    project: str = ""
    profile: str = ""
    ca_file: str = ""
    insecure: bool = False
    zone: str = ""
    region: str = ""
    api_version: str = API_VERSION
    labels: tuple[str, ...] = ()
    load_balancer: _LoadBalancer = _LoadBalancer()


@dataclass(frozen=True, slots=True)
class Config:
    """What the provider works with. Of `token`, `token_file`, `token_in` and `profile_file` one is set.

    `token_in` is the YAML file whose key `token` holds it, `profile_file` a credentials file of the Oxide CLI.
    """

    host: str
    project: str
    token: Secret = field(default_factory=lambda: Secret(""))
    token_file: Path | None = None
    token_in: Path | None = None
    profile_file: Path | None = None
    profile: str = ""
    ca_file: str = ""
    is_insecure: bool = False
    zone: str = ""
    region: str = ""
    api_version: str = API_VERSION
    labels: tuple[str, ...] = ()
    deletes_orphans: bool = False

    def token_source(self, reloads: Reloads | None = None) -> TokenSource:
        """Where the client gets its token from."""
        if self.token:
            return FixedToken(self.token)
        if self.token_file is not None:
            return TokenFile(self.token_file, whole_text, reloads)
        if self.token_in is not None:
            return TokenFile(self.token_in, yaml_key("token"), reloads)
        assert self.profile_file is not None, "load gives no Config without a token"
        return TokenFile(self.profile_file, _token_of(self.profile), reloads)


def load(environ: Mapping[str, str], file: Path | None) -> Config:
    """The whole configuration, checked."""
    given = _read(file) if file is not None else _File()
    if environ.get("OXIDE_PROFILE"):
        environ, given = _without_credentials(environ, given)
    problems: list[str] = []
    host, project = environ.get("OXIDE_HOST") or given.host, environ.get("OXIDE_PROJECT") or given.project
    # A Secret that was made from a file often ends with its line break, which no header may hold.
    token, token_file = Secret(environ.get("OXIDE_TOKEN", "").strip()), environ.get("OXIDE_TOKEN_FILE", "")
    if not token and not token_file:
        token_file = given.token_file
    token_in = file if given.token and not token and not token_file else None
    has_own = bool(host and (token or token_file or token_in))
    profile = _Profile() if has_own else _profile(environ, given, host, problems)
    host = _with_scheme(host or profile.host)
    has_token = bool(token or token_file or token_in or profile.file)
    problems += _problems(host, project, given.labels, has_token=has_token)
    if token_file and not token and (problem := file_problem("tokenFile (OXIDE_TOKEN_FILE)", Path(token_file))):
        problems.append(problem)
    if problems:
        raise errors.Invalid("the configuration of oxide is not usable", problems=problems)
    return Config(
        host=host,
        project=project,
        token=token,
        token_file=Path(token_file) if token_file and not token else None,
        token_in=token_in,
        profile_file=profile.file,
        profile=profile.name,
        ca_file=given.ca_file,
        is_insecure=given.insecure,
        zone=given.zone,
        region=given.region,
        api_version=given.api_version,
        labels=given.labels,
        deletes_orphans=given.load_balancer.delete_orphans,
    )


def _profile(environ: Mapping[str, str], given: _File, host: str, problems: list[str]) -> _Profile:
    """The profile for what is not set otherwise; what is wrong with it is added to the problems."""
    try:
        profile = _load_profile(environ, environ.get("OXIDE_PROFILE") or given.profile)
    except errors.Invalid as err:
        problems.append(str(err))
        return _Profile()
    if host and profile.file is not None and _with_scheme(host) != _with_scheme(profile.host):
        # Its token is for its own host, and must not be shown to another one.
        problems.append(f"token: the profile {profile.name!r} is for another host than the one that is set")
    return profile


def _without_credentials(environ: Mapping[str, str], given: _File) -> tuple[Mapping[str, str], _File]:
    """Leave host and token to the profile that the environment names, as the original does.

    With the host of one and the profile of another rack, every instance would seem not to exist.
    """
    names = ("OXIDE_HOST", "OXIDE_TOKEN", "OXIDE_TOKEN_FILE")
    overruled = [name for name in names if environ.get(name)]
    if overruled:
        log.warning("oxide.config.overruled", by="OXIDE_PROFILE", variables=overruled)
    kept = {name: value for name, value in environ.items() if name not in names}
    return kept, msgspec.structs.replace(given, host="", token="", token_file="")


def _problems(host: str, project: str, labels: tuple[str, ...], *, has_token: bool) -> list[str]:
    """What is missing or wrong, each with the ways to set it right."""
    problems = []
    if not host:
        problems.append("host: not set; set OXIDE_HOST, or `host` in --cloud-config, or OXIDE_PROFILE")
    elif problem := http_client.endpoint_problem(host):
        problems.append(f"host (OXIDE_HOST): {problem}")
    if not has_token:
        problems.append(
            "token: not set; set OXIDE_TOKEN or OXIDE_TOKEN_FILE, or `token` or `tokenFile` in --cloud-config, "
            "or OXIDE_PROFILE"
        )
    if not project:
        problems.append("project: not set; set OXIDE_PROJECT (name or id), or `project` in --cloud-config")
    known = ", ".join(LABELS)
    return [*problems, *(f"labels: {name!r} is none of {known}" for name in labels if name not in LABELS)]


def _with_scheme(host: str) -> str:
    return (host if "://" in host or not host else f"https://{host}").rstrip("/")


def _read(file: Path) -> _File:
    try:
        content: Any = yamls.load(file.read_text(encoding="utf-8"), strict=True)
    except OSError as err:
        raise errors.Invalid(f"--cloud-config {file} cannot be read: {err.strerror}") from err
    except (yaml.YAMLError, UnicodeDecodeError) as err:
        # The parser's message quotes the text, which may hold the token.
        mark = getattr(err, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise errors.Invalid(f"--cloud-config {file} is not YAML{where}") from None
    if content is None:
        return _File()
    if not isinstance(content, dict):
        raise errors.Invalid(f"--cloud-config {file} is not a mapping of settings")
    known = set(_File.__struct_encode_fields__)
    unknown = sorted(str(key) for key in content if key not in known)
    if unknown:
        log.warning("oxide.config.unknown_keys", file=str(file), keys=unknown)
    try:
        return msgspec.convert({key: value for key, value in content.items() if value is not None}, _File)
    except msgspec.ValidationError as err:
        raise errors.Invalid(f"--cloud-config {file}: {err}") from None


@dataclass(frozen=True, slots=True)
class _Profile:
    """A profile; `file` is the credentials file that holds its token (None: there is no such profile)."""

    name: str = ""
    host: str = ""
    file: Path | None = None


def _load_profile(environ: Mapping[str, str], name: str) -> _Profile:
    """The profile of that name, or the default one; an empty profile when none is named and there is no default."""
    home = environ.get("HOME", "")
    if not home:
        if name:
            raise errors.Invalid(f"profile {name!r}: HOME is not set, so there is no place to look for it")
        return _Profile()
    folder = Path(home) / ".config" / "oxide"
    is_default = not name
    if is_default:
        name = _text(_read_toml(folder / "config.toml"), "default-profile")
    if not name:
        return _Profile()
    file = folder / "credentials.toml"
    profile = _entry(_read_toml(file), name)
    if profile is None:
        raise errors.Invalid(f"profile {name!r} is not in {file}")
    host = _text(profile, "host")
    if not host or not _text(profile, "token"):
        raise errors.Invalid(f"profile {name!r} in {file} lacks host or token")
    return _Profile(name, host, file)


def _token_of(profile: str) -> Callable[[str], str]:
    """How the token of a profile is found in the text of a credentials file."""

    def read(text: str) -> str:
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            return ""
        return _text(_entry(content, profile) or {}, "token")

    return read


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as err:
        raise errors.Invalid(f"{file} cannot be read: {err.strerror}") from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise errors.Invalid(f"{file} is not TOML") from None


def _entry(content: Mapping[str, Any], profile: str) -> Mapping[str, Any] | None:
    profiles = content.get("profile")
    entry = profiles.get(profile) if isinstance(profiles, dict) else None
    return entry if isinstance(entry, dict) else None


def _text(content: Mapping[str, Any], key: str) -> str:
    value = content.get(key)
    return value if isinstance(value, str) else ""
