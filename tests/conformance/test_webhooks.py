"""Admission webhooks: calls, patches, refusals, selectors, failure policies, dry run."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.conformance import hooks, objects
from tests.conformance.hooks import allow, deny, mutate
from tests.conformance.http import Api, Json
from tests.conformance.objects import config_map, core
from tests.waiting import until

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PROBE = "probe"
EVERYWHERE = "-"
"""Stands for the namespace of hooks on cluster-scoped kinds."""


@contextlib.asynccontextmanager
async def configured(
    api: Api, ns: str, kind: str, hook: hooks.Hook, *, probe: bool = True, **fields: Any
) -> AsyncIterator[None]:
    """A webhook configuration for config maps of one namespace; yields when the server calls it."""
    plural = f"{kind.lower()}webhookconfigurations"
    name = objects.unique("hook")
    webhook = {
        "name": "test.example.com",
        "clientConfig": hook.client_config,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 5,
        **fields,
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }

    async def called() -> bool:
        await api.post(core(ns, "configmaps"), config_map(PROBE), dryRun="All")
        return bool(hook.requests)

    async def settled() -> bool:
        """The controllers have written what they write into a new namespace, so that later calls are the test's own."""
        return (await api.get(core(ns, "configmaps", "kube-root-ca.crt"))).status == 200

    if ns != EVERYWHERE:
        await until(settled, "root certificate written")
    await api.create(f"{ADMISSION}/{plural}", body)
    try:
        if probe:
            await until(called, "the webhook is called")
            hook.requests.clear()
        yield
    finally:
        (await api.delete(f"{ADMISSION}/{plural}/{name}")).expect(200)


async def test_a_validating_webhook_sees_the_whole_request(api: Api, ns: str) -> None:
    async with hooks.running(lambda request: allow()) as hook, configured(api, ns, "Validating", hook):
        made = await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))
        (await api.patch(core(ns, "configmaps", "a"), {"data": {"k": "2"}})).expect(200)
        (await api.delete(core(ns, "configmaps", "a"))).expect(200)
        create, update, delete = hook.requests
    assert create["operation"] == "CREATE"
    assert create["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert create["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (create["name"], create["namespace"]) == ("a", ns)
    assert create["object"]["data"] == {"k": "1"}
    assert create["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert create["oldObject"] is None
    assert create["dryRun"] is False
    assert create["userInfo"]["username"]
    assert "system:authenticated" in create["userInfo"]["groups"]
    assert create["options"]["kind"] == "CreateOptions"
    assert update["operation"] == "UPDATE"
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"k": "1"}, {"k": "2"})
    assert delete["operation"] == "DELETE"
    assert delete["object"] is None
    assert delete["oldObject"]["data"] == {"k": "2"}


async def test_a_refusal_is_forbidden_with_its_message(api: Api, ns: str) -> None:
    async with hooks.running(lambda request: deny("not today")) as hook, configured(api, ns, "Validating", hook):
        status = (await api.post(core(ns, "configmaps"), config_map("a"))).fails(403, "Forbidden")
        assert status["message"] == 'admission webhook "test.example.com" denied the request: not today'
        (await api.get(core(ns, "configmaps", "a"))).fails(404, "NotFound")


async def test_a_refusal_may_choose_code_and_reason(api: Api, ns: str) -> None:
    decide = lambda request: deny("full", code=422, reason="Invalid")  # noqa: E731
    async with hooks.running(decide) as hook, configured(api, ns, "Validating", hook):
        status = (await api.post(core(ns, "configmaps"), config_map("a"))).fails(422, "Invalid")
        assert status["message"] == 'admission webhook "test.example.com" denied the request: full'


async def test_a_bare_refusal_is_a_400_without_reason(api: Api, ns: str) -> None:
    bare = {"allowed": False, "status": {"message": "no"}}
    async with hooks.running(lambda request: bare) as hook, configured(api, ns, "Validating", hook):
        status = (await api.post(core(ns, "configmaps"), config_map("a"))).fails(400, None)
        assert status["message"] == 'admission webhook "test.example.com" denied the request: no'


async def test_a_refusal_without_any_status(api: Api, ns: str) -> None:
    async with hooks.running(lambda request: {"allowed": False}) as hook, configured(api, ns, "Validating", hook):
        status = (await api.post(core(ns, "configmaps"), config_map("a"))).fails(400, None)
        assert status["message"] == 'admission webhook "test.example.com" denied the request without explanation'


async def test_a_mutating_webhook_patches_the_object(api: Api, ns: str) -> None:
    operation = {"op": "add", "path": "/metadata/labels", "value": {"added": "yes"}}
    async with hooks.running(lambda request: mutate(operation)) as hook, configured(api, ns, "Mutating", hook):
        made = await api.create(core(ns, "configmaps"), config_map("a"))
        assert made["metadata"]["labels"] == {"added": "yes"}
        assert (await api.read(core(ns, "configmaps", "a")))["metadata"]["labels"] == {"added": "yes"}


async def test_validation_sees_what_mutation_made(api: Api, ns: str) -> None:
    operation = {"op": "add", "path": "/data", "value": {"by": "mutation"}}
    async with (
        hooks.running(lambda request: mutate(operation)) as first,
        hooks.running(lambda request: allow()) as second,
        configured(api, ns, "Mutating", first),
        configured(api, ns, "Validating", second),
    ):
        await api.create(core(ns, "configmaps"), config_map("a"))
        assert second.requests[-1]["object"]["data"] == {"by": "mutation"}


async def test_a_mutation_that_breaks_the_object_is_refused(api: Api, ns: str) -> None:
    operation = {"op": "add", "path": "/metadata/labels", "value": {"bad key!": "x"}}
    async with hooks.running(lambda request: mutate(operation)) as hook, configured(api, ns, "Mutating", hook):
        (await api.post(core(ns, "configmaps"), config_map("a"))).fails(422, "Invalid")


async def test_operations_limit_the_calls(api: Api, ns: str) -> None:
    rules = [
        {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["configmaps"], "operations": ["DELETE", "CREATE"]}
    ]
    async with hooks.running(lambda request: allow()) as hook, configured(api, ns, "Validating", hook, rules=rules):
        await api.create(core(ns, "configmaps"), config_map("a"))
        (await api.patch(core(ns, "configmaps", "a"), {"data": {"k": "2"}})).expect(200)
        await api.create(core(ns, "secrets"), objects.secret("s"))
        (await api.delete(core(ns, "configmaps", "a"))).expect(200)
        assert [request["operation"] for request in hook.requests] == ["CREATE", "DELETE"]


async def test_an_object_selector_limits_the_calls(api: Api, ns: str) -> None:
    selector = {"matchLabels": {"check": "me"}}
    async with (
        hooks.running(lambda request: deny("no")) as hook,
        configured(api, ns, "Validating", hook, probe=False, objectSelector=selector),
    ):

        async def refused() -> bool:
            body = config_map("b", labels={"check": "me"})
            return (await api.post(core(ns, "configmaps"), body, dryRun="All")).status == 403

        await until(refused, "labelled object refused")
        await api.create(core(ns, "configmaps"), config_map("a"))
        assert all(request["name"] == "b" for request in hook.requests)
        (await api.patch(core(ns, "configmaps", "a"), {"metadata": {"labels": {"check": "me"}}})).expect(403)


async def test_a_namespace_selector_limits_the_calls(api: Api, ns: str) -> None:
    async with hooks.running(lambda request: deny("no")) as hook, configured(api, ns, "Validating", hook):
        await api.create(core("default", "configmaps"), config_map(objects.unique("free")))
        assert hook.requests == []


async def test_match_conditions_limit_the_calls(api: Api, ns: str) -> None:
    conditions = [{"name": "only-big", "expression": "has(object.data) && size(object.data) > 1"}]
    async with (
        hooks.running(lambda request: deny("no")) as hook,
        configured(api, ns, "Validating", hook, probe=False, matchConditions=conditions),
    ):

        async def refused() -> bool:
            body = config_map("b", {"k": "1", "l": "2"})
            return (await api.post(core(ns, "configmaps"), body, dryRun="All")).status == 403

        await until(refused, "big object refused")
        await api.create(core(ns, "configmaps"), config_map("a", {"k": "1"}))


async def test_failure_policy_fail_refuses_when_the_hook_is_away(api: Api, ns: str) -> None:
    async with hooks.running(lambda request: allow()) as hook:
        dead = hooks.Hook(hook.url, hook.certificate)
    async with configured(api, ns, "Validating", dead, probe=False, failurePolicy="Fail"):

        async def refused() -> Json:
            reply = await api.post(core(ns, "configmaps"), config_map("a"), dryRun="All")
            return reply.fails(500, "InternalError") if reply.status == 500 else None

        status = await until(refused, "refused because the webhook is away")
        assert 'failed calling webhook "test.example.com"' in status["message"]


async def test_failure_policy_ignore_goes_on(api: Api, ns: str) -> None:
    async with hooks.running(lambda request: allow()) as hook:
        dead = hooks.Hook("https://127.0.0.1:1", hook.certificate)
        async with (
            configured(api, ns, "Mutating", dead, probe=False, failurePolicy="Ignore"),
            configured(api, ns, "Validating", hook),
        ):
            await api.create(core(ns, "configmaps"), config_map("a"))


@pytest.mark.parametrize(("policy", "expected"), [("Fail", 500), ("Ignore", 201)])
async def test_a_slow_hook_is_a_failed_hook(api: Api, ns: str, policy: str, expected: int) -> None:
    async with (
        hooks.running(lambda request: allow(), delay_s=3.0) as hook,
        configured(api, ns, "Validating", hook, probe=False, failurePolicy=policy, timeoutSeconds=1),
    ):

        async def called() -> Json:
            reply = await api.post(core(ns, "configmaps"), config_map("a"), dryRun="All")
            return reply if hook.requests else None

        assert (await until(called, "slow hook called")).status == expected


async def test_dry_run_is_told(api: Api, ns: str) -> None:
    async with (
        hooks.running(lambda request: allow()) as hook,
        configured(api, ns, "Validating", hook, sideEffects="NoneOnDryRun"),
    ):
        await api.create(core(ns, "configmaps"), config_map("a"), dryRun="All")
        assert hook.requests[-1]["dryRun"] is True
        await api.create(core(ns, "configmaps"), config_map("a"))
        assert hook.requests[-1]["dryRun"] is False


async def test_a_hook_must_be_free_of_side_effects_on_dry_run(api: Api) -> None:
    webhook = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "sideEffects": "Some",
        "admissionReviewVersions": ["v1"],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": objects.unique("bad")},
        "webhooks": [webhook],
    }
    status = (await api.post(f"{ADMISSION}/validatingwebhookconfigurations", body)).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "webhooks[0].sideEffects"


async def test_warnings_reach_the_client(api: Api, ns: str) -> None:
    async with (
        hooks.running(lambda request: allow(warnings=["mind the gap"])) as hook,
        configured(api, ns, "Validating", hook),
    ):
        reply = await api.post(core(ns, "configmaps"), config_map("a"))
        reply.expect(201)
        assert reply.warnings == ['299 - "mind the gap"']


async def test_reinvocation_lets_a_hook_see_later_changes(api: Api, ns: str) -> None:
    def first(request: Json) -> Json:
        seen = (request["object"]["metadata"].get("labels") or {}).get("second", "no")
        return mutate({"op": "add", "path": "/metadata/annotations", "value": {"seen": seen}})

    def second(request: Json) -> Json:
        return mutate({"op": "add", "path": "/metadata/labels", "value": {"second": "yes"}})

    async with hooks.running(first) as one, hooks.running(second) as two:
        webhook = {
            "rules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        name = objects.unique("hook")
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    **webhook,
                    "name": "one.example.com",
                    "clientConfig": one.client_config,
                    "reinvocationPolicy": "IfNeeded",
                },
                {**webhook, "name": "two.example.com", "clientConfig": two.client_config},
            ],
        }
        await api.create(f"{ADMISSION}/mutatingwebhookconfigurations", body)

        async def mutated() -> Json:
            made = await api.create(core(ns, "configmaps"), config_map("a"), dryRun="All")
            return made if two.requests else None

        made = await until(mutated, "both hooks called")
        (await api.delete(f"{ADMISSION}/mutatingwebhookconfigurations/{name}")).expect(200)
    assert made["metadata"]["labels"] == {"second": "yes"}
    assert made["metadata"]["annotations"] == {"seen": "yes"}


async def test_subresources_are_matched_by_name(api: Api) -> None:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes/status"], "operations": ["UPDATE"]}]
    name = objects.unique("node")
    await api.create("/api/v1/nodes", objects.node(name))
    async with (
        hooks.running(lambda request: allow() if request["name"] != name else deny("no")) as hook,
        configured(api, EVERYWHERE, "Validating", hook, probe=False, rules=rules, namespaceSelector={}),
    ):

        async def refused() -> bool:
            return (
                await api.patch(f"/api/v1/nodes/{name}/status", {"status": {"phase": "Running"}}, dryRun="All")
            ).status == 403

        await until(refused, "status refused")
        assert hook.requests[-1]["subResource"] == "status"
        (await api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {"x": "1"}}})).expect(200)


async def test_defaults_of_a_configuration(api: Api) -> None:
    name = objects.unique("hook")
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "a.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    made = await api.create(f"{ADMISSION}/validatingwebhookconfigurations", body)
    (webhook,) = made["webhooks"]
    assert (webhook["failurePolicy"], webhook["matchPolicy"], webhook["timeoutSeconds"]) == ("Fail", "Equivalent", 10)
    assert (webhook["namespaceSelector"], webhook["objectSelector"]) == ({}, {})
    (await api.delete(f"{ADMISSION}/validatingwebhookconfigurations/{name}")).expect(200)
