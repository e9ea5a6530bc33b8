"""--pull: container images on the nodes of a cluster before pods need them.

In: the flags. Out: an errand to the agents of exactly the nodes that are meant, and a table of what became of it; 1
when an image is missing somewhere. Passwords go to the head and to the agents, and are written down nowhere.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from bedplate.api import headapi
from bedplate.api.references import DOCKER_HUB
from bedplate.api.resources import NODES
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.head import resolve
from bedplate.head.schema import ranges
from bedplate.head.tree import Tree
from bedplate.setup.tool import heads

__all__ = ["Requirement", "members", "parse_selector", "perform", "selected"]

_TAKEN_S, _PULL_S, _POLL_S = 60.0, 3600.0, 0.5
_OVER = ("done", "failed", "expired")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")
_EMAIL = re.compile(r"[^@\s]{1,64}@[A-Za-z0-9.-]{1,253}")
_TERM = re.compile(r"([A-Za-z0-9][A-Za-z0-9._/-]*)\s*(==|!=|=)\s*([A-Za-z0-9._-]*)")


class Requirement(NamedTuple):
    """A label that a node must have with a value, or must not."""

    label: str
    value: str
    is_equal: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        return (labels.get(self.label) == self.value) == self.is_equal


def parse_selector(text: str) -> tuple[Requirement, ...]:
    """The requirements of a label query. Raises `Invalid`."""
    requirements = []
    for part in text.split(","):
        match = _TERM.fullmatch(part.strip())
        if match is None:
            raise errors.Invalid(
                f"--node-selector: {part.strip()!r} is not a requirement", hint="write a=b, a==b or a!=b, with commas"
            )
        requirements.append(Requirement(match[1], match[3], match[2] != "!="))
    return tuple(requirements)


def members(tree: Tree, cluster: str) -> list[str]:
    """The nodes that are part of a cluster, by their roles. Pure."""
    names = []
    for name, device in tree.mode("device").items():
        given = resolve.roles_of(tree, device).get("kubelet")
        if given is not None and given.role.values.get("kubernetes_cluster") == cluster:
            names.append(name)
    return sorted(names, key=ranges.natural)


def selected(
    those: Sequence[str],
    named: str | None,
    requirements: Iterable[Requirement],
    labels: Mapping[str, Mapping[str, str]],
) -> list[str]:
    """The nodes that are meant, of those of a cluster. Raises `Invalid`, `NotFound`. Pure."""
    chosen = list(those)
    if named is not None:
        chosen = []
        for part in re.split(r",(?![^\[]*\])", named):
            try:
                chosen += [name for name in ranges.expand(part.strip()) if name not in chosen]
            except ValueError as err:
                raise errors.Invalid(f"--nodes: {err}") from err
        unknown = [name for name in chosen if name not in those]
        if unknown:
            raise errors.NotFound(
                f"not a node of the cluster: {', '.join(repr(name) for name in unknown)}", hint="nothing was pulled"
            )
    every = list(requirements)
    kept = [name for name in chosen if all(each.holds(labels.get(name, {})) for each in every)]
    if not kept:
        raise errors.NotFound("no node of the cluster is meant", hint="see kubectl get nodes --show-labels")
    return kept


async def perform(values: Mapping[str, Any], clock: Clock | None = None) -> int:
    """Pull images; 0 when every node has all of them."""
    clock = clock or SystemClock()
    images = _images(values)
    requirements = parse_selector(values["node_selector"]) if values["node_selector"] is not None else ()
    _check_email(values)
    logins = _logins(values, sys.stdin.readline)
    async with heads.reach(values) as reached:
        await heads.check_standing(reached.backend, is_allowed=False)
        cluster = heads.cluster_of(values, reached.backend)
        labels = await _labels(reached, cluster) if requirements else {}
        nodes = selected(members(reached.backend.tree, cluster), values["nodes"], requirements, labels)
        head: Any = reached.backend.fleet
        pull = headapi.Pull(images=images, logins=logins)
        asked = {item.id for item in await head.ask_errand(nodes, "pullimages", lasts_s=_TAKEN_S, pull=pull)}
        end_s = clock.monotonic() + _PULL_S
        while True:
            states = [item for item in await head.errands(nodes) if item.id in asked]
            if all(item.state in _OVER for item in states) or clock.monotonic() > end_s:
                break
            await clock.sleep(_POLL_S)
    rows = sorted(_rows(states, images), key=lambda row: (ranges.natural(row[0]), images.index(row[1])))
    _print(rows, as_json=values["json"])
    return 0 if all(row[2] == "pulled" for row in rows) else 1


def _images(values: Mapping[str, Any]) -> list[str]:
    images = list(dict.fromkeys(word.strip() for word in (values["images"] or "").split(",") if word.strip()))
    if not images:
        raise errors.Invalid("--pull needs the names of images", hint="give --images nginx,busybox")
    wrong = [image for image in images if _IMAGE.fullmatch(image) is None]
    if wrong:
        raise errors.Invalid(f"--images: {wrong[0]!r} is not the name of an image")
    return images


def _check_email(values: Mapping[str, Any]) -> None:
    """The mail address belongs to a login. Registries do not ask for it. Raises `Invalid`."""
    email = values["pull_registry_email"]
    if not email:
        return
    if _EMAIL.fullmatch(email) is None:
        raise errors.Invalid(f"--pull-registry-email: {email!r} is not a mail address", hint="as alice@example.com")
    if not (values["pull_registry_server"] and values["pull_registry_username"]):
        raise errors.Invalid(
            "--pull-registry-email belongs to a login", hint="give --pull-registry-server and --pull-registry-username"
        )
    sys.stderr.write("--pull-registry-email is not sent: containerd logs in with user and password alone\n")


def _logins(values: Mapping[str, Any], ask: Callable[[], str]) -> list[headapi.RegistryLogin]:
    """The logins that the flags have; a password `-` is read. Raises `Invalid` for half a login."""
    logins = []
    hub = ("docker_io", DOCKER_HUB, values["docker_io_username"], values["docker_io_password"])
    server = values["pull_registry_server"]
    own = ("pull_registry", server, values["pull_registry_username"], values["pull_registry_password"])
    for name, place, user, password in (hub, own):
        parts = (user, password) if name == "docker_io" else (place, user, password)
        if not any(parts):
            continue
        if not all(parts):
            flags = ", ".join(f"--{name.replace('_', '-')}-{each}" for each in ("server", "username", "password"))
            raise errors.Invalid(f"a login has all of its parts: {flags.replace('--docker-io-server, ', '')}")
        secret = ask().rstrip("\r\n") if password == "-" else password
        host = re.sub(r"^https?://", "", place).rstrip("/")
        try:
            login = msgspec.convert(
                {"server": host, "username": user, "password": secret}, headapi.RegistryLogin, strict=True
            )
        except msgspec.ValidationError as err:
            raise errors.Invalid(f"the login for {host} is not one: {str(err).split(' - ')[-1]}") from None
        logins.append(login)
    return logins


async def _labels(reached: heads.Reached, cluster: str) -> dict[str, Mapping[str, str]]:
    """The labels of the nodes, as the cluster has them."""
    from bedplate.kube import Client, config
    from bedplate.setup.kubernetes.kubeconfig import path_of

    file = await path_of(reached.backend, cluster, reached.data)
    async with Client(config.load(file, environ={})) as client:
        return {node.metadata.name: node.metadata.labels for node in (await client.list(NODES)).items}


def _rows(states: Iterable[headapi.ErrandState], images: Sequence[str]) -> Iterable[tuple[str, str, str]]:
    """Node, image and what became of it."""
    for item in states:
        told = {image: line.partition(": ")[2] for line in item.lines if (image := line.partition(": ")[0]) in images}
        other = {"expired": "the agent did not respond", "waiting": "the agent has not begun"}.get(
            item.state, item.text
        )
        for image in images:
            yield item.node, image, told.get(image) or other or item.state


def _print(rows: Sequence[tuple[str, str, str]], *, as_json: bool) -> None:
    if as_json:
        for node, image, result in rows:
            line = msgspec.json.encode({"node": node, "image": image, "result": result}).decode()
            sys.stdout.write(f"{line}\n")
        return
    table = [("NODE", "IMAGE", "RESULT"), *rows]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    for node, image, result in table:
        sys.stdout.write(f"{node:<{widths[0]}}  {image:<{widths[1]}}  {result}\n")
    sys.stdout.flush()
