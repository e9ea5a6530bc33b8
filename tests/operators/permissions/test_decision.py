"""The decision about a pod: the table, what is set, claims, shared namespaces, and what people write into files."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.operators.permissions import podtable
from tests.operators.permissions.podtable import Case

from bedplate.operators.permissions import decision, mutation, refusals
from bedplate.operators.permissions.decision import Operation, decide
from bedplate.operators.permissions.rules import NamespaceRules, RuleSet
from bedplate.operators.permissions.volumes import Claim

TABLE = [*podtable.cases(), *podtable.early()]
PATH_CLAIM = Claim("/home/john/data", "volume", may_be_host_path=True)
FOREIGN_CLAIM = Claim("/etc", "volume", may_be_host_path=True)


@pytest.mark.parametrize("case", TABLE, ids=[f"{case.user}: {case.name}" for case in TABLE])
def test_a_pod_of_the_table_is_judged_as_it_says(case: Case) -> None:
    found = tuple(decision.check(podtable.rules(case.user), case.pod))
    release = podtable.rules(case.user).sets[0].release
    if not case.rule:
        assert not found
    else:
        assert found[0].rule.startswith(f"{release}-{case.rule}")
        assert found[0].field.startswith(("spec.", "metadata."))
        assert found[0].message and found[0].remedy


def test_the_table_is_large_and_its_names_are_unique() -> None:
    assert len(TABLE) > 120
    assert len({(case.user, case.name) for case in TABLE}) == len(TABLE)


@pytest.mark.parametrize("case", [case for case in TABLE if not case.rule], ids=lambda case: case.name)
def test_what_is_complete_is_admitted_with_few_changes_and_again_with_none(case: Case) -> None:
    rules = podtable.rules(case.user)
    first = decide(rules, case.pod)
    assert first.is_admitted, first.message
    second = decide(rules, first.pod)
    assert second.is_admitted
    assert second.patch == ()


def context_of(pod: Any) -> dict[str, Any]:
    return dict(pod["spec"].get("securityContext", {}))


def test_a_pod_that_says_nothing_runs_as_the_user() -> None:
    verdict = decide(podtable.rules("john"), podtable.open_pod())
    assert verdict.is_admitted
    assert context_of(verdict.pod) == {
        "runAsUser": 1000,
        "runAsGroup": 1000,
        "fsGroup": 1000,
        "supplementalGroups": [1000, 100],
    }
    assert verdict.pod["spec"]["containers"][0]["securityContext"] == {"allowPrivilegeEscalation": False}


def test_init_and_ephemeral_containers_get_no_privileges_either() -> None:
    pod = podtable.open_pod()
    pod["spec"]["initContainers"] = [{"name": "first", "image": "x"}]
    verdict = decide(podtable.rules("john"), pod)
    assert verdict.pod["spec"]["initContainers"][0]["securityContext"]["allowPrivilegeEscalation"] is False


def test_groups_of_the_image_are_ignored_with_a_path_of_the_node() -> None:
    pod = podtable.open_pod()
    pod["spec"]["volumes"] = [{"name": "h", "hostPath": {"path": "/home/john"}}]
    verdict = decide(podtable.rules("john"), pod)
    assert verdict.is_admitted
    assert context_of(verdict.pod)["supplementalGroupsPolicy"] == "Strict"


def test_an_older_server_is_not_told_about_a_field_that_it_does_not_know() -> None:
    rules = NamespaceRules(podtable.rules("john").sets, needs_strict_groups=False)
    pod = podtable.open_pod()
    pod["spec"]["volumes"] = [{"name": "h", "hostPath": {"path": "/home/john"}}]
    verdict = decide(rules, pod)
    assert verdict.is_admitted
    assert "supplementalGroupsPolicy" not in context_of(verdict.pod)


def test_nothing_is_set_where_anybody_may_run_without_a_path() -> None:
    verdict = decide(podtable.rules("free"), podtable.open_pod())
    assert verdict.is_admitted
    assert verdict.patch == ()


def test_the_user_is_set_where_anybody_may_run_as_soon_as_there_is_a_path() -> None:
    pod = podtable.open_pod()
    pod["spec"]["volumes"] = [{"name": "h", "hostPath": {"path": "/home/john"}}]
    verdict = decide(podtable.rules("free"), pod)
    assert verdict.is_admitted
    assert context_of(verdict.pod)["runAsUser"] == 1000


def test_what_a_pod_says_is_never_overwritten() -> None:
    verdict = decide(podtable.rules("john"), podtable.whole(runAsUser=0))
    assert not verdict.is_admitted
    assert context_of(verdict.pod)["runAsUser"] == 0


def test_a_namespace_without_rules_lets_everything_pass() -> None:
    pod = podtable.mounting("/etc", podtable.whole(runAsUser=0))
    assert decide(NamespaceRules(), pod).patch == ()
    assert decide(NamespaceRules(), pod).is_admitted


def test_a_namespace_that_lost_its_rules_admits_nothing() -> None:
    verdict = decide(NamespaceRules((), is_labelled=True), podtable.complete())
    assert "lost its rules" in verdict.message


def claiming(**pod: Any) -> dict[str, Any]:
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    made = podtable.open_pod(**pod)
    made["spec"]["volumes"] = [volume]
    return made


def test_a_claim_on_a_foreign_path_is_refused() -> None:
    verdict = decide(podtable.rules("john"), claiming(), claims={"data": FOREIGN_CLAIM})
    assert "limit-hostpath-vols" in verdict.message
    assert "spec.volumes[0].persistentVolumeClaim" in verdict.message


def test_a_claim_on_an_own_path_counts_as_a_path() -> None:
    as_root = decide(podtable.rules("free"), claiming(runAsUser=0), claims={"data": PATH_CLAIM})
    assert not as_root.is_admitted
    as_oneself = decide(podtable.rules("free"), claiming(), claims={"data": PATH_CLAIM})
    assert as_oneself.is_admitted
    assert context_of(as_oneself.pod)["runAsUser"] == 1000


def test_a_claim_that_nobody_knows_counts_as_a_path() -> None:
    assert not decide(podtable.rules("free"), claiming(runAsUser=0)).is_admitted


def test_a_claim_that_a_provisioner_served_is_free() -> None:
    assert decide(podtable.rules("free"), claiming(runAsUser=0), claims={"data": Claim("", "v")}).is_admitted


def test_an_ephemeral_volume_is_a_claim() -> None:
    pod = podtable.open_pod()
    pod["spec"]["volumes"] = [{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}]
    verdict = decide(podtable.rules("john"), pod, claims={"pod-data": FOREIGN_CLAIM})
    assert "limit-hostpath-vols" in verdict.message


def two_users(**second: Any) -> NamespaceRules:
    jane = {"uid": 1001, "gids": (1001,), "user_paths": ("/home/jane", "/scratch"), **second}
    return NamespaceRules.of([podtable.resource("john", "dev"), podtable.resource("jane", "dev", **jane)])


def test_a_second_user_of_a_namespace_opens_no_path_of_the_first() -> None:
    rules = two_users()
    for path in ("/home/john", "/home/jane"):
        for uid in (1000, 1001):
            assert not decide(rules, podtable.mounting(path, podtable.whole(runAsUser=uid))).is_admitted


def test_users_of_one_namespace_may_each_run_as_themselves_without_paths() -> None:
    rules = two_users()
    for uid, gid in ((1000, 1000), (1001, 1001)):
        assert decide(rules, podtable.open_pod(runAsUser=uid, runAsGroup=gid)).is_admitted
    assert not decide(rules, podtable.open_pod(runAsUser=0)).is_admitted


def test_a_path_that_users_of_one_identity_share_is_open() -> None:
    rules = two_users(uid=1000, gids=(1000, 100))
    assert decide(rules, podtable.mounting("/scratch/x")).is_admitted
    assert not decide(rules, podtable.mounting("/home/john")).is_admitted


def test_a_privilege_needs_the_permission_of_every_user() -> None:
    rules = two_users(allowPrivileged=True)
    assert not decide(rules, podtable.contained(privileged=True, allowPrivilegeEscalation=None)).is_admitted


def debugging(ephemeral: dict[str, Any], pod: dict[str, Any] | None = None) -> dict[str, Any]:
    changed = copy.deepcopy(pod if pod is not None else podtable.complete())
    changed["spec"]["ephemeralContainers"] = [{"name": "debugger", "image": "x", **ephemeral}]
    return changed


def test_a_debugger_is_held_to_the_same_rules() -> None:
    rules = podtable.rules("john")
    for context in ({"privileged": True}, {"runAsUser": 0}, {"capabilities": {"add": ["SYS_PTRACE"]}}):
        verdict = decide(rules, debugging({"securityContext": context}), Operation.DEBUG)
        assert not verdict.is_admitted
        assert "spec.ephemeralContainers[0]" in verdict.message


def test_a_debugger_is_the_only_part_of_a_running_pod_that_changes() -> None:
    verdict = decide(podtable.rules("john"), debugging({}), Operation.DEBUG)
    assert verdict.is_admitted
    assert [change["path"] for change in verdict.patch] == ["/spec/ephemeralContainers/0/securityContext"]


def test_a_debugger_runs_as_the_user_even_if_its_pod_says_nothing() -> None:
    before = podtable.contained(podtable.open_pod(runAsGroup=1000), runAsUser=1000, allowPrivilegeEscalation=False)
    verdict = decide(podtable.rules("john"), debugging({}, before), Operation.DEBUG)
    assert verdict.is_admitted, verdict.message
    assert verdict.pod["spec"]["ephemeralContainers"][0]["securityContext"]["runAsUser"] == 1000


def test_a_pod_from_before_the_rules_cannot_be_debugged() -> None:
    old = podtable.mounting("/etc", podtable.whole(runAsUser=0))
    assert not decide(podtable.rules("john"), debugging({}, old), Operation.DEBUG).is_admitted


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"spec": None},
        {"spec": []},
        {"spec": {"containers": None, "volumes": "x", "securityContext": 3}},
        {"spec": {"containers": [None, 1], "volumes": [None, {"hostPath": "x"}], "initContainers": {}}},
        {"spec": {"containers": [{"securityContext": None, "ports": [1], "lifecycle": "x"}]}, "metadata": None},
    ],
)
def test_what_is_not_a_pod_is_no_traceback(pod: dict[str, Any]) -> None:
    decide(podtable.rules("john"), pod)


@pytest.mark.parametrize("name", ["containers", "initContainers", "ephemeralContainers", "volumes"])
@pytest.mark.parametrize("operation", Operation)
def test_a_pod_that_would_keep_the_webhook_busy_is_not_looked_at(name: str, operation: Operation) -> None:
    """One request of three megabytes has a million containers, and every other user waits for its answer."""
    pod = podtable.open_pod()
    pod["spec"][name] = [{}] * 1_000_000
    verdict = decide(podtable.rules("john"), pod, operation)
    (refusal,) = verdict.refusals
    assert (refusal.rule.removeprefix(podtable.rules("john").sets[0].release), refusal.field) == (
        f"-{refusals.SIZE}",
        f"spec.{name}",
    )
    assert (verdict.patch, verdict.pod) == ((), pod)
    assert tuple(decision.check(podtable.rules("john"), pod)) == (refusal,)


def test_of_very_many_reasons_the_first_are_named() -> None:
    verdict = decide(podtable.rules("john"), podtable.whole(supplementalGroups=[0] * 1_000_000))
    assert len(verdict.refusals) == decision.MOST_REASONS
    assert len(verdict.message) < 10_000
    assert verdict.message.endswith("there are more reasons")
    assert "more reasons" not in decide(podtable.rules("john"), podtable.whole(supplementalGroups=[0])).message


def test_every_container_of_many_is_changed_in_its_own_place() -> None:
    pod = podtable.open_pod()
    pod["spec"]["containers"] = [{"name": f"c{number}", "image": "x"} for number in range(3)]
    pod["spec"]["initContainers"] = [{"name": f"i{number}", "image": "x"} for number in range(2)]
    before = copy.deepcopy(pod)
    changed = decide(podtable.rules("john"), pod).pod["spec"]
    assert pod == before
    for name in ("containers", "initContainers"):
        assert [each["name"] for each in changed[name]] == [each["name"] for each in pod["spec"][name]]
        assert all(each["securityContext"] == {"allowPrivilegeEscalation": False} for each in changed[name])


def test_every_refusal_reads_as_a_sentence() -> None:
    refusal = refusals.Refusal("john-abc-limit", "spec.x", "no", "do this")
    assert str(refusal) == "john-abc-limit: spec.x: no; do this"


identifiers = st.integers(0, 3)
paths = st.sampled_from(["/home/a", "/home/b", "/", "/x"])
rule_sets = st.builds(
    RuleSet,
    release=st.sampled_from(["a-1", "b-2"]),
    user=st.just("u"),
    uid=st.integers(-1, 2),
    gids=st.lists(identifiers, max_size=2, unique=True).map(tuple),
    paths=st.lists(paths.map(lambda path: path.rstrip("/") + "/"), max_size=2).map(tuple),
    allows=st.frozensets(st.sampled_from(["all-uids", "escalation", "privileged"])),
)
contexts = st.fixed_dictionaries(
    {},
    optional={"runAsUser": identifiers, "runAsGroup": identifiers, "fsGroup": identifiers},
)
pods = st.builds(
    lambda whole, own, volumes: {
        "spec": {
            "securityContext": whole,
            "containers": [{"name": "c", "securityContext": own}],
            "volumes": [{"name": f"v{i}", "hostPath": {"path": path}} for i, path in enumerate(volumes)],
        }
    },
    contexts,
    contexts,
    st.lists(paths, max_size=2),
)


@given(st.lists(rule_sets, min_size=1, max_size=2).map(tuple), pods)
def test_an_admitted_pod_never_has_a_foreign_path_or_a_foreign_user_on_it(sets: Any, pod: Any) -> None:
    verdict = decide(NamespaceRules(sets), pod)
    if not verdict.is_admitted:
        return
    spec = verdict.pod["spec"]
    for volume in spec["volumes"]:
        assert all(each.has_path(volume["hostPath"]["path"]) for each in sets)
    if spec["volumes"]:
        own = spec["containers"][0].get("securityContext", {})
        for name, numbers in (("runAsUser", [(each.uid,) for each in sets]), ("runAsGroup", [e.gids for e in sets])):
            value = own.get(name, spec["securityContext"].get(name))
            assert all(value in each for each in numbers)
    assert mutation.applied(pod, verdict.patch) == verdict.pod


@given(rule_sets)
def test_rules_survive_the_way_through_an_annotation(rule_set: RuleSet) -> None:
    rules = NamespaceRules((rule_set,))
    assert NamespaceRules.parse(rules.annotations()) == rules
