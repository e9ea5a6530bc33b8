"""Flags in the manifests of static pods.

In: a manifest as kubeadm writes it, the flags that should be in it, and those that were put there and should no longer
be. Out: the manifest. Everything else in it stays; a flag that is there already with another value gets ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from bedplate.api.desired import Flag
from bedplate.core import errors

__all__ = ["with_flags"]


def with_flags(manifest: str, flags: Iterable[Flag], cleared: Iterable[Flag] = ()) -> str:
    """The manifest with those flags and without the cleared ones. Raises `NotFound` for a container it has not, and
    `Invalid` when it is no pod; the manifest is then to be left as it is."""
    pod = _pod(manifest)
    for flag in cleared:
        _drop(_command(pod, flag), flag.key)
    for flag in flags:
        command = _command(pod, flag)
        place = _drop(command, flag.key)
        command.insert(len(command) if place is None else place, flag.argument)
    return yaml.safe_dump(pod, sort_keys=False, default_flow_style=False)


def _pod(manifest: str) -> dict[str, Any]:
    try:
        pod = yaml.safe_load(manifest)
    except yaml.YAMLError as wrong:
        raise errors.Invalid(f"the manifest cannot be read: {wrong}") from None
    if not isinstance(pod, dict) or not isinstance(pod.get("spec"), dict) or not pod["spec"].get("containers"):
        raise errors.Invalid("the manifest is no pod with containers")
    return pod


def _command(pod: dict[str, Any], flag: Flag) -> list[str]:
    for container in pod["spec"]["containers"]:
        if container.get("name") == flag.container:
            # Where arguments stand apart from the command, flags are among them.
            words: list[str] = container["args"] if container.get("args") else container.setdefault("command", [])
            return words
    raise errors.NotFound(
        f"{flag.manifest} has no container {flag.container!r}",
        hint="options of the kubelet role name the container; leave the name out for the one called as the manifest",
    )


def _drop(command: list[str], key: str) -> int | None:
    """Take a flag away; where it stood, None when it did not."""
    places = [place for place, word in enumerate(command) if word == f"--{key}" or word.startswith(f"--{key}=")]
    for place in reversed(places):
        del command[place]
    return places[0] if places else None
