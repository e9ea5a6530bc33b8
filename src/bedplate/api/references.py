"""Names of container images. Pure.

In: a name as people write it. Out: the name as container runtimes complete it, and the registry that is asked for it.
"""

from __future__ import annotations

__all__ = ["DOCKER_HUB", "full_name", "registry_of"]

DOCKER_HUB = "docker.io"


def full_name(name: str) -> str:
    """The name as container runtimes complete it: `busybox` is `docker.io/library/busybox:latest`."""
    first, _, rest = name.partition("/")
    if not rest:
        name = f"{DOCKER_HUB}/library/{name}"
    elif not ({".", ":"} & set(first)) and first != "localhost":
        name = f"{DOCKER_HUB}/{name}"
    return name if {":", "@"} & set(name.rsplit("/", 1)[-1]) else f"{name}:latest"


def registry_of(name: str) -> str:
    """The registry of an image, by its name: a host, maybe with a port."""
    return full_name(name).partition("/")[0]
