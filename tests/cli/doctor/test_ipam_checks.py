"""What the doctor says about address management in a cluster: an error is neither good nor absent."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.cli.ipam.makers import NOW, attached, ippool, node, pod

from bedplate.api import coordination, core, discovery, meta
from bedplate.apiserver import cel
from bedplate.apiserver.cel import types
from bedplate.cli.doctor.ipam_checks import check_ipam
from bedplate.cli.doctor.ipam_facts import PROBE, IpamFacts, Names, accounts_of
from bedplate.cli.doctor.reading import Permission
from bedplate.cli.doctor.report import exit_code
from bedplate.cli.ipam.holders import of_pods
from bedplate.cli.ipam.survey import Survey
from bedplate.cloud.doctor import Finding
from bedplate.core import errors
from bedplate.ipam import pools, validation
from bedplate.kube import errors as kube_errors

NAMES = Names()
DEFINITION = {
    "spec": {"versions": [{"name": "v1alpha1", "served": True}]},
    "status": {"conditions": [{"type": "Established", "status": "True"}]},
}
POOL = ippool("pool1", {"host-a": "10.0.0.1-10.0.0.10"}, subnet="10.0.0.0/24", perNodeBlockSize=10)
ACCOUNTS = accounts_of(NAMES)


def daemon(on: str, ready: str = "True", **metadata: Any) -> core.Pod:
    about = {"name": f"nv-ipam-node-ds-{on}", "namespace": "kube-system", "labels": {"name": "nv-ipam-node"}}
    body = {
        "metadata": about | metadata,
        "spec": {"nodeName": on},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(body, core.Pod)


def denied(message: str) -> kube_errors.Forbidden:
    return kube_errors.Forbidden(kube_errors.Target("POST", "/ippools"), meta.Status(message=message, code=403))


def invalid(message: str) -> kube_errors.Invalid:
    return kube_errors.Invalid(kube_errors.Target("POST", "/ippools"), meta.Status(message=message, code=422))


WEBHOOK = {"webhooks": [{"name": "validate-ippool.nv-ipam.nvidia.com", "clientConfig": {"caBundle": "LS0t"}}]}
SLICE = msgspec.convert({"endpoints": [{"addresses": ["10.1.1.1"]}]}, discovery.EndpointSlice)
WELL = IpamFacts(
    NAMES,
    NOW,
    "v1.35.4",
    {"ippools.nv-ipam.nvidia.com": DEFINITION, "cidrpools.nv-ipam.nvidia.com": DEFINITION},
    Survey("kube-system", (POOL,), (), (node("host-a"),), pods=(daemon("host-a"),)),
    deployment={"spec": {"replicas": 1}, "status": {"readyReplicas": 1}},
    lease=coordination.Lease(
        spec=coordination.LeaseSpec(
            holder_identity="a_1", lease_duration_seconds=15, renew_time=NOW - timedelta(seconds=3)
        )
    ),
    daemon_set={"status": {"desiredNumberScheduled": 1, "numberReady": 1, "updatedNumberScheduled": 1}},
    roles={one.name: {"rules": []} for one in ACCOUNTS},
    bindings={one.name: {"subjects": []} for one in ACCOUNTS},
    accounts={one.name: core.ServiceAccount() for one in ACCOUNTS},
    rights={one.name: dict.fromkeys(one.needed, True) for one in ACCOUNTS},
    webhook=WEBHOOK,
    service=core.Service(),
    endpoints=(SLICE,),
    verdict=denied('admission webhook "x" denied the request: spec.subnet'),
)


def test_what_tries_the_webhook_passes_the_rules_of_the_definition() -> None:
    """Else the API server would reject it itself, and a webhook in order would look like one that is not reached."""
    file = Path(__file__).parents[3] / "deploy" / "crds" / "nv-ipam.nvidia.com_ippools.yaml"
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    rules = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"]
    spec = PROBE["spec"]
    assert [
        one["rule"] for one in rules if not cel.compile_expression(one["rule"], {"self": types.DYN}).run(spec)
    ] == []
    assert validation.ippool_problems("probe", msgspec.convert(spec, pools.IPPoolSpec)) != []


def wrong(facts: IpamFacts) -> list[Finding]:
    return [finding for finding in check_ipam(facts) if finding.level != "ok"]


def with_survey(**changes: Any) -> IpamFacts:
    assert isinstance(WELL.survey, Survey)
    return dataclasses.replace(WELL, survey=dataclasses.replace(WELL.survey, **changes))


def one_of(findings: Iterable[Finding], check: str) -> Finding:
    (found,) = [finding for finding in findings if finding.check == check]
    return found


def test_a_cluster_in_order_has_no_findings_and_exit_code_0() -> None:
    assert wrong(WELL) == []
    assert exit_code(check_ipam(WELL)) == 0


def test_nothing_is_judged_when_the_server_does_not_answer() -> None:
    (found,) = check_ipam(IpamFacts(NAMES, NOW, errors.Unavailable("no answer")))
    assert (found.level, found.check) == ("unknown", "kubernetes-api")


@pytest.mark.parametrize(
    ("changes", "check", "level", "told"),
    [
        ({"definitions": {"ippools.x": None}}, "definitions", "problem", "kubectl apply -k deploy/crds"),
        ({"definitions": {"ippools.x": errors.Unavailable("x")}}, "definitions", "unknown", "could not be checked"),
        ({"deployment": {"spec": {"replicas": 2}, "status": {}}}, "controller", "problem", "0 of 2 replicas"),
        ({"deployment": None}, "controller", "note", "deploy/overlays/no-webhook"),
        ({"lease": None}, "controller", "note", "--leader-elect"),
        ({"lease": coordination.Lease()}, "controller", "problem", "has no holder"),
        ({"daemon_set": None}, "daemons", "note", "does not exist"),
        ({"webhook": None}, "webhook", "note", "does not exist"),
        ({"webhook": {"webhooks": [{"name": "w", "clientConfig": {}}]}}, "webhook", "problem", "no CA bundle"),
        ({"service": None}, "webhook", "problem", "pools cannot be created or changed"),
        ({"endpoints": ()}, "webhook", "problem", "it has no ready pod"),
        ({"verdict": None}, "webhook", "problem", "the webhook is not called"),
        ({"verdict": denied("cannot create ippools")}, "webhook", "unknown", "may create IPPools"),
        ({"verdict": invalid("must be a network")}, "webhook", "unknown", "must be a network"),
        ({"verdict": errors.Unavailable("failed calling webhook")}, "webhook", "problem", "failed calling webhook"),
        ({"elsewhere": ("IPPool a/b",)}, "pools", "note", "--ippools-namespace"),
    ],
)
def test_what_is_missing_or_broken_is_told_with_what_mends_it(
    changes: dict[str, Any], check: str, level: str, told: str
) -> None:
    found = one_of(wrong(dataclasses.replace(WELL, **changes)), check)
    assert found.level == level
    assert told in found.message + found.fix


def test_an_expired_lease_says_since_when() -> None:
    assert isinstance(WELL.lease, coordination.Lease)
    late = dataclasses.replace(WELL, now=NOW + timedelta(minutes=5))
    found = one_of(wrong(late), "controller")
    assert found.level == "problem" and "303 s ago" in found.message


def test_a_daemon_that_is_not_ready_and_a_node_without_one_are_named() -> None:
    facts = with_survey(nodes=(node("host-a"), node("host-b")), pods=(daemon("host-a", "False"),))
    told = [finding for finding in wrong(facts) if finding.check == "daemons"]
    assert [finding.level for finding in told] == ["problem", "note"]
    assert "pods on host-a get no address" in told[0].message and "host-b" in told[1].message


def told_of_daemons(*pods: core.Pod, updated: int = 0, nodes: Sequence[str] = ("host-a",)) -> list[Finding]:
    """While the DaemonSet is rolled out."""
    facts = with_survey(nodes=tuple(map(node, nodes)), pods=pods)
    status = {"desiredNumberScheduled": 1, "numberReady": 1, "updatedNumberScheduled": updated}
    facts = dataclasses.replace(facts, daemon_set={"status": {key: value for key, value in status.items() if value}})
    return [finding for finding in wrong(facts) if finding.check == "daemons"]


@pytest.mark.parametrize("on", ["host-a", ""])
def test_a_daemon_that_starts_beside_another_one_is_no_problem_until_it_takes_too_long(on: str) -> None:
    """On its node, or still without a place because the node has no room for two."""
    for minutes, level in ((1, "note"), (30, "problem")):
        new = daemon(on, "False", name="new", creationTimestamp=NOW - timedelta(minutes=minutes))
        newcomer, roll_out = told_of_daemons(daemon("host-a"), new)
        assert (newcomer.level, newcomer.about, roll_out.level) == (level, "Pod kube-system/new", "note")
        assert "the daemon that it replaces serves" in newcomer.message and "no address" not in newcomer.message
        assert ("waited for it for 30 minutes" in newcomer.message) == (level == "problem")
        assert "0 of 1 nodes have its newest version" in roll_out.message and "rollout status" in roll_out.fix


def test_a_daemon_that_ends_is_no_problem_where_its_successor_is_ready() -> None:
    ending = daemon("host-a", "False", name="old", deletionTimestamp=NOW)
    assert told_of_daemons(ending, daemon("host-a"), updated=1) == []
    # Both ready: one of them stands by.
    assert told_of_daemons(daemon("host-a", name="old"), daemon("host-a"), updated=1) == []
    (alone,) = told_of_daemons(ending, updated=1)
    assert (alone.level, alone.about) == ("problem", "Pod kube-system/old")
    (late,) = told_of_daemons(ending, daemon("host-a", "False", name="new"), updated=1)
    assert (late.level, late.about) == ("problem", "Pod kube-system/new")


def test_a_daemon_without_a_place_is_a_problem_where_a_node_has_no_other() -> None:
    new = daemon("", "False", name="new")
    told = told_of_daemons(daemon("host-a"), new, updated=1, nodes=("host-a", "host-b"))
    assert [(one.level, one.about.partition(" ")[0]) for one in told] == [("problem", "Pod"), ("note", "DaemonSet")]
    assert "pods on its node get no address" in told[0].message


def test_nodes_without_a_block_and_invalid_pools_point_to_their_explanation() -> None:
    found = one_of(wrong(with_survey(nodes=(node("host-a"), node("host-b")))), "pools")
    assert "host-b" in found.message and found.fix == "bedplate ipam explain ippool/pool1"
    bad = ippool("pool1", subnet="10.0.0.0/24", perNodeBlockSize=500)
    told = [one for one in wrong(with_survey(ippools=(bad,))) if one.check == "pools"]
    assert any("spec.perNodeBlockSize" in one.message for one in told)


def test_pods_that_share_an_address_stand_out() -> None:
    holdings = tuple(of_pods(pod(name, "host-a", status=attached("10.0.0.2")) for name in ("a", "b")))
    found = one_of(wrong(with_survey(holdings=holdings)), "addresses")
    assert (found.level, found.about) == ("problem", "10.0.0.2")
    assert "default/a, default/b" in found.message


def test_missing_rights_are_listed_by_what_they_are_about() -> None:
    account = ACCOUNTS[0]
    rows = {**WELL.rights[account.name], Permission("update", "ippools", "nv-ipam.nvidia.com", "status"): False}
    found = one_of(wrong(dataclasses.replace(WELL, rights={**WELL.rights, account.name: rows})), "rbac")
    assert "  update ippools.nv-ipam.nvidia.com/status" in found.message.splitlines()


def test_a_missing_role_is_wrong_where_the_program_is_deployed_and_a_note_where_it_is_not() -> None:
    nobody: dict[str, Any] = dict.fromkeys(one.name for one in ACCOUNTS)
    found = [one for one in wrong(dataclasses.replace(WELL, roles=nobody)) if one.check == "rbac"]
    assert {one.level for one in found} == {"problem"}
    absent = dataclasses.replace(WELL, roles=nobody, bindings=nobody, accounts=nobody, deployment=None, daemon_set=None)
    assert {one.level for one in wrong(absent) if one.check == "rbac"} == {"note"}
