"""One way to ask any object, model or raw dictionary, who it is.

In: an object of a cache or a watch. Out: its key, name, labels and so on. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "key_of",
    "name_of",
    "namespace_of",
    "resource_version_of",
    "split_key",
    "uid_of",
]


def _field(obj: Any, attribute: str, key: str) -> Any:
    if isinstance(obj, Mapping):
        return (obj.get("metadata") or {}).get(key)
    return getattr(obj.metadata, attribute)


def name_of(obj: Any) -> str:
    return _field(obj, "name", "name") or ""


def namespace_of(obj: Any) -> str:
    return _field(obj, "namespace", "namespace") or ""


def uid_of(obj: Any) -> str:
    return _field(obj, "uid", "uid") or ""


def resource_version_of(obj: Any) -> str:
    return _field(obj, "resource_version", "resourceVersion") or ""


def key_of(obj: Any) -> str:
    """`namespace/name`, or `name` for an object without namespace: the key that queues and caches use."""
    namespace, name = namespace_of(obj), name_of(obj)
    return f"{namespace}/{name}" if namespace else name


def split_key(key: str) -> tuple[str, str]:
    """(namespace, name) of such a key; the namespace is empty for a cluster-scoped object."""
    namespace, slash, name = key.rpartition("/")
    return (namespace, name) if slash else ("", key)
