"""Judges what was read of address management: definitions, pools, controller, daemons, rights, webhook. Pure.

In: `IpamFacts`. Out: findings, a good one too, so that people see what was looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import timedelta
from typing import Any

from bedplate.api import core, meta
from bedplate.cli.doctor.ipam_facts import LEASE, Account, IpamFacts, accounts_of
from bedplate.cli.doctor.reading import Permission
from bedplate.cli.ipam import explain_pools, landscape, survey
from bedplate.cli.ipam.landscape import Landscape
from bedplate.cloud.doctor import Finding, fine, note, problem, unknown
from bedplate.core.explanation import Explanation, State
from bedplate.kube import errors as kube_errors

__all__ = ["check_ipam"]

_DAEMON_LABEL = ("name", "nv-ipam-node")
_MOST = 3
_ROLL_OUT = timedelta(minutes=5)
"""So long a new daemon may take to become ready beside the one it replaces."""


def check_ipam(facts: IpamFacts) -> list[Finding]:
    """All checks of a cluster."""
    if isinstance(facts.version, Exception):
        fix = "check the kubeconfig and the network to the API server; then: kubectl version"
        return [unknown("kubernetes-api", "API server", facts.version, fix)]
    findings = [fine("kubernetes-api", "API server", f"answers, version {facts.version}")]
    for part in (_definitions, _pools, _controller, _lease, _daemons, _accounts, _webhook):
        findings += part(facts)
    return findings


def _definitions(facts: IpamFacts) -> Iterator[Finding]:
    for name, definition in facts.definitions.items():
        about = f"CustomResourceDefinition {name}"
        if isinstance(definition, Exception):
            yield unknown("definitions", about, definition)
        elif definition is None:
            yield problem(
                "definitions", about, "does not exist: pools cannot be created", "kubectl apply -k deploy/crds"
            )
        elif "v1alpha1" not in _served(definition):
            text = f"serves {', '.join(_served(definition)) or 'nothing'}, not v1alpha1"
            yield problem("definitions", about, text, "kubectl apply -k deploy/crds")
        else:
            yield fine("definitions", about, "exists and is served")


def _served(definition: Mapping[str, Any]) -> list[str]:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    if not any(entry.get("type") == "Established" and entry.get("status") == "True" for entry in conditions):
        return []
    return [entry["name"] for entry in definition["spec"]["versions"] if entry.get("served")]


# Pools


def _pools(facts: IpamFacts) -> Iterator[Finding]:
    if isinstance(facts.survey, Exception):
        yield unknown("pools", "pools, nodes and pods", facts.survey)
        return
    if facts.survey is None:
        return
    land = landscape.see(facts.survey, facts.now)
    if not land.pools:
        text = f"there are none in namespace {land.namespace}: no pod can get an address"
        yield note("pools", "IPPools and CIDRPools", text, "kubectl explain ippool.spec")
    if facts.elsewhere:
        text = f"{_few(facts.elsewhere)} are not in the served namespace {land.namespace}"
        yield note("pools", "other namespaces", text, "set --ippools-namespace of both programs to the right one")
    for pool, view in zip(land.pools, land.views, strict=True):
        yield from _told(explain_pools.explain_pool(pool, view, land))
    yield from _duplicates(land)


def _told(explanation: Explanation) -> Iterator[Finding]:
    about = f"{explanation.kind} {explanation.name}"
    fix = f"bedplate ipam explain {explanation.kind.lower()}/{explanation.name}"
    odd = [finding for finding in explanation.findings if finding.state != State.GOOD]
    if any(finding.topic == "no block" for finding in odd):
        # They are told one by one, with the reason.
        odd = [finding for finding in odd if finding.topic != "nodes"]
    for finding in odd:
        text = f"{finding.topic}: {finding.answer}: {finding.why}"
        yield problem("pools", about, text, fix) if finding.state == State.BAD else note("pools", about, text)
    if all(finding.state == State.NOTICE for finding in odd):
        yield fine(
            "pools", about, "; ".join(finding.why for finding in explanation.findings if finding.state == State.GOOD)
        )


def _duplicates(land: Landscape) -> Iterator[Finding]:
    inside = [
        holding
        for holding in land.holdings
        if any(view.network is not None and view.network.holds(holding.address) for view in land.views)
    ]
    for address, count in sorted(Counter(holding.address for holding in inside).items()):
        if count > 1:
            holders = [holding.who for holding in inside if holding.address == address]
            fix = f"bedplate ipam explain {address}   # then delete the pod that got it last"
            yield problem("addresses", str(address), f"{count} pods have it: {_few(holders)}", fix)
    if inside:
        yield fine("addresses", "pods", f"{len(inside)} addresses of pools are held, according to pods")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST]) + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "")


# Programs


def _controller(facts: IpamFacts) -> Iterator[Finding]:
    called, deployment = facts.names, facts.deployment
    about = f"Deployment {called.namespace}/{called.deployment}"
    if isinstance(deployment, Exception):
        yield unknown("controller", about, deployment)
    elif deployment is None:
        yield note(
            "controller", about, "does not exist: the controller runs elsewhere or is not deployed", called.remedy
        )
    else:
        ready = (deployment.get("status") or {}).get("readyReplicas", 0)
        replicas = (deployment.get("spec") or {}).get("replicas", 1)
        fix = f"kubectl -n {called.namespace} describe pods -l app=nvidia-k8s-ipam,name=controller"
        logs = f"kubectl -n {called.namespace} logs deployment/{called.deployment}"
        if ready < replicas:
            yield problem("controller", about, f"{ready} of {replicas} replicas are ready", f"{fix}; {logs}")
        else:
            yield fine("controller", about, f"{ready} of {replicas} replicas are ready")


def _lease(facts: IpamFacts) -> Iterator[Finding]:
    called, lease = facts.names, facts.lease
    about = f"Lease {called.namespace}/{LEASE}"
    fix = f"kubectl -n {called.namespace} logs deployment/{called.deployment}"
    if isinstance(lease, Exception):
        yield unknown("controller", about, lease)
    elif lease is None:
        text = "does not exist: no controller with --leader-elect has led here"
        # Nothing logs where nothing is deployed; what to do about that stands above.
        remark = f"{fix}   # a single controller may run without --leader-elect"
        yield note("controller", about, text, remark if facts.deployment is not None else "")
    elif not lease.spec.holder_identity:
        yield problem("controller", about, "has no holder: new nodes do not get a block", fix)
    else:
        spec = lease.spec
        age = facts.now - spec.renew_time if spec.renew_time is not None else None
        limit = timedelta(seconds=spec.lease_duration_seconds or 15)
        if age is None or age > limit:
            ago = "never" if age is None else f"{age.total_seconds():.0f} s ago"
            yield problem("controller", about, f"has expired: {spec.holder_identity} renewed it {ago}", fix)
        else:
            yield fine("controller", about, f"{spec.holder_identity} leads")


def _daemons(facts: IpamFacts) -> Iterator[Finding]:
    called, daemon_set = facts.names, facts.daemon_set
    about = f"DaemonSet {called.namespace}/{called.daemon_set}"
    if isinstance(daemon_set, Exception):
        yield unknown("daemons", about, daemon_set)
        return
    if daemon_set is None:
        yield note("daemons", about, "does not exist: the daemons run elsewhere or are not deployed", called.remedy)
        return
    key, value = _DAEMON_LABEL
    pods = [
        pod
        for pod in facts.pods
        if pod.metadata.namespace == called.namespace and pod.metadata.labels.get(key) == value
    ]
    nodes = {node.name for node in _nodes(facts)}
    bad, newcomers = _not_ready(pods, nodes)
    for pod in bad[:_MOST]:
        fix = f"kubectl -n {called.namespace} logs {pod.name}   # on the node: bedplate doctor ipam --on-node"
        text = (
            f"is not ready ({pod.status.phase or 'Pending'}): pods on {pod.spec.node_name or 'its node'} get no address"
        )
        yield problem("daemons", f"Pod {called.namespace}/{pod.name}", text, fix)
    for pod in newcomers[:_MOST]:
        yield _newcomer(pod, facts)
    missing = sorted(nodes - {pod.spec.node_name for pod in pods})
    if missing:
        text = f"has no pod on {_few(missing)}: pods there get no address"
        yield note("daemons", about, text, f"kubectl -n {called.namespace} describe daemonset {called.daemon_set}")
    status = daemon_set.get("status") or {}
    scheduled, ready = (status.get(key, 0) for key in ("desiredNumberScheduled", "numberReady"))
    fix = f"kubectl -n {called.namespace} rollout status ds/{called.daemon_set}"
    if (updated := status.get("updatedNumberScheduled", 0)) < scheduled:
        text = f"is being rolled out: {updated} of {scheduled} nodes have its newest version"
        yield note("daemons", about, text, fix)
    if not bad and ready >= scheduled:
        yield fine("daemons", about, f"{ready} of {scheduled} pods are ready")
    elif not bad:
        yield problem("daemons", about, f"{ready} of {scheduled} pods are ready", fix)


def _not_ready(pods: Sequence[core.Pod], nodes: Set[str]) -> tuple[list[core.Pod], list[core.Pod]]:
    """The pods that are not ready: those of nodes where none is, and those that started beside one that is."""
    by_node: dict[str, list[core.Pod]] = {}
    for pod in pods:
        by_node.setdefault(pod.spec.node_name, []).append(pod)
    served = {name for name, those in by_node.items() if name and any(map(_is_ready, those))}
    bad: list[core.Pod] = []
    newcomers: list[core.Pod] = []
    for name, those in by_node.items():
        coming = [pod for pod in those if not _is_ready(pod) and not pod.metadata.is_deleting]
        # One that has no place yet is for a node that is not known here.
        if name in served or (not name and nodes and nodes <= served):
            newcomers += coming
        else:
            bad += coming or those
    return bad, newcomers


def _newcomer(pod: core.Pod, facts: IpamFacts) -> Finding:
    """One that is to replace another daemon, which goes on until this one is ready."""
    space = facts.names.namespace
    where = pod.spec.node_name or "its node"
    text = f"is not ready yet ({pod.status.phase or 'Pending'}), and the daemon that it replaces serves {where}"
    fix = f"kubectl -n {space} describe pod {pod.name}; kubectl -n {space} logs {pod.name}"
    since = pod.metadata.creation_timestamp
    if since is None or facts.now - since < _ROLL_OUT:
        return note("daemons", f"Pod {space}/{pod.name}", text, fix)
    text += f"; the roll-out has waited for it for {(facts.now - since).total_seconds() / 60:.0f} minutes"
    fix += f"; kubectl -n {space} rollout undo ds/{facts.names.daemon_set}   # gives it up"
    return problem("daemons", f"Pod {space}/{pod.name}", text, fix)


def _nodes(facts: IpamFacts) -> Sequence[core.Node]:
    return facts.survey.nodes if isinstance(facts.survey, survey.Survey) else ()


def _is_ready(pod: core.Pod) -> bool:
    condition = meta.find_condition(pod.status.conditions, "Ready")
    return condition is not None and condition.is_true


# Rights


def _accounts(facts: IpamFacts) -> Iterator[Finding]:
    for account in accounts_of(facts.names):
        yield from _objects(facts, account)
        yield from _rights(facts, account)


def _objects(facts: IpamFacts, account: Account) -> Iterator[Finding]:
    missing = []
    for kind, item in (
        ("ServiceAccount", facts.accounts.get(account.name)),
        ("ClusterRole", facts.roles.get(account.name)),
        ("ClusterRoleBinding", facts.bindings.get(account.name)),
    ):
        if isinstance(item, Exception):
            yield unknown("rbac", f"{kind} {account.name}", item)
        elif item is None:
            missing.append(kind)
    about = f"{account.program}'s account"
    if len(missing) == 3 and facts.deployment is None and facts.daemon_set is None:
        yield note("rbac", about, f"{account.name} does not exist: these manifests are not deployed")
    elif missing:
        text = f"{' and '.join(missing)} {account.name} do not exist"
        yield problem("rbac", about, text, facts.names.remedy)


def _rights(facts: IpamFacts, account: Account) -> Iterator[Finding]:
    if facts.accounts.get(account.name) is None:
        return
    user, answers = account.user(facts.names.namespace), facts.rights.get(account.name, {})
    missing = [row for row, allowed in answers.items() if allowed is False]
    failed = next((answer for answer in answers.values() if isinstance(answer, Exception)), None)
    if missing:
        text = "\n".join(["may not", *(f"  {deeds}" for deeds in _by_target(missing))])
        yield problem("rbac", user, text, facts.names.remedy)
    elif failed is not None:
        yield unknown("rbac", user, failed, "run the doctor with credentials that may impersonate service accounts")
    elif answers:
        yield fine("rbac", user, f"has all {len(answers)} permissions that {account.program} needs")


def _by_target(rows: Sequence[Permission]) -> list[str]:
    verbs_by_target: dict[str, list[str]] = {}
    for row in rows:
        verbs_by_target.setdefault(row.target, []).append(row.verb)
    return [f"{', '.join(verbs)} {target}" for target, verbs in verbs_by_target.items()]


# Webhook


def _webhook(facts: IpamFacts) -> Iterator[Finding]:
    called, configuration = facts.names, facts.webhook
    about = f"ValidatingWebhookConfiguration {called.webhook}"
    if isinstance(configuration, Exception):
        yield unknown("webhook", about, configuration)
        return
    if configuration is None:
        text = "does not exist: pools are not validated on admission (see events and `bedplate ipam explain`)"
        yield note("webhook", about, text)
        return
    yield from _bundles(facts, about, configuration)
    yield from _backend(facts)
    yield _judgement(facts, about)


def _bundles(facts: IpamFacts, about: str, configuration: Mapping[str, Any]) -> Iterator[Finding]:
    empty = [
        webhook["name"]
        for webhook in configuration.get("webhooks") or ()
        if not (webhook.get("clientConfig") or {}).get("caBundle")
    ]
    if empty:
        text = f"{', '.join(empty)}: no CA bundle, so API servers do not trust the controller"
        fix = (
            "cert-manager or OpenShift's service CA adds it; with the overlay self-signed, an administrator does: "
            '"Trust the webhook" in docs/guides/ipam.md'
        )
        yield problem("webhook", about, text, fix)
    else:
        yield fine("webhook", about, f"{len(configuration.get('webhooks') or ())} webhooks, each with a CA bundle")


def _backend(facts: IpamFacts) -> Iterator[Finding]:
    called = facts.names
    about = f"Service {called.namespace}/{called.service}"
    if isinstance(facts.service, Exception):
        yield unknown("webhook", about, facts.service)
    elif facts.service is None:
        yield problem("webhook", about, "does not exist: pools cannot be created or changed", facts.names.remedy)
    elif isinstance(facts.endpoints, Exception):
        yield unknown("webhook", about, facts.endpoints)
    else:
        ready = [
            endpoint
            for each in facts.endpoints
            for endpoint in each.endpoints or ()
            if endpoint.conditions.ready is not False
        ]
        if ready:
            yield fine("webhook", about, f"{len(ready)} ready pods")
        else:
            fix = f"kubectl -n {called.namespace} logs deployment/{called.deployment}   # does it run with --webhook?"
            yield problem("webhook", about, "it has no ready pod: pools cannot be created or changed", fix)


def _judgement(facts: IpamFacts, about: str) -> Finding:
    verdict, called = facts.verdict, facts.names
    if verdict is None:
        return problem(
            "webhook", about, "a pool larger than its network was accepted: the webhook is not called", called.remedy
        )
    if isinstance(verdict, kube_errors.Forbidden) and "denied the request" in str(verdict):
        return fine("webhook", about, "rejects an invalid pool")
    if isinstance(verdict, kube_errors.Forbidden):
        return unknown("webhook", about, verdict, "run the doctor with credentials that may create IPPools")
    if isinstance(verdict, kube_errors.Invalid):
        return unknown("webhook", about, verdict, f"apply the definitions of this release: {called.remedy}")
    fix = f"kubectl -n {called.namespace} logs deployment/{called.deployment}   # can API servers reach its port 9443?"
    return problem("webhook", about, f"cannot be reached, so pools cannot be created or changed: {verdict}", fix)
