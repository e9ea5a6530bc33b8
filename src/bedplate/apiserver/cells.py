"""The cells of built-in kinds in `Table` answers, as `kubectl get` has always shown them.

In: a decoded object and the time. Out: one value per column of the kind (the columns are facts). A kind without a
function here shows its name and age.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from bedplate.apiserver import kinds
from bedplate.core import clock as clocks

__all__ = ["age", "cells", "selector_text"]

Object = Mapping[str, Any]
Cells = list[Any]
NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"


def cells(resource: kinds.Resource, obj: Object, count: int, now: datetime) -> Cells:
    """`count` cells, the first of them the name."""
    make = _CELLS.get((resource.group, resource.resource))
    if make is not None:
        found = make(obj, now)
    elif not resource.columns or resource.columns[-1].name == "Created At":
        found = [_name(obj), obj["metadata"].get("creationTimestamp")]
    else:
        found = [_name(obj), *[NONE] * (count - 2), _age(obj, now)]
    return found[:count] + [NONE] * (count - len(found))


def _name(obj: Object) -> str:
    name: str = obj["metadata"]["name"]
    return name


def _age(obj: Object, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def age(moment: Any, now: datetime) -> str:
    """The time since a moment, in Kubernetes' short words."""
    if not isinstance(moment, str) or not moment:
        return UNKNOWN
    try:
        return duration((now - clocks.parse_rfc3339(moment)).total_seconds())
    except ValueError:
        return UNKNOWN


def duration(seconds: float) -> str:
    """`59s`, `3m20s`, `2h`, `5d3h`: two units while the first is small."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if hours < 24 * 365 * 2:
        return f"{days}d"
    years = hours // 24 // 365
    if hours < 24 * 365 * 8:
        rest = days % 365
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def _get(obj: Any, path: str, default: Any = None) -> Any:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return default if obj is None else obj


def _joined(values: Iterable[Any], limit: int = 0) -> str:
    found = [str(value) for value in values if value not in (None, "")]
    if limit and len(found) > limit:
        return f"{','.join(found[:limit])} + {len(found) - limit} more..."
    return ",".join(found) or NONE


def _pairs(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """A LabelSelector in the text form."""
    if selector is None:
        return NONE
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for term in selector.get("matchExpressions") or ():
        key, values = term["key"], ",".join(sorted(term.get("values") or ()))
        forms = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append(forms.get(term["operator"], key))
    return ",".join(terms) or NONE


def _containers(spec: Any) -> Cells:
    found = _get(spec, "containers", [])
    return [",".join(item["name"] for item in found), ",".join(item.get("image", "") for item in found)]


def _template(obj: Object) -> Cells:
    return _containers(_get(obj, "spec.template.spec"))


# --- core ------------------------------------------------------------------------------------------------------------


def _pod(obj: Object, now: datetime) -> Cells:
    spec, state = obj.get("spec") or {}, obj.get("status") or {}
    statuses = state.get("containerStatuses") or []
    restarts = sum(item.get("restartCount", 0) for item in statuses)
    ready = sum(1 for item in statuses if item.get("ready") and "running" in (item.get("state") or {}))
    restarted = _last_restart(statuses)
    shown = f"{restarts} ({age(restarted, now)} ago)" if restarts and restarted else str(restarts)
    ips = [item.get("ip") for item in state.get("podIPs") or ()] or [state.get("podIP")]
    gates = [item["conditionType"] for item in spec.get("readinessGates") or ()]
    true = {item["type"] for item in state.get("conditions") or () if item.get("status") == "True"}
    return [
        _name(obj),
        f"{ready}/{len(spec.get('containers') or ())}",
        _pod_reason(obj, statuses),
        shown,
        _age(obj, now),
        ips[0] or NONE,
        spec.get("nodeName") or NONE,
        state.get("nominatedNodeName") or NONE,
        f"{len([gate for gate in gates if gate in true])}/{len(gates)}" if gates else NONE,
    ]


def _last_restart(statuses: list[Object]) -> str:
    moments = [_get(item, "lastState.terminated.finishedAt", "") for item in statuses]
    return max(moments, default="")


def _pod_reason(obj: Object, statuses: list[Object]) -> str:
    state = obj.get("status") or {}
    reason = str(state.get("reason") or state.get("phase") or "")
    for item in state.get("conditions") or ():
        if item["type"] == "PodScheduled" and item.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    has_running = False
    for item in reversed(statuses):
        waiting, ended = _get(item, "state.waiting.reason"), _get(item, "state.terminated")
        if waiting:
            reason = waiting
        elif ended is not None:
            reason = ended.get("reason") or (
                f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"
            )
        elif item.get("ready") and "running" in (item.get("state") or {}):
            has_running = True
    if reason == "Completed" and has_running:
        is_ready = any(item["type"] == "Ready" and item["status"] == "True" for item in state.get("conditions") or ())
        reason = "Running" if is_ready else "NotReady"
    if obj["metadata"].get("deletionTimestamp"):
        return "Unknown" if state.get("reason") == "NodeLost" else "Terminating"
    return reason


def _node(obj: Object, now: datetime) -> Cells:
    conditions = {item["type"]: item.get("status") for item in _get(obj, "status.conditions", [])}
    words = [{"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "")]
    state = words[0] or ("Unknown" if "Ready" not in conditions else "NotReady")
    if _get(obj, "spec.unschedulable"):
        state += ",SchedulingDisabled"
    labels = obj["metadata"].get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {key[len(prefix) :] for key in labels if key.startswith(prefix) and len(key) > len(prefix)}
    roles |= {value for key, value in labels.items() if key == "kubernetes.io/role" and value}
    addresses = {item["type"]: item["address"] for item in reversed(_get(obj, "status.addresses", []))}
    info = _get(obj, "status.nodeInfo", {})
    return [
        _name(obj),
        state,
        ",".join(sorted(roles)) or NONE,
        _age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _service(obj: Object, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    kind = spec.get("type", "ClusterIP")
    ports = []
    for port in spec.get("ports") or ():
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port['port']}{node}/{port.get('protocol', 'TCP')}")
    return [
        _name(obj),
        kind,
        spec.get("clusterIP") or NONE,
        _external_ip(kind, spec, obj),
        ",".join(ports) or NONE,
        _age(obj, now),
        _pairs(spec.get("selector")),
    ]


def _external_ip(kind: str, spec: Object, obj: Object) -> str:
    given = spec.get("externalIPs") or []
    if kind == "ExternalName":
        return spec.get("externalName") or NONE
    if kind != "LoadBalancer":
        return ",".join(given) or NONE
    found = [item.get("ip") or item.get("hostname") for item in _get(obj, "status.loadBalancer.ingress", [])]
    return ",".join([*filter(None, found), *given]) or "<pending>"


def _namespace(obj: Object, now: datetime) -> Cells:
    return [_name(obj), _get(obj, "status.phase", ""), _age(obj, now)]


def _event(obj: Object, now: datetime) -> Cells:
    involved = obj.get("involvedObject") or {}
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    last = _get(obj, "series.lastObservedTime") or obj.get("lastTimestamp") or first
    source = obj.get("source") or {}
    component = source.get("component") or obj.get("reportingComponent", "")
    host = source.get("host", "")
    kind, name = str(involved.get("kind", "")).lower(), involved.get("name", "")
    return [
        age(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{name}" if kind else name,
        involved.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        str(obj.get("message", "")).strip(),
        age(first, now),
        _get(obj, "series.count") or obj.get("count") or 1,
        _name(obj),
    ]


def _config_map(obj: Object, now: datetime) -> Cells:
    return [_name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), _age(obj, now)]


def _secret(obj: Object, now: datetime) -> Cells:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or ()), _age(obj, now)]


def _account(obj: Object, now: datetime) -> Cells:
    return [_name(obj), _age(obj, now)]


def _endpoints(obj: Object, now: datetime) -> Cells:
    found = []
    for subset in obj.get("subsets") or ():
        ports = subset.get("ports") or [{}]
        for address in subset.get("addresses") or ():
            found += [f"{address['ip']}:{port['port']}" if port else address["ip"] for port in ports]
    return [_name(obj), _joined(found, 3), _age(obj, now)]


def _claim(obj: Object, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    is_going = obj["metadata"].get("deletionTimestamp")
    return [
        _name(obj),
        "Terminating" if is_going else _get(obj, "status.phase", ""),
        spec.get("volumeName", ""),
        _get(obj, "status.capacity.storage", "") if spec.get("volumeName") else "",
        _modes(_get(obj, "status.accessModes", [])) if spec.get("volumeName") else "",
        spec.get("storageClassName", ""),
        _get(obj, "status.currentVolumeAttributesClassName", UNSET),
        _age(obj, now),
        spec.get("volumeMode", UNSET),
    ]


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: Iterable[str]) -> str:
    return ",".join(_MODES.get(mode, mode) for mode in modes)


def _volume(obj: Object, now: datetime) -> Cells:
    spec, claim = obj.get("spec") or {}, _get(obj, "spec.claimRef")
    is_going = obj["metadata"].get("deletionTimestamp")
    return [
        _name(obj),
        _get(spec, "capacity.storage", ""),
        _modes(spec.get("accessModes") or ()),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if is_going else _get(obj, "status.phase", ""),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        _get(obj, "status.reason", ""),
        _age(obj, now),
        spec.get("volumeMode", UNSET),
    ]


def _quota(obj: Object, now: datetime) -> Cells:
    hard, used = _get(obj, "status.hard", {}), _get(obj, "status.used", {})
    requests: list[str] = []
    limits: list[str] = []
    for name in sorted(hard):
        (limits if name.startswith("limits") else requests).append(f"{name}: {used.get(name, '0')}/{hard[name]}")
    return [_name(obj), ", ".join(requests), ", ".join(limits), _age(obj, now)]


def _pod_template(obj: Object, now: datetime) -> Cells:
    return [_name(obj), *_containers(_get(obj, "template.spec")), _pairs(_get(obj, "template.metadata.labels"))]


# --- workloads -------------------------------------------------------------------------------------------------------


def _replicated(obj: Object, now: datetime) -> Cells:
    selector = _get(obj, "spec.selector")
    shown = (
        selector_text(selector) if "matchLabels" in (selector or {}) or "matchExpressions" in (selector or {}) else None
    )
    return [
        _name(obj),
        _get(obj, "spec.replicas", 0),
        _get(obj, "status.replicas", 0),
        _get(obj, "status.readyReplicas", 0),
        _age(obj, now),
        *_template(obj),
        shown or _pairs(selector),
    ]


def _deployment(obj: Object, now: datetime) -> Cells:
    return [
        _name(obj),
        f"{_get(obj, 'status.readyReplicas', 0)}/{_get(obj, 'spec.replicas', 0)}",
        _get(obj, "status.updatedReplicas", 0),
        _get(obj, "status.availableReplicas", 0),
        _age(obj, now),
        *_template(obj),
        selector_text(_get(obj, "spec.selector")),
    ]


def _stateful_set(obj: Object, now: datetime) -> Cells:
    ready = f"{_get(obj, 'status.readyReplicas', 0)}/{_get(obj, 'spec.replicas', 0)}"
    return [_name(obj), ready, _age(obj, now), *_template(obj)]


def _daemon_set(obj: Object, now: datetime) -> Cells:
    names = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        _name(obj),
        *(_get(obj, f"status.{name}", 0) for name in names),
        _pairs(_get(obj, "spec.template.spec.nodeSelector")),
        _age(obj, now),
        *_template(obj),
        selector_text(_get(obj, "spec.selector")),
    ]


def _job(obj: Object, now: datetime) -> Cells:
    spec, state = obj.get("spec") or {}, obj.get("status") or {}
    done, parallel = state.get("succeeded", 0), spec.get("parallelism") or 0
    if spec.get("completions") is not None:
        completions = f"{done}/{spec['completions']}"
    else:
        completions = f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"
    started, ended = state.get("startTime"), state.get("completionTime")
    took = ""
    if started:
        end = clocks.parse_rfc3339(ended) if ended else now
        took = duration((end - clocks.parse_rfc3339(started)).total_seconds())
    return [
        _name(obj),
        _job_state(obj),
        completions,
        took,
        _age(obj, now),
        *_template(obj),
        selector_text(spec.get("selector")),
    ]


def _job_state(obj: Object) -> str:
    true = {item["type"] for item in _get(obj, "status.conditions", []) if item.get("status") == "True"}
    for kind, word in (("Complete", "Complete"), ("Failed", "Failed")):
        if kind in true:
            return word
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if "Suspended" in true:
        return "Suspended"
    return (
        "FailureTarget"
        if "FailureTarget" in true
        else "SuccessCriteriaMet"
        if "SuccessCriteriaMet" in true
        else "Running"
    )


def _cron_job(obj: Object, now: datetime) -> Cells:
    spec, last = obj.get("spec") or {}, _get(obj, "status.lastScheduleTime")
    return [
        _name(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        "True" if spec.get("suspend") else "False",
        len(_get(obj, "status.active", [])),
        age(last, now) if last else NONE,
        _age(obj, now),
        *_containers(_get(spec, "jobTemplate.spec.template.spec")),
        selector_text(_get(spec, "jobTemplate.spec.selector")),
    ]


def _revision(obj: Object, now: datetime) -> Cells:
    owners = [item for item in obj["metadata"].get("ownerReferences") or () if item.get("controller")]
    group = owners[0]["apiVersion"].rpartition("/")[0] if owners else ""
    owner = f"{owners[0]['kind'].lower()}.{group}/{owners[0]['name']}" if owners else NONE
    return [_name(obj), owner, obj.get("revision", 0), _age(obj, now)]


def _autoscaler(obj: Object, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    target = spec.get("scaleTargetRef") or {}
    return [
        _name(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _joined((_metric(metric, obj) for metric in spec.get("metrics") or ()), 2),
        spec.get("minReplicas") if spec.get("minReplicas") is not None else UNSET,
        spec.get("maxReplicas", 0),
        _get(obj, "status.currentReplicas", 0),
        _age(obj, now),
    ]


def _metric(metric: Object, obj: Object) -> str:
    detail = metric.get("resource") or {}
    name, target = detail.get("name", metric.get("type", "")), detail.get("target") or {}
    current: Any = UNKNOWN
    for state in _get(obj, "status.currentMetrics", []):
        if _get(state, "resource.name") == name:
            current = _get(state, "resource.current.averageUtilization", UNKNOWN)
    wanted = target.get("averageUtilization")
    if wanted is None:
        return f"{name}: {UNKNOWN}/{target.get('averageValue', target.get('value', 'auto'))}"
    return f"{name}: {current if current == UNKNOWN else f'{current}%'}/{wanted}%"


def _budget(obj: Object, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    low, high = spec.get("minAvailable"), spec.get("maxUnavailable")
    return [
        _name(obj),
        "N/A" if low is None else str(low),
        "N/A" if high is None else str(high),
        _get(obj, "status.disruptionsAllowed", 0),
        _age(obj, now),
    ]


# --- network, storage, policy ----------------------------------------------------------------------------------------


def _ingress(obj: Object, now: datetime) -> Cells:
    rules = _get(obj, "spec.rules", [])
    addresses = [item.get("ip") or item.get("hostname") for item in _get(obj, "status.loadBalancer.ingress", [])]
    return [
        _name(obj),
        _get(obj, "spec.ingressClassName", NONE),
        _joined((rule.get("host") for rule in rules), 3) if any(rule.get("host") for rule in rules) else "*",
        ",".join(filter(None, addresses)),
        "80, 443" if _get(obj, "spec.tls") else "80",
        _age(obj, now),
    ]


def _ingress_class(obj: Object, now: datetime) -> Cells:
    given = _get(obj, "spec.parameters")
    parameters = NONE
    if given:
        group = f".{given['apiGroup']}" if given.get("apiGroup") else ""
        parameters = f"{given['kind']}{group}/{given['name']}"
    return [_name(obj), _get(obj, "spec.controller", ""), parameters, _age(obj, now)]


def _network_policy(obj: Object, now: datetime) -> Cells:
    return [_name(obj), selector_text(_get(obj, "spec.podSelector", {})), _age(obj, now)]


def _slice(obj: Object, now: datetime) -> Cells:
    ports = ["*" if port.get("port") is None else port["port"] for port in obj.get("ports") or ()]
    addresses = [address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ()]
    return [
        _name(obj),
        obj.get("addressType", ""),
        _joined(ports, 3) if ports else UNSET,
        _joined(addresses, 3) if addresses else UNSET,
        _age(obj, now),
    ]


def _storage_class(obj: Object, now: datetime) -> Cells:
    is_default = (obj["metadata"].get("annotations") or {}).get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        f"{_name(obj)} (default)" if is_default else _name(obj),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        bool(obj.get("allowVolumeExpansion")),
        _age(obj, now),
    ]


def _attachment(obj: Object, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    volume = _get(spec, "source.persistentVolumeName", "")
    attached = _get(obj, "status.attached", False)
    return [_name(obj), spec.get("attacher", ""), volume, spec.get("nodeName", ""), attached, _age(obj, now)]


def _binding(obj: Object, now: datetime) -> Cells:
    role = obj.get("roleRef") or {}
    by_kind: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        is_account = subject["kind"] == "ServiceAccount"
        name = f"{subject.get('namespace', '')}/{subject['name']}" if is_account else subject["name"]
        by_kind.setdefault(subject["kind"], []).append(name)
    names = [", ".join(by_kind[kind]) for kind in ("User", "Group", "ServiceAccount")]
    return [_name(obj), f"{role.get('kind', '')}/{role.get('name', '')}", _age(obj, now), *names]


def _lease(obj: Object, now: datetime) -> Cells:
    return [_name(obj), _get(obj, "spec.holderIdentity", ""), _age(obj, now)]


def _webhooks(obj: Object, now: datetime) -> Cells:
    return [_name(obj), len(obj.get("webhooks") or ()), _age(obj, now)]


def _priority(obj: Object, now: datetime) -> Cells:
    policy = obj.get("preemptionPolicy", "PreemptLowerPriority")
    return [_name(obj), obj.get("value", 0), bool(obj.get("globalDefault")), _age(obj, now), policy]


def _signing_request(obj: Object, now: datetime) -> Cells:
    spec = obj.get("spec") or {}
    words = [item["type"] for item in _get(obj, "status.conditions", [])]
    words = [word for word in ("Approved", "Denied", "Failed") if word in words] or ["Pending"]
    if _get(obj, "status.certificate"):
        words.append("Issued")
    asked = spec.get("expirationSeconds")
    span = duration(asked) if asked is not None else NONE
    return [_name(obj), _age(obj, now), spec.get("signerName", ""), spec.get("username", ""), span, ",".join(words)]


def _api_service(obj: Object, now: datetime) -> Cells:
    service = _get(obj, "spec.service")
    where = f"{service.get('namespace')}/{service.get('name')}" if service else "Local"
    states = {item["type"]: item for item in _get(obj, "status.conditions", [])}
    found = states.get("Available", {})
    reason = f" ({found.get('reason')})" if found.get("status") == "False" else ""
    return [_name(obj), where, f"{found.get('status', 'Unknown')}{reason}", _age(obj, now)]


def _policy_binding(obj: Object, now: datetime) -> Cells:
    return [_name(obj), _get(obj, "spec.policyName", ""), _get(obj, "spec.paramRef.name", UNSET), _age(obj, now)]


def _admission_policy(obj: Object, now: datetime) -> Cells:
    kind = _get(obj, "spec.paramKind")
    shown = f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else UNSET
    return [_name(obj), len(_get(obj, "spec.validations", [])), shown, _age(obj, now)]


def _runtime_class(obj: Object, now: datetime) -> Cells:
    return [_name(obj), obj.get("handler", ""), _age(obj, now)]


def _csi_node(obj: Object, now: datetime) -> Cells:
    return [_name(obj), len(_get(obj, "spec.drivers", [])), _age(obj, now)]


_ADMISSION, _NETWORK = "admissionregistration.k8s.io", "networking.k8s.io"
_RBAC, _STORAGE = "rbac.authorization.k8s.io", "storage.k8s.io"
_CELLS: dict[tuple[str, str], Callable[[Object, datetime], Cells]] = {
    ("", "configmaps"): _config_map,
    ("", "endpoints"): _endpoints,
    ("", "events"): _event,
    ("", "namespaces"): _namespace,
    ("", "nodes"): _node,
    ("", "persistentvolumeclaims"): _claim,
    ("", "persistentvolumes"): _volume,
    ("", "pods"): _pod,
    ("", "podtemplates"): _pod_template,
    ("", "replicationcontrollers"): _replicated,
    ("", "resourcequotas"): _quota,
    ("", "secrets"): _secret,
    ("", "serviceaccounts"): _account,
    ("", "services"): _service,
    ("apiregistration.k8s.io", "apiservices"): _api_service,
    ("apps", "controllerrevisions"): _revision,
    ("apps", "daemonsets"): _daemon_set,
    ("apps", "deployments"): _deployment,
    ("apps", "replicasets"): _replicated,
    ("apps", "statefulsets"): _stateful_set,
    ("autoscaling", "horizontalpodautoscalers"): _autoscaler,
    ("batch", "cronjobs"): _cron_job,
    ("batch", "jobs"): _job,
    ("certificates.k8s.io", "certificatesigningrequests"): _signing_request,
    ("coordination.k8s.io", "leases"): _lease,
    ("discovery.k8s.io", "endpointslices"): _slice,
    ("node.k8s.io", "runtimeclasses"): _runtime_class,
    ("policy", "poddisruptionbudgets"): _budget,
    ("scheduling.k8s.io", "priorityclasses"): _priority,
    (_ADMISSION, "mutatingwebhookconfigurations"): _webhooks,
    (_ADMISSION, "validatingwebhookconfigurations"): _webhooks,
    (_ADMISSION, "validatingadmissionpolicies"): _admission_policy,
    (_ADMISSION, "validatingadmissionpolicybindings"): _policy_binding,
    (_NETWORK, "ingresses"): _ingress,
    (_NETWORK, "ingressclasses"): _ingress_class,
    (_NETWORK, "networkpolicies"): _network_policy,
    (_RBAC, "clusterrolebindings"): _binding,
    (_RBAC, "rolebindings"): _binding,
    (_STORAGE, "csinodes"): _csi_node,
    (_STORAGE, "storageclasses"): _storage_class,
    (_STORAGE, "volumeattachments"): _attachment,
}
