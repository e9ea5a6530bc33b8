"""The care for running clusters: the ingress certificate, certificates, snapshots of etcd and their restore.

In: the flags. Out: what is printed, and an exit code. What runs stages (the ingress, a restore) is run by the engine
like a deployment, with a journal; the rest is asked of the head and of nodes at once.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bedplate.api.headapi import Care
from bedplate.core import errors
from bedplate.core.clock import Clock, SystemClock
from bedplate.head import care as cared
from bedplate.head.clusters.snapshots import Snapshot, Snapshots, check, name_at, origin
from bedplate.head.entities.kubernetes import KubeCluster
from bedplate.head.ingress import certificates
from bedplate.setup.engine.events import Line
from bedplate.setup.engine.stage import Stage
from bedplate.setup.kubernetes import cluster as clusters
from bedplate.setup.kubernetes import ingress, restore
from bedplate.setup.kubernetes.caring import care, in_words
from bedplate.setup.targets import check_target
from bedplate.setup.tool import heads, questions

__all__ = ["ACTIONS", "RUNS", "perform", "stages_of"]

RUNS = ("configure-ingress", "etcd-restore")
ACTIONS = (*RUNS, "etcd-snapshot", "etcd-snapshots", "certificates", "renew-certificates")


def stages_of(operation: str, answers: dict[str, Any]) -> list[Stage]:
    """The stages of a run that a journal knows."""
    return restore.stages(answers) if operation == "etcd-restore" else ingress.stages(answers)


async def perform(action: str, values: Mapping[str, Any]) -> int:
    """Carry out an action; its exit code."""
    if action == "etcd-restore" and not values["yes_i_really_mean_it"]:
        raise errors.Invalid(
            "a restore takes away everything that was written since the snapshot; nothing was changed",
            hint="give --yes-i-really-mean-it as well",
        )
    clock = SystemClock()
    if action == "configure-ingress" and _is_asked(values):
        async with heads.reach(values) as reached:
            values = questions.answered(values, reached.backend.tree)
    if action in RUNS:
        from bedplate.setup.tool.operations import Operation

        return await Operation(values, clock).perform(action)
    async with heads.reach(values) as reached:
        cluster = cluster_of(values, reached)
        match action:
            case "etcd-snapshot":
                return await _snapshot(values, reached, cluster, clock)
            case "etcd-snapshots":
                return _list(values, _folder(reached), cluster)
            case "certificates":
                return await _certificates(values, reached, cluster, clock)
            case _:
                return await _renew(reached, cluster, clock)


def _is_asked(values: Mapping[str, Any]) -> bool:
    """Whether somebody can be asked what the flags leave open."""
    is_open = not (values["certificate"] or values["certificate_key"] or values["trusted_domains"])
    return is_open and not values["json"] and sys.stdin.isatty() and sys.stdout.isatty()


def cluster_of(values: Mapping[str, Any], reached: heads.Reached) -> str:
    """The cluster that is meant. Raises `Invalid`."""
    return heads.sole(values["cluster"], sorted(reached.backend.tree.mode("kubernetes")), "take care of")


def _folder(reached: heads.Reached) -> Snapshots:
    if reached.data is None:
        raise errors.NotFound(
            "snapshots are on the head node", hint="run this there, or name its data folder with --data"
        )
    return Snapshots(reached.data)


# Runs


def answers_of(action: str, values: Mapping[str, Any], reached: heads.Reached, clock: Clock) -> dict[str, Any]:
    """What a run is about, checked before anything is changed. Raises `Invalid`, `NotFound`."""
    cluster = cluster_of(values, reached)
    if action == "etcd-restore":
        snapshot, is_foreign = _chosen(values, reached, cluster, clock)
        # A journal of an earlier release has no such answer: what it restores is the cluster's own.
        return {"cluster": cluster, "snapshot": snapshot, **({restore.FOREIGN: True} if is_foreign else {})}
    obj = reached.backend.tree.get(("kubernetes", cluster))
    known = KubeCluster.trusted_domains.value(obj)
    assert isinstance(known, tuple)
    given = [word.strip() for word in (values["trusted_domains"] or "").split(",") if word.strip()]
    answers = {
        "cluster": cluster,
        "folder": str(values["pki"] or ingress.PKI),
        "certificate": str(values["certificate"] or ""),
        "key": str(values["certificate_key"] or ""),
        "domains": given or [str(name) for name in known],
    }
    if bool(answers["certificate"]) != bool(answers["key"]):
        raise errors.Invalid("--certificate and --certificate-key belong together", hint="give both, or neither")
    if answers["certificate"] and values["trusted_domains"]:
        raise errors.Invalid("--trusted-domains is for a certificate that is made here", hint="leave it out")
    return answers


def warnings_of(answers: Mapping[str, Any], clock: Clock) -> list[str]:
    """What an administrator should know of a pair of the site's own. Raises `Invalid` for one that cannot be used."""
    if not answers.get("certificate"):
        return []
    return certificates.checked(ingress.pair_of(answers), answers["domains"], clock.now())


def _chosen(values: Mapping[str, Any], reached: heads.Reached, cluster: str, clock: Clock) -> tuple[str, bool]:
    """The name of the snapshot that is meant, and whether it has another authority: one of the head's, or a file, which
    is copied there unless the head has the same already. Raises `NotFound`, and `Invalid` for one that is damaged, or
    has another authority without the flag that accepts it."""
    given, snapshots = str(values["etcd_restore"]), _folder(reached)
    known = {each.name: each for each in snapshots.list(cluster)}
    file = snapshots.place(cluster, given) if given in known else pathlib.Path(given)
    if not file.is_file():
        raise errors.NotFound(
            f"there is neither a file {given} nor a snapshot of that name", hint="see --etcd-snapshots"
        )
    about = check(file)
    assert reached.data is not None
    is_accepted = bool(values["accept_other_authority"])
    is_foreign = _has_other_authority(file, cluster, clusters.authority_of(reached.data, cluster), is_accepted)
    if given in known:
        return given, is_foreign
    same = next((each.name for each in known.values() if each.sha256 == about.sha256), "")
    # A plan changes nothing.
    return same or (given if values["plan"] else snapshots.adopt(cluster, file, clock.now()).name), is_foreign


def _has_other_authority(file: pathlib.Path, cluster: str, authority: bytes, is_accepted: bool) -> bool:
    match origin(file, authority):
        case "other" if is_accepted:
            return True
        case "other":
            raise errors.Invalid(
                f"{file} is a snapshot of another cluster, without the authority of {cluster}; nothing was changed",
                hint="name the cluster that it is of with --cluster; if it is of this one, from before its authority "
                "was replaced or it was made again, give --accept-other-authority",
            )
        case "not Kubernetes":
            raise errors.Invalid(
                f"{file} has no objects of Kubernetes in it; nothing was changed", hint="use another snapshot"
            )
    return False


# Asked at once


async def _snapshot(values: Mapping[str, Any], reached: heads.Reached, cluster: str, clock: Clock) -> int:
    target = pathlib.Path(values["etcd_snapshot"]) if values["etcd_snapshot"] else None
    if target is not None:
        check_target(target, "no snapshot was taken")
    snapshots, head = _folder(reached), reached.backend.fleet
    names = cared.members(reached.backend.tree, cluster)
    up = [state.node for state in await head.nodes(names) if state.state == "UP"]
    if not up:
        raise errors.Unavailable(
            f"no agent of a member of etcd reports: {', '.join(names) or 'there is none'}", hint="cmsh: device status"
        )
    name = name_at(clock.now())
    await care(head, clock, [sorted(up)[0]], Care(action="snapshot", cluster=cluster, snapshot=name))
    about = snapshots.get(cluster, name)
    check(snapshots.place(cluster, name))
    if target is not None:
        try:
            snapshots.copy(cluster, name, target)
        except errors.Unavailable as err:
            raise errors.Unavailable(
                f"{err}; the head has the snapshot {name}",
                hint=f"copy {snapshots.place(cluster, name)} elsewhere, or retry with another file",
            ) from err
    _print(values, [about], f"{target or snapshots.place(cluster, name)}: {_described(about)}")
    return 0


def _described(about: Snapshot) -> str:
    told = f", revision {about.revision}, {about.keys} keys, hash {about.hash:08x}" if about.hash else ""
    return f"{about.size} bytes{told}, taken {about.taken}{f' on {about.member}' if about.member else ''}"


def _list(values: Mapping[str, Any], snapshots: Snapshots, cluster: str) -> int:
    listed = snapshots.list(cluster)
    text = "\n".join(f"{each.name}  {_described(each)}" for each in listed)
    _print(values, listed, text or f"there is no snapshot of the cluster {cluster}")
    return 0


def _print(values: Mapping[str, Any], listed: Sequence[Snapshot], text: str) -> None:
    if values["json"]:
        text = "\n".join(msgspec.json.encode(each).decode() for each in listed)
    sys.stdout.write(f"{text}\n" if text else "")


async def _certificates(values: Mapping[str, Any], reached: heads.Reached, cluster: str, clock: Clock) -> int:
    tree = reached.backend.tree
    names = sorted({*cared.planes(tree, cluster), *cared.members(tree, cluster)})
    request = Care(action="inspect", cluster=cluster)
    states = await care(reached.backend.fleet, clock, names, request, is_strict=False)
    rows = sorted(
        (line.split(" ", 2)[2], item.node, line.split(" ", 2)[1])
        for item in states
        for line in item.lines
        if line.startswith("certificate ") and line.count(" ") >= 2
    )
    for ends, node, path in rows:
        row = {"node": node, "path": path, "ends": ends}
        sys.stdout.write(f"{json.dumps(row)}\n" if values["json"] else f"{ends}  {node}  {path}\n")
    bad = [item for item in states if item.state != "done"]
    if bad:
        raise errors.Terminal(f"some nodes did not tell: {in_words(bad)}", hint="cmsh: device status")
    return 0


async def _renew(reached: heads.Reached, cluster: str, clock: Clock) -> int:
    """One control plane node after the other, so that a controller manager and a scheduler are always there."""
    for node in cared.planes(reached.backend.tree, cluster):
        request = Care(action="renew", cluster=cluster)
        for item in await care(reached.backend.fleet, clock, [node], request):
            sys.stdout.write(f"{item.node}: {item.text}\n")
            sys.stdout.flush()
    return 0


def say_warnings(answers: Mapping[str, Any], reporter: Any, clock: Clock) -> None:
    """Tell what is wrong with a pair of the site's own, although it can be used."""
    for text in warnings_of(answers, clock):
        reporter.emit(Line(f"Warning: {text}", "warning"))
