"""A person's kubeconfig with our entries in it, or without them. Pure.

In: the text of the file as it is, or None; the cluster, the user and their credentials. Out: the new text, or None
where nothing is left of it. Entries of ours carry an extension that says so, with the user they are for; every other
entry stays as it is, and where one of them has the name that ours would have, ours gets a number behind it.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import yaml

from bedplate.core import errors, yamls

__all__ = ["Credentials", "Place", "credentials", "with_entries", "without_entries"]

EXTENSION = "bedplate.people"
_SECTIONS = (("clusters", "cluster"), ("users", "user"), ("contexts", "context"))


class Place(msgspec.Struct, frozen=True):
    """A cluster as a kubeconfig describes it: `name` is for people, `server` decides whether two are the same."""

    name: str
    server: str
    ca: bytes = b""
    server_name: str = ""
    is_verified: bool = True


class Credentials(msgspec.Struct, frozen=True):
    """A client certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


def with_entries(
    text: bytes | None, place: Place, user: str, namespace: str, given: Credentials, *, is_current: bool
) -> bytes:
    """The file with the user's entries for that cluster. `is_current`: it becomes the current context."""
    document = _parse(text)
    ours = _ours(document, place, user)
    cluster: dict[str, Any] = {"server": place.server, "extensions": _mark(place, user)}
    if place.ca:
        cluster["certificate-authority-data"] = base64.b64encode(place.ca).decode()
    if place.server_name:
        cluster["tls-server-name"] = place.server_name
    if not place.is_verified:
        cluster["insecure-skip-tls-verify"] = True
    person = {
        "client-certificate-data": base64.b64encode(given.certificate).decode(),
        "client-key-data": base64.b64encode(given.key).decode(),
        "extensions": _mark(place, user),
    }
    names = {
        "clusters": ours.get("clusters") or _free(document, "clusters", place.name),
        "users": ours.get("users") or _free(document, "users", f"{user}@{place.name}"),
        "contexts": ours.get("contexts") or _free(document, "contexts", f"{user}@{place.name}"),
    }
    context = {"cluster": names["clusters"], "user": names["users"], "extensions": _mark(place, user)}
    if namespace:
        context["namespace"] = namespace
    for (plural, singular), entry in zip(_SECTIONS, (cluster, person, context), strict=True):
        _put(document, plural, {"name": names[plural], singular: entry})
    if is_current or not document.get("current-context"):
        document["current-context"] = names["contexts"]
    return _text(document)


def without_entries(text: bytes | None, place: Place, user: str) -> bytes | None:
    """The file without the user's entries for that cluster; None where no entry of any kind is left."""
    if text is None:
        return None
    document = _parse(text)
    ours = _ours(document, place, user)
    if not ours:
        return text
    for plural, name in ours.items():
        document[plural] = [entry for entry in document[plural] if entry["name"] != name]
    if document.get("current-context") == ours.get("contexts"):
        document["current-context"] = ""
    if not any(document.get(plural) for plural, _ in _SECTIONS):
        return None
    return _text(document)


def credentials(text: bytes | None, place: Place, user: str) -> Credentials | None:
    """The certificate and key that the file has of us for this user of that cluster."""
    if text is None:
        return None
    document = _parse(text)
    name = _ours(document, place, user).get("users")
    for entry in document["users"]:
        if entry["name"] == name:
            parts = (entry["user"].get(f"client-{part}-data") or "" for part in ("certificate", "key"))
            certificate, key = (base64.b64decode(str(part)) for part in parts)
            return Credentials(certificate, key)
    return None


def _parse(text: bytes | None) -> dict[str, Any]:
    try:
        document = yamls.load(text or b"")
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as err:
        raise errors.Invalid(f"it is not a kubeconfig: {err}") from err
    if document is None:
        document = {}
    if not isinstance(document, dict) or document.get("kind", "Config") != "Config":
        raise errors.Invalid("it is not a kubeconfig: it must be a mapping of the kind Config")
    result: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", **document}
    for plural, singular in _SECTIONS:
        entries = document.get(plural) or []
        if not isinstance(entries, list) or not all(_is_entry(entry, singular) for entry in entries):
            raise errors.Invalid(f"it is not a kubeconfig: {plural} must be a list of entries with name and {singular}")
        result[plural] = [{**entry, singular: entry.get(singular) or {}} for entry in entries]
    return result


def _is_entry(entry: Any, singular: str) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get(singular) or {}, dict)
        and isinstance((entry.get(singular) or {}).get("extensions") or [], list)
    )


def _mark(place: Place, user: str) -> list[dict[str, Any]]:
    return [{"name": EXTENSION, "extension": {"server": place.server, "user": user}}]


def _ours(document: dict[str, Any], place: Place, user: str) -> dict[str, str]:
    """Section -> the name of the entry in it that we wrote for this user of that cluster."""
    (mark,) = _mark(place, user)
    names = {}
    for plural, singular in _SECTIONS:
        for entry in document[plural]:
            if mark in (entry[singular].get("extensions") or ()):
                names[plural] = entry["name"]
    return names


def _free(document: dict[str, Any], plural: str, name: str) -> str:
    taken = {entry["name"] for entry in document[plural]}
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def _put(document: dict[str, Any], plural: str, entry: dict[str, Any]) -> None:
    for index, present in enumerate(document[plural]):
        if present["name"] == entry["name"]:
            document[plural][index] = entry
            return
    document[plural].append(entry)


def _text(document: dict[str, Any]) -> bytes:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True).encode()
