"""Puts a certificate into a cluster: a Secret, and the option of the ingress controller that names it.

In: a pair, a client. Out: the Secret, the patched Deployment or DaemonSet of the ingress controller, which then starts
its pods again: NGINX's has an option that names the Secret, any other one mounts it. Every function may be repeated; a
controller that has the option already is left alone. One that is kept applied by an application would lose the option
again at once, and is refused with what to do instead.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from bedplate.api.resources import DEPLOYMENTS, SECRETS, ResourceRef, custom
from bedplate.core import errors
from bedplate.head.applications.applying import LABEL
from bedplate.kube.options import PatchType
from bedplate.serving.issuing import Pair

if TYPE_CHECKING:
    from bedplate.kube.client import Client

__all__ = ["DIGEST", "MANAGER", "SECRET", "STAGES", "Controller", "create_secret", "find", "patch", "planned", "secret"]

STAGES = (
    "Generate Self Signed CA",
    "Generate Signed Server Cert Pair",
    "Create Kubernetes Server Cert Pair Secret",
    "Find Ingress Enabled",
    "Patch Ingress Deployment",
)
"""The stages of a self-signed certificate, in their order; with a pair of the site's own the first two are left out."""
SECRET = "ingress-server-default-tls"
MANAGER = "bedplate-ingress"
DIGEST = "bedplate.dev/ingress-certificate"
"""On the pods: which certificate they were started for."""
_ATTEMPTS = 10
_OPTION = "--default-ssl-certificate"
_SELECTOR = "app.kubernetes.io/name=ingress-nginx,app.kubernetes.io/component=controller"
_DAEMON_SETS = custom("apps", "v1", "daemonsets", "DaemonSet", True)


class Controller(NamedTuple):
    """The ingress controller of a cluster."""

    ref: ResourceRef[dict[str, Any]]
    namespace: str
    name: str
    body: Mapping[str, Any]


def secret(pair: Pair) -> dict[str, Any]:
    """The Secret of a pair."""
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    return {
        "metadata": {"name": SECRET},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(content).decode() for name, content in data.items()},
    }


async def find(client: Client) -> Controller:
    """The ingress controller. Raises `NotFound` where there is none, `Conflict` where there are several."""
    controllers = [
        Controller(ref, body["metadata"]["namespace"], body["metadata"]["name"], body)
        for ref in (DEPLOYMENTS, _DAEMON_SETS)
        for body in (await client.list(ref, label_selector=_SELECTOR)).items
    ]
    if not controllers:
        raise errors.NotFound(
            f"no ingress controller was found: nothing has the labels {_SELECTOR}",
            hint="enable the application ingress_controller, or label its Deployment so",
        )
    if len(controllers) > 1:
        places = ", ".join(f"{controller.namespace}/{controller.name}" for controller in controllers)
        raise errors.Invalid(
            f"there are several ingress controllers: {places}", hint="remove the label from all but one"
        )
    return controllers[0]


async def create_secret(client: Client, controller: Controller, pair: Pair) -> None:
    """Write the Secret beside the controller."""
    await client.patch(
        SECRETS.raw(),
        SECRET,
        secret(pair),
        controller.namespace,
        type=PatchType.APPLY,
        field_manager=MANAGER,
        force=True,
    )


def planned(controller: Controller, pair: Pair) -> dict[str, Any]:
    """The merge patch that makes a controller use the Secret; empty when it does. Raises `Invalid`. Pure."""
    option = f"{_OPTION}={controller.namespace}/{SECRET}"
    application = controller.body["metadata"].get("labels", {}).get(LABEL)
    template = controller.body["spec"]["template"]
    containers = template["spec"]["containers"]
    args = list(containers[0].get("args") or [])
    complete = [word for word in args if not word.startswith(_OPTION)] + [option]
    digest = hashlib.sha256(pair.certificate).hexdigest()[:32]
    notes = template.get("metadata", {}).get("annotations") or {}
    metadata = {"resourceVersion": controller.body["metadata"]["resourceVersion"]}
    if _is_mounted(template["spec"]):
        # It reads the Secret from a volume, whatever its options are: it only has to start again.
        inner: dict[str, Any] = {"metadata": {"annotations": {DIGEST: digest}}}
        return {"metadata": metadata, "spec": {"template": inner}} if notes.get(DIGEST) != digest else {}
    if application and option not in args:
        raise errors.Invalid(
            f"{controller.namespace}/{controller.name} is kept applied by the application {application}",
            hint=f"add {option} to the arguments in its manifests",
        )
    if option in args and (application or notes.get(DIGEST) == digest):
        return {}
    # Lists are replaced whole, so that the patch is for what was read and for nothing that somebody has made of it.
    first = {**containers[0], "args": args if option in args else complete}
    inner = {"metadata": {"annotations": {DIGEST: digest}}, "spec": {"containers": [first, *containers[1:]]}}
    return {"metadata": metadata, "spec": {"template": inner}}


def _is_mounted(spec: Mapping[str, Any]) -> bool:
    """Whether the pods have the Secret as a volume."""
    return any((volume.get("secret") or {}).get("secretName") == SECRET for volume in spec.get("volumes") or ())


async def patch(client: Client, controller: Controller, pair: Pair) -> bool:
    """Have the controller use the Secret; whether it had to be changed. Raises `Invalid`, and `Conflict` where others
    change it all the time."""
    for attempt in range(_ATTEMPTS):
        body = await client.get(controller.ref, controller.name, controller.namespace)
        steps = planned(controller._replace(body=body), pair)
        if not steps:
            return False
        try:
            await client.patch(controller.ref, controller.name, steps, controller.namespace, field_manager=MANAGER)
        except errors.Conflict:
            # Its status has changed, most likely: look again.
            if attempt == _ATTEMPTS - 1:
                raise
            continue
        return True
    return False
