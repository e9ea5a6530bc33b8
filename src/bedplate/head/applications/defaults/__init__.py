"""What a new cluster has of applications and label sets: the group `system`, and three label sets. Pure, but for
reading the manifests that are part of this package.

In: the external name and ports of the cluster, and manifests, those of this package or those that a site brings itself,
with their variables. Out: objects as the head's interface has them, for whoever makes the cluster's object; the same
for a cluster that is there already, with what the site has set kept (`updated`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

__all__ = [
    "INGRESS_LABEL",
    "MARK",
    "SYSTEM",
    "Ingress",
    "Updated",
    "app_groups",
    "calico_environment",
    "label_sets",
    "manifest",
    "shipped",
    "typha_replicas",
    "updated",
]

Object = dict[str, Any]
SYSTEM = "system"
MARK = "# Part of the release: cm-kubernetes-setup --update-addons brings a newer text of it.\n"
"""How the text of an application begins that is part of this package. A text without it is the site's own."""
INGRESS_LABEL = "brightcomputing.com/ingress-controller"
_OFF = ("calico", "dashboard", "flannel", "ingress_controller", "kubestatemetrics", "metrics_server")
"""Applications that are there, and off until their text is set."""
_TYPHA_ABOVE, _TYPHA_EACH, _TYPHA_FEWEST, _TYPHA_MOST = 50, 150, 3, 20


class Ingress(NamedTuple):
    """How a cluster is reached from outside."""

    fqdn: str
    http_port: int = 30080
    https_port: int = 30443
    replicas: int = 1
    head_address: str = ""
    """Where the landing page is."""


class Updated(NamedTuple):
    """The app groups of a cluster with the manifests of this release, and what is different, a line for each."""

    app_groups: dict[str, Object]
    changes: tuple[str, ...]


def manifest(name: str) -> str:
    """The text of an application that is part of this package."""
    return MARK + (resources.files(__package__) / f"{name}.yaml").read_text()


def app_groups(
    ingress: Ingress,
    texts: Mapping[str, str] | None = None,
    *,
    landing_page: bool = False,
    environments: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, Object]:
    """The group `system`. `texts` are manifests of applications by name, which enable them; the ingress of the
    dashboard is enabled with the dashboard. `environments` are variables of applications, by name."""
    given, variables = dict(texts or {}), dict(environments or {})
    names = sorted({*_OFF, *given})
    applications = {
        name: _application(
            given.get(name, ""), is_enabled=bool(given.get(name)), environment=_variables(variables.get(name, {}))
        )
        for name in names
    }
    own = {**_environment(ingress), **_variables(variables.get("ingress_controller", {}))}
    applications["ingress_controller"]["children"] = {"environment": own}
    fqdn = {"CM_KUBE_EXTERNAL_FQDN": _variable(ingress.fqdn)}
    applications["dashboard_ingress"] = _application(
        manifest("dashboard_ingress"), is_enabled=bool(given.get("dashboard")), environment=fqdn
    )
    place = {**_variables(variables.get("landing_page", {})), "head_node_internal_ip": _variable(ingress.head_address)}
    applications["landing_page"] = _application(manifest("landing_page"), is_enabled=landing_page, environment=place)
    return {SYSTEM: {"type": "AppGroup", "children": {"applications": dict(sorted(applications.items()))}}}


def typha_replicas(nodes: int) -> int:
    """How many replicas of Typha a cluster that is made with so many nodes has: none up to 50, then one for each 150,
    from 3 to 20. Nodes that come later do not change it."""
    if nodes <= _TYPHA_ABOVE:
        return 0
    return min(max(-(-nodes // _TYPHA_EACH), _TYPHA_FEWEST), _TYPHA_MOST)


def calico_environment(nodes: int, cidr: str, head_address: str) -> dict[str, str]:
    """The variables of the application `calico` of a new cluster."""
    replicas = typha_replicas(nodes)
    return {
        "calico_typha_replicas": str(replicas),
        "calico_typha_service": "calico-typha" if replicas else "none",
        "cidr": cidr,
        "head_node_internal_ip": head_address,
    }


def _application(text: str, *, is_enabled: bool, environment: Mapping[str, Object] | None = None) -> Object:
    values: Object = {} if is_enabled else {"enabled": False}
    if text:
        values["config"] = text
    application: Object = {"type": "Application", "values": values}
    return {**application, "children": {"environment": dict(environment)}} if environment else application


def _environment(ingress: Ingress) -> dict[str, Object]:
    return {
        "CM_KUBE_EXTERNAL_FQDN": _variable(ingress.fqdn, for_nodes=True),
        "CM_KUBE_INGRESS_HTTPS_PORT": _variable(str(ingress.https_port), for_nodes=True),
        "CM_KUBE_INGRESS_HTTP_PORT": _variable(str(ingress.http_port), for_nodes=True),
        "ingress_controller_label": _variable(INGRESS_LABEL),
        "replicas": _variable(str(ingress.replicas)),
    }


def _variables(values: Mapping[str, str]) -> dict[str, Object]:
    return {name: _variable(value) for name, value in values.items()}


def _variable(value: str, *, for_nodes: bool = False) -> Object:
    values: Object = {"value": value, "nodes_environment": True} if for_nodes else {"value": value}
    return {"type": "ApplicationEnvironment", "values": values}


def label_sets(
    control_plane: Sequence[str], gpu_categories: Sequence[str] = (), netq: Sequence[str] = ()
) -> dict[str, Object]:
    """The three label sets: where ingress controllers run, where monitoring runs, and which nodes have NVIDIA GPUs; a
    fourth one for nodes of NetQ, where there are any."""
    return {
        "ingress-controller": _labels(f"{INGRESS_LABEL}=", nodes=control_plane),
        "monitoring": _labels("bedplate.dev/monitoring=", nodes=control_plane),
        "nvidia": _labels("nvidia.com/gpu-accelerator=", categories=gpu_categories),
        **({"netq": _labels("bedplate.dev/netq=", nodes=netq)} if netq else {}),
    }


def _labels(label: str, **members: Sequence[str]) -> Object:
    chosen = {name: list(names) for name, names in members.items() if names}
    return {"type": "LabelSet", "values": {"labels": [label], **chosen}}


def shipped(present: Mapping[str, Object], fqdn: str) -> dict[str, Object]:
    """What this release has for a cluster with those app groups: its texts for the applications that have one of an
    earlier release, or none yet. Applications with a text of the site have none here."""
    applications = _inner(present.get(SYSTEM, {}), "applications")
    texts = {name: str(application.get("values", {}).get("config", "")) for name, application in applications.items()}
    own = {name for name, text in texts.items() if text.startswith(MARK)}
    groups = app_groups(Ingress(fqdn), {name: manifest(name) for name in sorted(own)})
    for name, application in groups[SYSTEM]["children"]["applications"].items():
        if texts.get(name) and name not in own:
            application["values"].pop("config", None)
    return groups


def updated(present: Mapping[str, Object], shipped: Mapping[str, Object]) -> Updated:
    """The app groups of a cluster with the manifests of `shipped`. What is new comes along; whether an application is
    enabled, the values of its variables and everything that is not shipped stay as they are."""
    groups = {name: _copy(group) for name, group in present.items()}
    changes: list[str] = []
    for name, group in shipped.items():
        if name not in groups:
            groups[name] = _copy(group)
            changes.append(f"{name}: added with {len(_inner(group, 'applications'))} applications")
            continue
        applications = groups[name].setdefault("children", {}).setdefault("applications", {})
        for key, application in _inner(group, "applications").items():
            if key not in applications:
                applications[key] = _copy(application)
                changes.append(f"{name}/{key}: added")
            else:
                changes += [f"{name}/{key}: {text}" for text in _update(applications[key], application)]
    return Updated(groups, tuple(changes))


def _update(present: Object, shipped: Object) -> list[str]:
    changes = []
    text, old = shipped.get("values", {}).get("config", ""), present.get("values", {}).get("config", "")
    # An application whose manifests a site brings has no text here, and keeps the site's.
    if text and text != old:
        present["values"] = {**present.get("values", {}), "config": text}
        changes.append("manifests replaced" if old else "manifests added")
    for name, variable in _inner(shipped, "environment").items():
        known = present.setdefault("children", {}).setdefault("environment", {})
        if name not in known:
            known[name] = _copy(variable)
            changes.append(f"variable {name} added")
    return changes


def _inner(obj: Object, submode: str) -> dict[str, Object]:
    children: dict[str, Object] = obj.get("children", {}).get(submode, {})
    return children


def _copy(obj: Object) -> Object:
    children = {
        submode: {name: _copy(child) for name, child in inner.items()}
        for submode, inner in obj.get("children", {}).items()
    }
    copied = {**obj, "values": dict(obj.get("values", {}))}
    return {**copied, "children": children} if children else copied
