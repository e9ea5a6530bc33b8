"""Where the cells of built-in kinds come from: functions of an object and the time, or makers of such functions.

In: decoded objects. Out: what one cell shows, in the words `kubectl get` has always used. Which column of which kind
uses which function is said in `cells`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from bedplate.core import clock as clocks

Object = Mapping[str, Any]
Cell = str | Callable[[Object, datetime], Any]
"""A path into the object (what to show instead of nothing stands behind `?`), or a function."""
NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"


def value_at(obj: Any, path: str, default: Any = None) -> Any:
    for part in path.split("."):
        obj = obj.get(part) if isinstance(obj, Mapping) else None
    return default if obj is None else obj


def object_age(obj: Object, now: datetime) -> str:
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
    if whole < 0:
        return "<invalid>" if whole < -1 else "0s"
    minutes, hours, days, years = whole // 60, whole // 3600, whole // 86400, whole // 86400 // 365
    steps = (
        (whole < 120, whole, "s", 0, ""),
        (minutes < 10, minutes, "m", whole % 60, "s"),
        (minutes < 180, minutes, "m", 0, ""),
        (hours < 8, hours, "h", minutes % 60, "m"),
        (hours < 48, hours, "h", 0, ""),
        (days < 8, days, "d", hours % 24, "h"),
        (years < 2, days, "d", 0, ""),
        (years < 8, years, "y", days % 365, "d"),
    )
    for fits, number, unit, rest, rest_unit in steps:
        if fits:
            return f"{number}{unit}{rest}{rest_unit}" if rest else f"{number}{unit}"
    return f"{years}y"


def _joined(values: Iterable[Any], limit: int = 3, nothing: str = NONE) -> str:
    texts = [str(value) for value in values if value not in (None, "")]
    if len(texts) > limit:
        return f"{','.join(texts[:limit])} + {len(texts) - limit} more..."
    return ",".join(texts) or nothing


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """A LabelSelector, or plain labels, in the text form."""
    selector = selector or {}
    is_plain = not ({"matchLabels", "matchExpressions"} & selector.keys())
    labels = selector if is_plain else selector.get("matchLabels") or {}
    terms = [f"{key}={value}" for key, value in sorted(labels.items())]
    for term in selector.get("matchExpressions") or () if not is_plain else ():
        key, values = term["key"], ",".join(sorted(term.get("values") or ()))
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
        terms.append(forms.get(term["operator"], key))
    return ",".join(terms) or NONE


def selector(path: str) -> Cell:
    return lambda obj, _now: selector_text(value_at(obj, path))


def count(*paths: str) -> Cell:
    return lambda obj, _now: sum(len(value_at(obj, path, ())) for path in paths)


def flag(path: str) -> Cell:
    return lambda obj, _now: bool(value_at(obj, path))


def number(path: str) -> Cell:
    return lambda obj, _now: value_at(obj, path, 0)


def out_of(done: str, desired: str) -> Cell:
    return lambda obj, _now: f"{value_at(obj, done, 0)}/{value_at(obj, desired, 0)}"


def listed(path: str, member: str, joint: str = ",") -> Cell:
    return lambda obj, _now: joint.join(str(item.get(member, "")) for item in value_at(obj, path, ()))


def containers(path: str) -> dict[str, Cell]:
    return {"Containers": listed(f"{path}.containers", "name"), "Images": listed(f"{path}.containers", "image")}


def ingress_addresses(obj: Object) -> list[str]:
    entries = value_at(obj, "status.loadBalancer.ingress", [])
    return [item.get("ip") or item.get("hostname") for item in entries if item.get("ip") or item.get("hostname")]


def _true_conditions(obj: Object) -> set[str]:
    return {item["type"] for item in value_at(obj, "status.conditions", ()) if item.get("status") == "True"}


# --- pods, nodes, services, events -----------------------------------------------------------------------------------


def pod_ready(obj: Object, _now: datetime) -> str:
    statuses = value_at(obj, "status.containerStatuses", [])
    ready = sum(1 for item in statuses if item.get("ready") and "running" in (item.get("state") or {}))
    return f"{ready}/{len(value_at(obj, 'spec.containers', ()))}"


def pod_restarts(obj: Object, now: datetime) -> str:
    statuses = value_at(obj, "status.containerStatuses", [])
    count = sum(item.get("restartCount", 0) for item in statuses)
    last = max((value_at(item, "lastState.terminated.finishedAt", "") for item in statuses), default="")
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)


def pod_status(obj: Object, _now: datetime) -> str:
    state = obj.get("status") or {}
    reason = str(state.get("reason") or state.get("phase") or "")
    if any(item.get("reason") == "SchedulingGated" for item in state.get("conditions") or ()):
        reason = "SchedulingGated"
    has_running = False
    for item in reversed(state.get("containerStatuses") or []):
        waiting, ended = value_at(item, "state.waiting.reason"), value_at(item, "state.terminated")
        if waiting:
            reason = waiting
        elif ended is not None:
            code = f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"
            reason = ended.get("reason") or code
        elif item.get("ready") and "running" in (item.get("state") or {}):
            has_running = True
    if reason == "Completed" and has_running:
        reason = "Running" if "Ready" in _true_conditions(obj) else "NotReady"
    if obj["metadata"].get("deletionTimestamp"):
        return "Unknown" if state.get("reason") == "NodeLost" else "Terminating"
    return reason


def pod_ip(obj: Object, _now: datetime) -> str:
    ips = value_at(obj, "status.podIPs", [])
    return (ips[0].get("ip") if ips else value_at(obj, "status.podIP")) or NONE


def pod_gates(obj: Object, _now: datetime) -> str:
    gates = [item["conditionType"] for item in value_at(obj, "spec.readinessGates", ())]
    return f"{len(_true_conditions(obj) & set(gates))}/{len(gates)}" if gates else NONE


def node_status(obj: Object, _now: datetime) -> str:
    states = {item["type"]: item.get("status") for item in value_at(obj, "status.conditions", ())}
    word = {"True": "Ready", None: "Unknown"}.get(states.get("Ready"), "NotReady")
    return f"{word},SchedulingDisabled" if value_at(obj, "spec.unschedulable") else word


def node_roles(obj: Object, _now: datetime) -> str:
    labels = obj["metadata"].get("labels") or {}
    prefix = "node-role.kubernetes.io/"
    roles = {key[len(prefix) :] for key in labels if key.startswith(prefix)} | {labels.get("kubernetes.io/role", "")}
    return ",".join(sorted(roles - {""})) or NONE


def node_address(kind: str) -> Cell:
    def address(obj: Object, _now: datetime) -> str:
        addresses = [item["address"] for item in value_at(obj, "status.addresses", ()) if item["type"] == kind]
        return addresses[0] if addresses else NONE

    return address


def service_address(obj: Object, _now: datetime) -> str:
    spec = obj.get("spec") or {}
    given = spec.get("externalIPs") or []
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or NONE
    if spec.get("type") != "LoadBalancer":
        return ",".join(given) or NONE
    return ",".join([*ingress_addresses(obj), *given]) or "<pending>"


def service_ports(obj: Object, _now: datetime) -> str:
    ports = []
    for port in value_at(obj, "spec.ports", ()):
        node = f":{port['nodePort']}" if port.get("nodePort") else ""
        ports.append(f"{port['port']}{node}/{port.get('protocol', 'TCP')}")
    return ",".join(ports) or NONE


def first_seen(obj: Object) -> Any:
    return obj.get("firstTimestamp") or obj.get("eventTime")


def last_seen(obj: Object, now: datetime) -> str:
    return age(value_at(obj, "series.lastObservedTime") or obj.get("lastTimestamp") or first_seen(obj), now)


def event_object(obj: Object, _now: datetime) -> str:
    kind, name = str(value_at(obj, "involvedObject.kind", "")).lower(), value_at(obj, "involvedObject.name", "")
    return f"{kind}/{name}" if kind else name


def event_source(obj: Object, _now: datetime) -> str:
    component = value_at(obj, "source.component") or obj.get("reportingComponent", "")
    return ", ".join(filter(None, (component, value_at(obj, "source.host"))))


def endpoint_addresses(obj: Object, _now: datetime) -> str:
    addresses = []
    for subset in obj.get("subsets") or ():
        for address in subset.get("addresses") or ():
            ports = subset.get("ports") or [{}]
            addresses += [f"{address['ip']}:{port['port']}" if port else address["ip"] for port in ports]
    return _joined(addresses)


# --- volumes, workloads, the rest ------------------------------------------------------------------------------------

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def modes(path: str) -> Cell:
    return lambda obj, _now: ",".join(_MODES.get(mode, mode) for mode in value_at(obj, path, ()))


def phase(obj: Object, _now: datetime) -> str:
    going = obj["metadata"].get("deletionTimestamp")
    return "Terminating" if going else str(value_at(obj, "status.phase", ""))


def volume_claim(obj: Object, _now: datetime) -> str:
    claim = value_at(obj, "spec.claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def quota(*, limits: bool) -> Cell:
    def shown(obj: Object, _now: datetime) -> str:
        hard, used = value_at(obj, "status.hard", {}), value_at(obj, "status.used", {})
        names = [name for name in sorted(hard) if name.startswith("limits") is limits]
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return shown


def job_completions(obj: Object, _now: datetime) -> str:
    done, completions = value_at(obj, "status.succeeded", 0), value_at(obj, "spec.completions")
    parallel = value_at(obj, "spec.parallelism", 0)
    if completions is not None:
        return f"{done}/{completions}"
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def job_duration(obj: Object, now: datetime) -> str:
    started, ended = value_at(obj, "status.startTime"), value_at(obj, "status.completionTime")
    if not started:
        return ""
    end = clocks.parse_rfc3339(ended) if ended else now
    return duration((end - clocks.parse_rfc3339(started)).total_seconds())


def job_status(obj: Object, _now: datetime) -> str:
    true = _true_conditions(obj)
    for kind in ("Complete", "Failed"):
        if kind in true:
            return kind
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((kind for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet") if kind in true), "Running")


def last_schedule(obj: Object, now: datetime) -> str:
    last = value_at(obj, "status.lastScheduleTime")
    return age(last, now) if last else NONE


def controller(obj: Object, _now: datetime) -> str:
    for owner in obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner['kind'].lower()}.{owner['apiVersion'].rpartition('/')[0]}/{owner['name']}"
    return NONE


def targets(obj: Object, _now: datetime) -> str:
    return _joined((_metric(metric, obj) for metric in value_at(obj, "spec.metrics", ())), 2)


def _metric(metric: Object, obj: Object) -> str:
    name, target = value_at(metric, "resource.name", metric.get("type", "")), value_at(metric, "resource.target", {})
    utilization = target.get("averageUtilization")
    if utilization is None:
        return f"{name}: {UNKNOWN}/{target.get('averageValue', target.get('value', 'auto'))}"
    for state in value_at(obj, "status.currentMetrics", ()):
        if value_at(state, "resource.name") == name:
            return f"{name}: {value_at(state, 'resource.current.averageUtilization', 0)}%/{utilization}%"
    return f"{name}: {UNKNOWN}/{utilization}%"


def hosts(obj: Object, _now: datetime) -> str:
    return _joined((rule.get("host") for rule in value_at(obj, "spec.rules", ())), nothing="*")


def class_parameters(obj: Object, _now: datetime) -> str:
    given = value_at(obj, "spec.parameters")
    if not given:
        return NONE
    group = f".{given['apiGroup']}" if given.get("apiGroup") else ""
    return f"{given['kind']}{group}/{given['name']}"


def slice_ports(obj: Object, _now: datetime) -> str:
    return _joined(
        ("*" if port.get("port") is None else port["port"] for port in obj.get("ports") or ()), nothing=UNSET
    )


def slice_endpoints(obj: Object, _now: datetime) -> str:
    addresses = (address for endpoint in obj.get("endpoints") or () for address in endpoint.get("addresses") or ())
    return _joined(addresses, nothing=UNSET)


def storage_class_name(obj: Object, _now: datetime) -> str:
    annotations, name = obj["metadata"].get("annotations") or {}, obj["metadata"]["name"]
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return f"{name} (default)" if is_default else name


def subjects(kind: str) -> Cell:
    def shown(obj: Object, _now: datetime) -> str:
        entries = [subject for subject in obj.get("subjects") or () if subject["kind"] == kind]
        is_account = kind == "ServiceAccount"
        return ", ".join(f"{s.get('namespace', '')}/{s['name']}" if is_account else s["name"] for s in entries)

    return shown


def reference(path: str) -> Cell:
    return lambda obj, _now: f"{value_at(obj, f'{path}.kind', '')}/{value_at(obj, f'{path}.name', '')}"


def request_condition(obj: Object, _now: datetime) -> str:
    present = {item["type"] for item in value_at(obj, "status.conditions", ())}
    words = [word for word in ("Approved", "Denied", "Failed") if word in present] or ["Pending"]
    return ",".join([*words, *(["Issued"] if value_at(obj, "status.certificate") else [])])


def request_duration(obj: Object, _now: datetime) -> str:
    asked = value_at(obj, "spec.expirationSeconds")
    return duration(asked) if asked is not None else NONE


def api_service_target(obj: Object, _now: datetime) -> str:
    service = value_at(obj, "spec.service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


def available(obj: Object, _now: datetime) -> str:
    for item in value_at(obj, "status.conditions", ()):
        if item["type"] == "Available":
            return f"False ({item.get('reason')})" if item["status"] == "False" else str(item["status"])
    return "Unknown"


def param_kind(obj: Object, _now: datetime) -> str:
    kind = value_at(obj, "spec.paramKind")
    return f"{kind.get('apiVersion')}/{kind.get('kind')}" if kind else UNSET
