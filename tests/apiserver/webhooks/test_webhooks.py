"""Admission webhooks, asked over real HTTPS: who is asked, what answers do, what failures mean."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from tests.apiserver.webhooks.conftest import Answer, Chain, Endpoint, config, patch, write

from bedplate.apiserver import status
from bedplate.apiserver.webhooks import admission


async def refusal(action: Any) -> status.StatusError:
    with pytest.raises(status.StatusError) as caught:
        await action
    return caught.value


async def test_the_review_says_what_is_being_done_by_whom(endpoint: Endpoint, chain: Chain) -> None:
    endpoint.answers["/v"] = lambda request: {"allowed": True, "warnings": ["careful"]}
    chain.add(admission.VALIDATING, config(endpoint.client("/v")))
    pending = write("UPDATE", dry_run=True)
    assert chain.admission.wants(pending)
    await chain.admission.validate(pending)
    request = endpoint.asked[0][1]
    assert request.pop("uid")
    assert request == {
        "kind": {"group": "g.io", "version": "v1", "kind": "Widget"},
        "resource": {"group": "g.io", "version": "v1", "resource": "widgets"},
        "requestKind": {"group": "g.io", "version": "v1", "kind": "Widget"},
        "requestResource": {"group": "g.io", "version": "v1", "resource": "widgets"},
        "name": "x",
        "namespace": "ns",
        "operation": "UPDATE",
        "userInfo": {"username": "alice", "groups": ["devs"], "extra": {"scope": ["a"]}},
        "object": pending.new,
        "oldObject": pending.old,
        "dryRun": True,
        "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    assert pending.warnings == ["careful"]


@pytest.mark.parametrize(
    ("result", "code", "ending"),
    [
        (
            {"code": 418, "message": "no tea", "reason": "Odd"},
            418,
            ": no tea",
        ),
        ({"reason": "Odd"}, 400, ": Odd"),
        (None, 400, " without explanation"),
    ],
)
async def test_a_denial_carries_the_webhooks_own_status(
    endpoint: Endpoint, chain: Chain, result: Any, code: int, ending: str
) -> None:
    endpoint.answers["/v"] = lambda request: {"allowed": False} | ({"status": result} if result else {})
    chain.add(admission.VALIDATING, config(endpoint.client("/v"), failurePolicy="Ignore"))
    found = await refusal(chain.admission.validate(write()))
    assert found.code == code
    assert found.message == f'admission webhook "a.example.com" denied the request{ending}'


async def test_patches_are_applied_in_order_of_configuration_names(endpoint: Endpoint, chain: Chain) -> None:
    endpoint.answers["/one"] = lambda request: patch(
        {"op": "add", "path": "/spec/one", "value": request["object"]["spec"]["n"]}
    )
    endpoint.answers["/two"] = lambda request: patch(
        {"op": "replace", "path": "/spec/n", "value": request["object"]["spec"]["one"] + 1},
        {"op": "add", "path": "/junk", "value": 1},
    )
    chain.add(admission.MUTATING, config(endpoint.client("/two")), name="b")
    chain.add(admission.MUTATING, config(endpoint.client("/one")), name="a")
    pending = write()
    await chain.admission.mutate(pending)
    assert endpoint.paths == ["/one", "/two"]
    assert pending.object["spec"] == {"n": 2, "one": 1}
    assert "junk" not in pending.object


async def test_a_webhook_is_asked_again_only_if_it_wants_and_a_later_one_changed_the_object(
    endpoint: Endpoint, chain: Chain
) -> None:
    endpoint.answers["/eager"] = lambda request: {"allowed": True}
    endpoint.answers["/plain"] = lambda request: {"allowed": True}
    endpoint.answers["/change"] = lambda request: patch({"op": "add", "path": "/spec/c", "value": 1})
    chain.add(
        admission.MUTATING,
        config(endpoint.client("/eager"), "a.example.com", reinvocationPolicy="IfNeeded"),
        config(endpoint.client("/plain"), "b.example.com"),
        config(endpoint.client("/change"), "c.example.com", reinvocationPolicy="IfNeeded"),
    )
    await chain.admission.mutate(write())
    assert endpoint.paths == ["/eager", "/plain", "/change", "/eager"]


async def test_validating_webhooks_are_asked_at_once(endpoint: Endpoint, chain: Chain) -> None:
    both = asyncio.Event()

    async def meet(request: dict[str, Any]) -> dict[str, Any]:
        if len(endpoint.asked) == 2:
            both.set()
        await both.wait()
        return {"allowed": True}

    endpoint.answers["/v"] = meet
    hook = endpoint.client("/v")
    chain.add(admission.VALIDATING, config(hook, "a.example.com"), config(hook, "b.example.com"))
    await chain.admission.validate(write())
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize(
    ("rules", "asked"),
    [
        ({"operations": ["DELETE"]}, False),
        ({"operations": ["CREATE", "UPDATE"]}, True),
        ({"apiGroups": [""]}, False),
        ({"apiGroups": ["*"]}, True),
        ({"resources": ["widgets/status"]}, False),
        ({"resources": ["*"]}, True),
        ({"resources": ["*/*"]}, True),
        ({"resources": ["things"]}, False),
        ({"scope": "Cluster"}, False),
        ({"scope": "Namespaced"}, True),
    ],
)
async def test_rules_choose_the_request(endpoint: Endpoint, chain: Chain, rules: Any, asked: bool) -> None:
    endpoint.answers["/v"] = lambda request: {"allowed": True}
    hook = config(endpoint.client("/v"))
    hook["rules"][0] |= rules
    chain.add(admission.VALIDATING, hook)
    await chain.admission.validate(write())
    assert bool(endpoint.asked) is asked


@pytest.mark.parametrize(
    ("resources", "asked"), [("widgets", 0), ("widgets/status", 1), ("widgets/*", 1), ("*/status", 1)]
)
async def test_a_subresource_must_be_named(endpoint: Endpoint, chain: Chain, resources: str, asked: int) -> None:
    endpoint.answers["/v"] = lambda request: {"allowed": True}
    hook = config(endpoint.client("/v"))
    hook["rules"][0]["resources"] = [resources]
    chain.add(admission.VALIDATING, hook)
    await chain.admission.validate(write("UPDATE", subresource="status"))
    assert len(endpoint.asked) == asked


async def test_another_version_matches_unless_the_policy_is_exact(endpoint: Endpoint, chain: Chain) -> None:
    endpoint.answers["/m"] = lambda request: patch(
        {"op": "add", "path": "/spec/seen", "value": request["object"]["apiVersion"]}
    )
    chain.add(admission.MUTATING, config(endpoint.client("/m"), matchPolicy="Exact"))
    pending = write(version="v2")
    await chain.admission.mutate(pending)
    assert endpoint.asked == []
    chain.add(admission.MUTATING, config(endpoint.client("/m")))
    await chain.admission.mutate(pending)
    request = endpoint.asked[0][1]
    assert request["kind"]["version"] == "v1" and request["requestKind"]["version"] == "v2"
    assert pending.object["spec"]["seen"] == "g.io/v1"
    assert pending.object["apiVersion"] == "g.io/v2"


@pytest.mark.parametrize(
    ("selectors", "asked"),
    [
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, True),
        ({"namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}}, False),
        ({"objectSelector": {"matchLabels": {"app": "x"}}}, True),
        ({"objectSelector": {"matchLabels": {"app": "y"}}}, False),
    ],
)
async def test_selectors_choose_objects_and_namespaces(
    endpoint: Endpoint, chain: Chain, selectors: Any, asked: bool
) -> None:
    endpoint.answers["/v"] = lambda request: {"allowed": True}
    chain.add(admission.VALIDATING, config(endpoint.client("/v"), **selectors))
    await chain.admission.validate(write(labels={"app": "x"}))
    assert bool(endpoint.asked) is asked


async def test_a_namespace_selector_does_not_hold_back_cluster_scoped_kinds(endpoint: Endpoint, chain: Chain) -> None:
    endpoint.answers["/v"] = lambda request: {"allowed": True}
    hook = config(endpoint.client("/v"), namespaceSelector={"matchLabels": {"env": "none"}})
    hook["rules"][0]["resources"] = ["things"]
    chain.add(admission.VALIDATING, hook)
    await chain.admission.validate(write(resource="things"))
    assert len(endpoint.asked) == 1


async def test_match_conditions_decide_last(endpoint: Endpoint, chain: Chain) -> None:
    endpoint.answers["/v"] = lambda request: {"allowed": True}

    def conditions(*texts: str) -> list[dict[str, str]]:
        return [{"name": f"c{index}", "expression": text} for index, text in enumerate(texts)]

    client = endpoint.client("/v")
    chain.add(admission.VALIDATING, config(client, matchConditions=conditions("object.spec.n == 2")))
    await chain.admission.validate(write())
    assert endpoint.asked == []
    holds = conditions("object.spec.n == 1", "request.userInfo.username == 'alice'", "oldObject == null")
    chain.add(admission.VALIDATING, config(client, matchConditions=holds))
    await chain.admission.validate(write())
    assert len(endpoint.asked) == 1
    broken = conditions("object.spec.nope == 1")
    chain.add(admission.VALIDATING, config(client, matchConditions=broken))
    found = await refusal(chain.admission.validate(write()))
    assert (found.code, found.message) == (403, 'widgets.g.io "x" is forbidden: no such key: nope')
    chain.add(admission.VALIDATING, config(client, matchConditions=conditions("object.spec.nope == 1", "false")))
    await chain.admission.validate(write())
    chain.add(admission.VALIDATING, config(client, matchConditions=broken, failurePolicy="Ignore"))
    await chain.admission.validate(write())
    assert len(endpoint.asked) == 1


async def test_a_webhook_that_cannot_be_reached_stops_the_write_or_is_passed_over(chain: Chain) -> None:
    client = {"url": "https://127.0.0.1:1/x"}
    chain.add(admission.VALIDATING, config(client))
    found = await refusal(chain.admission.validate(write()))
    assert (found.code, found.reason) == (500, "InternalError")
    assert found.message == (
        'Internal error occurred: failed calling webhook "a.example.com": failed to call webhook: '
        'Post "https://127.0.0.1:1/x?timeout=5s": dial tcp 127.0.0.1:1: connect: connection refused'
    )
    chain.add(admission.VALIDATING, config(client, failurePolicy="Ignore"))
    await chain.admission.validate(write())


async def test_an_unknown_authority_is_refused(endpoint: Endpoint, chain: Chain) -> None:
    endpoint.answers["/v"] = lambda request: {"allowed": True}
    chain.add(admission.VALIDATING, config(endpoint.client("/v") | {"caBundle": ""}))
    found = await refusal(chain.admission.validate(write()))
    assert found.message.endswith("tls: failed to verify certificate: x509: certificate signed by unknown authority")
    assert endpoint.asked == []


async def test_a_slow_webhook_runs_into_its_timeout(endpoint: Endpoint, chain: Chain) -> None:
    never = asyncio.Event()

    async def hang(request: dict[str, Any]) -> dict[str, Any]:
        await never.wait()
        return {}

    endpoint.answers["/v"] = hang
    chain.add(admission.VALIDATING, config(endpoint.client("/v"), timeoutSeconds=1))
    found = await refusal(chain.admission.validate(write()))
    never.set()
    assert found.message.endswith('/v?timeout=1s": context deadline exceeded')


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        (lambda request: web.Response(status=404), "the server could not find the requested resource"),
        (
            lambda request: web.Response(status=500, text="boom"),
            'an error on the server ("boom") has prevented the request from succeeding',
        ),
        (lambda request: web.json_response({}), "received invalid webhook response: webhook response was absent"),
        (lambda request: {"uid": "other", "allowed": True}, 'got "other"'),
        (lambda request: {"allowed": True, "patch": "W10="}, "validating webhook may not return response.patch"),
    ],
)
async def test_an_answer_that_is_none_counts_as_a_failed_call(
    endpoint: Endpoint, chain: Chain, answer: Answer, ending: str
) -> None:
    endpoint.answers["/v"] = answer
    chain.add(admission.VALIDATING, config(endpoint.client("/v")))
    found = await refusal(chain.admission.validate(write()))
    assert found.code == 500
    assert found.message.endswith(ending)


async def test_a_service_is_called_at_its_endpoint_under_its_own_name(endpoint: Endpoint, chain: Chain) -> None:
    endpoint.answers["/path"] = lambda request: {"allowed": True}
    service = {"namespace": "ns", "name": "hook", "path": "/path"}
    chain.add(admission.VALIDATING, config({"service": service, "caBundle": endpoint.bundle}))
    found = await refusal(chain.admission.validate(write()))
    assert found.message.endswith('Post "https://hook.ns.svc:443/path?timeout=5s": service "hook" not found')
    chain.services["hook"] = ("127.0.0.1", endpoint.port)
    await chain.admission.validate(write())
    assert endpoint.paths == ["/path"]


async def test_a_dry_run_asks_only_webhooks_without_side_effects(endpoint: Endpoint, chain: Chain) -> None:
    chain.admission.configure(
        admission.VALIDATING,
        "c",
        {"metadata": {"name": "c"}, "webhooks": [config(endpoint.client("/v"), sideEffects="Some")]},
    )
    found = await refusal(chain.admission.validate(write(dry_run=True)))
    assert (found.code, found.message) == (400, 'admission webhook "a.example.com" does not support dry run')


async def test_a_deletion_cannot_be_patched(endpoint: Endpoint, chain: Chain) -> None:
    endpoint.answers["/m"] = lambda request: patch({"op": "add", "path": "/a", "value": 1})
    chain.add(admission.MUTATING, config(endpoint.client("/m")))
    found = await refusal(chain.admission.mutate(write("DELETE")))
    assert found.message.endswith("attempted to modify the object, which is not supported for this operation")


async def test_configurations_come_and_go_and_are_never_sent_themselves(chain: Chain) -> None:
    pending = write()
    assert not chain.admission.wants(pending)
    chain.add(admission.VALIDATING, config({"url": "https://127.0.0.1:1"}))
    assert chain.admission.wants(pending)
    chain.admission.configure(admission.VALIDATING, "c", None)
    assert not chain.admission.wants(pending)
