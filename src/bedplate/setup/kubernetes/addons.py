"""The add-ons of a cluster, as applications that the head keeps applied.

In: answers and settings; the files with manifests and the charts that a site brings. Out: what is to be installed
(pure), the app group `system` and the label sets in the cluster's object, and the wait until the head has applied
everything. Manifests are read and charts rendered before a deployment changes anything. What is secret, the settings of
a cloud, is written to the cluster alone, never to the tree.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bedplate
from bedplate.api import headapi
from bedplate.core import errors
from bedplate.head.applications import defaults, manifests
from bedplate.head.entities import SCHEMA
from bedplate.lab import versions
from bedplate.setup.answers import fitting
from bedplate.setup.engine.stage import Context
from bedplate.setup.kubernetes import charts, clouds, netq, nodes
from bedplate.setup.kubernetes.settings import Settings
from bedplate.setup.operators import OWN

__all__ = [
    "IMAGES",
    "Addons",
    "check",
    "create",
    "network",
    "of_answers",
    "read",
    "summary",
    "texts",
    "until_applied",
    "withdraw",
]

IMAGES = {
    "ingress_controller": f"docker.io/library/traefik:{versions.TRAEFIK}",
    "landing_page": "docker.io/library/nginx:stable",
    "local_path": f"docker.io/rancher/local-path-provisioner:{versions.LOCAL_PATH}",
    "metrics_server": f"registry.k8s.io/metrics-server/metrics-server:{versions.METRICS_SERVER}",
}
"""The images of applications whose manifests come with this package."""
HELPER_IMAGE = "docker.io/library/busybox:latest"
OWN_IMAGE = f"registry.example/bedplate:{bedplate.__version__}"
_METRICS_REPLICAS = 2
_REST_BYTES = 64 << 10
"""Room for what the object of a cluster has besides its applications."""
_APPLIED_S, _POLL_S = 180.0, 0.5
_CHILDREN = ("app_groups", "label_sets")


@dataclass(frozen=True, slots=True)
class Addons:
    """What the answers ask for. `own` are applications whose text is part of this package, `files` those with manifests
    of the site, by application."""

    own: tuple[str, ...]
    files: Mapping[str, str]
    environments: Mapping[str, Mapping[str, str]]
    ingress: defaults.Ingress
    has_ingress: bool
    has_landing_page: bool
    is_on_443: bool
    cloud: str
    cloud_config: str
    charts: tuple[charts.Release, ...]
    """Applications that helm makes of a chart of the site."""
    kubernetes: str
    """The release of Kubernetes that charts are for."""
    netq: tuple[str, ...]
    """The nodes that get the label for NetQ."""

    @property
    def has_dashboard(self) -> bool:
        return "dashboard" in self.files


def of_answers(answers: Mapping[str, Any], settings: Settings, head_address: str = "") -> Addons:
    """What answers mean. Pure."""
    kubernetes = answers["kubernetes"]
    chosen, ingress = kubernetes["addons"], kubernetes["ingress"]
    given = {
        "dashboard": chosen["dashboard"],
        "kubestatemetrics": chosen["kube_state_metrics"],
        **{name: chosen[f"{name}_manifest"] for name in ("ingress_controller", "metrics_server") if chosen[name]},
        **({settings.cni: settings.cni_manifest} if settings.cni != "bridge" else {}),
        **({"ipam_pools": chosen["ipam"]["pools"]} if chosen["ipam"]["install"] else {}),
        **{fitting.application_name(path): path for path in chosen["manifests"]},
    }
    files = {name: path for name, path in given.items() if path}
    cloud = chosen["ccm"]["provider"] if chosen["ccm"]["provider"] != "none" else ""
    candidates = {
        "ingress_controller": chosen["ingress_controller"],
        "metrics_server": chosen["metrics_server"],
        "local_path": bool(kubernetes["local_path"]["path"]),
        "ceph": bool(chosen["ceph"]["fsid"]),
        "ipam": chosen["ipam"]["install"],
        f"ccm_{cloud.replace('-', '_')}": bool(cloud),
        "permissions_manager": kubernetes["permissions_manager"],
        "nvidia_runtime": kubernetes["nvidia_runtime"],
        "cm_jupyter_kernel_operator": OWN in kubernetes["operators"],
    }
    releases = charts.of_answers(answers)
    rendered = {release.application for release in releases}
    return Addons(
        own=tuple(name for name, is_on in candidates.items() if is_on and name not in files and name not in rendered),
        files=files,
        environments=_environments(answers, settings, head_address),
        ingress=defaults.Ingress(
            settings.fqdn, ingress["http_port"], ingress["https_port"], ingress["replicas"], head_address
        ),
        has_ingress=chosen["ingress_controller"],
        has_landing_page=chosen["ingress_controller"] and chosen["landing_page"],
        is_on_443=chosen["ingress_controller"] and ingress["proxy_443"],
        cloud=cloud,
        cloud_config=chosen["ccm"]["cloud_config"] if cloud else "",
        charts=releases,
        kubernetes=settings.version,
        netq=netq.chosen(answers, settings),
    )


def _environments(answers: Mapping[str, Any], settings: Settings, head_address: str) -> dict[str, dict[str, str]]:
    kubernetes = answers["kubernetes"]
    repository = settings.repository
    images = {
        name: f"{repository}/{image.rpartition('/')[2]}" if repository and name == "metrics_server" else image
        for name, image in IMAGES.items()
    }
    own = {"image": kubernetes["images"]["bedplate"] or OWN_IMAGE}
    replicas = min(_METRICS_REPLICAS, len(settings.kubernetes_nodes))
    return {
        "ceph": {
            "fsid": kubernetes["addons"]["ceph"]["fsid"],
            "monitors": json.dumps(kubernetes["addons"]["ceph"]["monitors"]),
            "pool": kubernetes["addons"]["ceph"]["pool"],
        },
        "calico": defaults.calico_environment(len(settings.kubernetes_nodes), str(settings.pods), head_address),
        "ingress_controller": {"image": images["ingress_controller"]},
        "landing_page": {"image": images["landing_page"]},
        "local_path": {
            "helper_image": HELPER_IMAGE,
            "image": images["local_path"],
            "path": kubernetes["local_path"]["path"],
        },
        "metrics_server": {
            "image": images["metrics_server"],
            "kubelet_tls": "--kubelet-insecure-tls",
            "replicas": str(replicas),
        },
        "ipam": own,
        "permissions_manager": own,
        "cm_jupyter_kernel_operator": own,
        **{f"ccm_{name}": {**own, "cluster": settings.name} for name in ("nvidia_bmm", "oxide", "cloudlycke")},
    }


# Manifests


def texts(addons: Addons) -> dict[str, str]:
    """The manifests of all applications that are on, by name, without those of charts. Raises `Invalid` for a file that
    cannot be read, or is not manifests."""
    own = {name: defaults.manifest(name) for name in addons.own}
    problems = []
    for name, path in addons.files.items():
        try:
            own[name] = _given(Path(path), addons.environments.get(name, {}))
        except errors.Invalid as err:
            problems += [f"{path}: {problem}" for problem in (err.problems or [err.message])]
    if problems:
        raise errors.Invalid("manifests of add-ons cannot be used", problems=problems, hint="correct the files")
    return own


def read(addons: Addons) -> charts.Rendered:
    """The same with what helm makes of charts. Raises `Invalid` also for a chart that helm refuses, and for more than
    the head can have of one cluster."""
    own = texts(addons)
    rendered = charts.render(addons.charts, addons.kubernetes)
    whole = rendered._replace(texts=own | rendered.texts)
    size = len(json.dumps(groups(addons, whole.texts)))
    if size > SCHEMA.largest_bytes - _REST_BYTES:
        largest = sorted(whole.texts, key=lambda name: -len(whole.texts[name]))[:3]
        raise errors.Invalid(
            f"the applications have {size >> 10} KiB, and the head keeps {(SCHEMA.largest_bytes - _REST_BYTES) >> 10} "
            "KiB of one cluster",
            hint=f"leave some out, or install them with helm later; the largest are {', '.join(largest)}",
        )
    return whole


def _given(file: Path, variables: Mapping[str, str]) -> str:
    """The text of a site's file. Two dollars are meant in it as they are."""
    try:
        text = file.read_text().replace("$$", "$$$$")
    except (OSError, UnicodeDecodeError) as err:
        why = err.strerror if isinstance(err, OSError) else "it is not text"
        raise errors.Invalid(f"cannot be read: {why}") from err
    if not manifests.render(text, variables).objects:
        raise errors.Invalid("has no objects")
    return text


def network(addons: Addons, settings: Settings) -> list[dict[str, Any]]:
    """The objects of a network plugin that comes as manifests, which nodes need to become Ready."""
    text = _given(Path(settings.cni_manifest), addons.environments.get(settings.cni, {}))
    rendered = manifests.render(text, addons.environments.get(settings.cni, {}))
    return [dict(each.body) for each in rendered.objects]


def groups(addons: Addons, read: Mapping[str, str]) -> dict[str, Any]:
    """The app group `system` of a new cluster. Pure."""
    return defaults.app_groups(
        addons.ingress, read, landing_page=addons.has_landing_page, environments=addons.environments
    )


# Stages


async def check(context: Context, settings: Settings) -> None:
    """Read everything that the add-ons need, before anything is changed."""
    addons = of_answers(context.answers, settings)
    rendered = await asyncio.to_thread(read, addons)
    for line in rendered.warnings:
        context.say(line)
    if addons.cloud:
        clouds.config(addons.cloud, addons.cloud_config)
    context.say(f"Applications: {', '.join(sorted(rendered.texts)) or 'none'}")


async def create(context: Context, settings: Settings) -> None:
    """Put the app group and the label sets into the cluster's object; what is there of other groups stays."""
    head = nodes.head_of(context)
    device = await head.get("device", settings.head)
    addons = of_answers(context.answers, settings, str(device.values.get("ip", "")))
    rendered = await asyncio.to_thread(read, addons)
    obj = await head.get("kubernetes", settings.name)
    children = dict(obj.children)
    children["app_groups"] = {**children.get("app_groups", {}), **groups(addons, rendered.texts)}
    sets = defaults.label_sets(settings.members.masters, netq=addons.netq)
    children["label_sets"] = {**children.get("label_sets", {}), **sets}
    extras = {**obj.extras, **_extras(addons)}
    message = f"applications and label sets of the Kubernetes cluster {settings.name}"
    await _write(context, obj, children, extras, message)
    context.say(f"Label sets: {', '.join(sets)}")


def _extras(addons: Addons) -> dict[str, str]:
    extras = {"cloud_provider": "external"} if addons.cloud else {}
    if addons.is_on_443:
        extras |= {
            "ingress_proxy_backend_port": str(addons.ingress.https_port),
            "ingress_proxy_enable": "true",
            "ingress_proxy_listen_port": "443",
        }
    return extras


async def withdraw(context: Context, settings: Settings) -> None:
    """Take the app group and the label sets out of the cluster's object."""
    obj = await nodes.find(nodes.head_of(context), "kubernetes", settings.name)
    if obj is None:
        return
    children = {name: dict(below) for name, below in obj.children.items()}
    sets = defaults.label_sets((), netq=netq.chosen(context.answers, settings))
    for submode, names in (("app_groups", (defaults.SYSTEM,)), ("label_sets", tuple(sets))):
        children[submode] = {key: child for key, child in children.get(submode, {}).items() if key not in names}
    children = {name: below for name, below in children.items() if below or name not in _CHILDREN}
    extras = {
        name: text
        for name, text in obj.extras.items()
        if name != "cloud_provider" and not name.startswith("ingress_proxy_")
    }
    await _write(context, obj, children, extras, f"no applications of the Kubernetes cluster {settings.name}")


async def _write(
    context: Context, obj: headapi.Object, children: Mapping[str, Any], extras: Mapping[str, str], message: str
) -> None:
    if children == obj.children and extras == obj.extras:
        return
    whole = {"type": obj.type, "values": obj.values, "extras": dict(extras), "children": dict(children)}
    edit = headapi.Edit(mode="kubernetes", key=obj.key, base=obj.revision, object=whole)
    await nodes.commit(context, [edit], message)


async def until_applied(context: Context, cluster: str) -> None:
    """Wait until the head has applied every application of a cluster that is on. Raises `Unavailable` with those that
    are not, and why."""
    if context.services.data is None:
        context.say(f"The head applies them once it has kubernetes/{cluster}.kubeconfig in its data folder")
        return
    head = nodes.head_of(context)
    end_s = context.clock.monotonic() + _APPLIED_S
    while True:
        state = await head.cluster(cluster)
        late = [each for each in state.applications if each.state in ("pending", "failed")]
        if state.reached and not late:
            break
        if context.clock.monotonic() > end_s:
            told = "; ".join(_told(each) for each in late) or state.trouble or "the head does not reach it"
            raise errors.Unavailable(
                f"applications of the cluster {cluster} are not applied: {told}",
                hint="see cmsh: kubernetes appstatus; correct the manifests, then resume",
            )
        await context.clock.sleep(_POLL_S)
    for each in state.applications:
        if each.state == "applied":
            context.say(f"{each.group}/{each.name}: {each.objects} objects")
            for warning in each.warnings:
                context.say(f"Warning: {each.group}/{each.name}: {warning}")


def _told(state: headapi.ApplicationState) -> str:
    first = f": {state.failures[0].object}: {state.failures[0].reason}" if state.failures else ""
    return f"{state.group}/{state.name} is {state.state}{first}"


def summary(addons: Addons, settings: Settings) -> list[str]:
    """URLs of add-ons for people. Pure."""
    lines = []
    if addons.has_dashboard:
        lines.append(f"- Kubernetes dashboard: https://dashboard.{settings.fqdn}:{addons.ingress.https_port}/")
    if addons.has_ingress:
        lines.append(f"- Ingress: https://{settings.fqdn}:{addons.ingress.https_port}/")
    return lines
