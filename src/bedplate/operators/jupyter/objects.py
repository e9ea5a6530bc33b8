"""The objects of a kernel: Service, ConfigMap, Secret and pod.

In: a CMJupyterKernel, the sidecar's image, a key for a connection file. Out: what is wrong with the resource, or its
objects as they are sent. Pure. All are owned by the resource and carry its labels, so that they go with it.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bedplate.operators.jupyter import accounts, names, unprivileged
from bedplate.operators.jupyter.kernel import Kernel, KernelSpec

__all__ = ["Sidecar", "connection_file", "labels", "name_of", "objects", "problems"]

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sidecar:
    """How the operator was told to run the sidecar."""

    image: str
    pull_policy: str = "IfNotPresent"


def name_of(kernel: Kernel) -> str:
    """The name of all objects of a kernel."""
    return names.object_name(kernel.name, kernel.metadata.uid)


def labels(kernel: Kernel) -> dict[str, str]:
    """What every object of a kernel carries."""
    own = {names.LABEL_KERNEL: name_of(kernel), names.LABEL_MANAGED_BY: names.OPERATOR}
    return own | {names.LABEL_KERNEL_ID: kernel.spec.kernel_id}


def objects(kernel: Kernel, sidecar: Sidecar, key: str) -> dict[str, Object]:
    """By kind, in the order in which they are made."""
    return {
        "Service": _object(kernel, {"spec": _service(kernel)}),
        "ConfigMap": _object(kernel, {"data": _files(kernel.spec)}),
        "Secret": _object(
            kernel, {"type": "Opaque", "stringData": {names.KEY_CONNECTION: connection_file(kernel.spec, key)}}
        ),
        "Pod": _pod(kernel, sidecar),
    }


def _object(kernel: Kernel, body: Object, annotations: Mapping[str, str] | None = None) -> Object:
    owner = {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": names.KIND,
        "name": kernel.name,
        "uid": kernel.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata: Object = {
        "name": name_of(kernel),
        "namespace": kernel.namespace,
        "labels": labels(kernel),
        "ownerReferences": [owner],
    }
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"metadata": metadata, **body}


def connection_file(spec: KernelSpec, key: str) -> str:
    """What a kernel is told about its channels: those behind the sidecar, on the pod's own loopback."""
    ports = {f"{name}_port": port for name, port in names.KERNEL_PORTS.items()}
    content = {
        **ports,
        "ip": "127.0.0.1",
        "transport": "tcp",
        "signature_scheme": "hmac-sha256",
        "key": key,
        "kernel_name": "",
    }
    return json.dumps(content, indent=2) + "\n"


def _files(spec: KernelSpec) -> dict[str, str]:
    files = {names.KEY_PASSWD: accounts.passwd(spec), names.KEY_GROUP: accounts.group(spec)}
    if spec.spark_pod_template:
        files[names.KEY_SPARK] = spec.spark_pod_template
    return files


def _service(kernel: Kernel) -> Object:
    """What the resource says, with the sidecar's ports added; a given port of the same name adds its nodePort."""
    given = dict(kernel.spec.service)
    named = {port.get("name", ""): port for port in given.get("ports") or ()}
    ports = []
    for name, number in (*names.CHANNELS.items(), ("comm", names.COMM_PORT)):
        ports.append({**named.pop(name, {}), "name": name, "port": number, "targetPort": number, "protocol": "TCP"})
    return given | {"selector": labels(kernel), "ports": [*ports, *named.values()]}


def _pod(kernel: Kernel, sidecar: Sidecar) -> Object:
    spec = kernel.spec
    pod = dict(spec.pod)
    mounts = _mounts(spec)
    for kind in ("initContainers", "containers"):
        if pod.get(kind):
            pod[kind] = [_mounted(container, mounts) for container in pod[kind]]
    pod["containers"] = [*pod["containers"], _sidecar(spec, sidecar, mounts)]
    pod["volumes"] = [*(pod.get("volumes") or ()), *_volumes(kernel)]
    # A kernel that ended, or whose gateway is gone, is not started again: its clients would not know it.
    pod["restartPolicy"] = "Never"
    restricted = unprivileged.restricted(pod, spec.uid, spec.gid)
    return _object(kernel, {"spec": restricted}, {names.ANNOTATION_SPEC: spec.checksum})


def _volumes(kernel: Kernel) -> list[Object]:
    name = name_of(kernel)
    volumes: list[Object] = [
        {"name": names.VOLUME_CONNECTION, "emptyDir": {}},
        {"name": names.VOLUME_FILES, "configMap": {"name": name}},
    ]
    if kernel.spec.create_connection_file:
        volumes.append({"name": names.VOLUME_SECRET, "secret": {"secretName": name, "defaultMode": 0o440}})
    return volumes


def _mounts(spec: KernelSpec) -> list[Object]:
    """What all containers share: the folder of the connection file, and files that are mounted one by one."""
    path = spec.kernel_connection_file_path
    files = [("/etc/passwd", names.KEY_PASSWD), ("/etc/group", names.KEY_GROUP)]
    if spec.spark_pod_template:
        files.append((spec.spark_pod_template_path, names.KEY_SPARK))
    mounts: list[Object] = [{"name": names.VOLUME_CONNECTION, "mountPath": posixpath.dirname(path)}]
    mounts += [
        {"name": names.VOLUME_FILES, "mountPath": place, "subPath": key, "readOnly": True} for place, key in files
    ]
    if spec.create_connection_file:
        mounts.append(
            {"name": names.VOLUME_SECRET, "mountPath": path, "subPath": names.KEY_CONNECTION, "readOnly": True}
        )
    return mounts


def _mounted(container: Mapping[str, Any], mounts: Sequence[Object]) -> Object:
    """A container with the shared mounts. One that mounts something else at such a place keeps its own."""
    own = list(container.get("volumeMounts") or ())
    places = {mount.get("mountPath") for mount in own}
    return {**container, "volumeMounts": [*own, *(mount for mount in mounts if mount["mountPath"] not in places)]}


def _sidecar(spec: KernelSpec, sidecar: Sidecar, mounts: Sequence[Object]) -> Object:
    variables = {
        "CMJK_CONNECTION_FILE": spec.kernel_connection_file_path,
        "CMJK_KERNEL_ID": spec.kernel_id,
        **{f"CMJK_{name.upper()}_PORT": str(port) for name, port in names.CHANNELS.items()},
        "CMJK_COMM_PORT": str(names.COMM_PORT),
    }
    ports = [*names.CHANNELS.items(), ("comm", names.COMM_PORT)]
    container: Object = {
        "name": names.SIDECAR,
        "image": sidecar.image,
        "imagePullPolicy": sidecar.pull_policy,
        "command": list(spec.sidecar_command) or [names.SIDECAR],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "ports": [{"name": name, "containerPort": number, "protocol": "TCP"} for name, number in ports],
        "volumeMounts": list(mounts),
    }
    if spec.sidecar_args:
        container["args"] = list(spec.sidecar_args)
    return container


# What is wrong


def problems(kernel: Kernel) -> list[str]:
    """Everything that keeps the pod from being made; each names its field."""
    spec = kernel.spec
    return [
        *unprivileged.problems(spec.pod, spec.uid, spec.gid),
        *_name_problems(spec),
        *_path_problems(spec),
    ]


def _name_problems(spec: KernelSpec) -> Iterator[str]:
    if not spec.pod.get("containers"):
        yield "spec.pod.containers: must have at least one container"
    for kind in ("initContainers", "containers"):
        for number, container in enumerate(spec.pod.get(kind) or ()):
            if container.get("name") == names.SIDECAR:
                yield f"spec.pod.{kind}[{number}].name: {names.SIDECAR!r} is the sidecar's"
    reserved = (names.VOLUME_CONNECTION, names.VOLUME_FILES, names.VOLUME_SECRET)
    for number, volume in enumerate(spec.pod.get("volumes") or ()):
        if volume.get("name") in reserved:
            yield f"spec.pod.volumes[{number}].name: {volume['name']!r} is a volume of the operator"


def _path_problems(spec: KernelSpec) -> Iterator[str]:
    path = spec.kernel_connection_file_path
    if posixpath.normpath(path) != path or not path.startswith("/") or posixpath.dirname(path) in ("/", "/etc"):
        yield (
            f"spec.kernel_connection_file_path: {path!r} must be an absolute path of a file in a folder other than / "
            "and /etc, which becomes a volume that kernel and sidecar share"
        )
    template, place = spec.spark_pod_template, spec.spark_pod_template_path
    if bool(template) != bool(place):
        missing = "spark_pod_template" if place else "spark_pod_template_path"
        yield f"spec.{missing}: must be set, because the other one of path and template is"
    if place and (posixpath.normpath(place) != place or not place.startswith("/")):
        yield f"spec.spark_pod_template_path: {place!r} must be an absolute path"
