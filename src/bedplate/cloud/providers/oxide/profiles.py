"""Profiles of the Oxide CLI: `credentials.toml` (host and token by profile) and `config.toml` (which is the default).

In: the environment (for the home folder) and a profile's name. Out: where that profile points. The token is not kept
here: `token_of` finds it in the file's text when it is needed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.core import errors

__all__ = ["Profile", "load", "token_of"]


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile; `file` is the credentials file that holds its token (None: there is no such profile)."""

    name: str = ""
    host: str = ""
    file: Path | None = None


def load(environ: Mapping[str, str], name: str) -> Profile:
    """The profile of that name, or the default one; an empty profile when none is named and there is no default."""
    home = environ.get("HOME", "")
    if not home:
        if name:
            raise errors.Invalid(f"profile {name!r}: HOME is not set, so there is no place to look for it")
        return Profile()
    folder = Path(home) / ".config" / "oxide"
    is_default = not name
    if is_default:
        name = _text(_read(folder / "config.toml"), "default-profile")
    if not name:
        return Profile()
    file = folder / "credentials.toml"
    profile = _entry(_read(file), name)
    if profile is None:
        raise errors.Invalid(f"profile {name!r} is not in {file}")
    host = _text(profile, "host")
    if not host or not _text(profile, "token"):
        raise errors.Invalid(f"profile {name!r} in {file} lacks host or token")
    return Profile(name, host, file)


def token_of(profile: str) -> Callable[[str], str]:
    """How the token of a profile is found in the text of a credentials file."""

    def read(text: str) -> str:
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            return ""
        return _text(_entry(content, profile) or {}, "token")

    return read


def _read(file: Path) -> dict[str, Any]:
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
