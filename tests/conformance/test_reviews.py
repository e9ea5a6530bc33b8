"""Questions about identity and rights: TokenRequest, TokenReview, the access reviews, SelfSubjectReview."""

from __future__ import annotations

import base64
import datetime
import json

from tests.conformance.http import Api, Json
from tests.conformance.objects import core, unique
from tests.conformance.test_rbac import grant, rule
from tests.waiting import until

AUTHENTICATION = "/apis/authentication.k8s.io/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"


async def account(api: Api, ns: str) -> Json:
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    return await api.create(core(ns, "serviceaccounts"), body)


async def request_token(api: Api, ns: str, **spec: Json) -> Json:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return (await api.create(core(ns, "serviceaccounts", "robot", "token"), body))["status"]


async def review(api: Api, token: str, **spec: Json) -> Json:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, **spec}}
    return (await api.create(f"{AUTHENTICATION}/tokenreviews", body))["status"]


async def refused(api: Api, token: str) -> None:
    """Wait until the token is no longer taken; a server may remember a good one for some seconds."""

    async def is_refused() -> bool:
        return not (await review(api, token)).get("authenticated")

    await until(is_refused, "token refused")


def claims(token: str) -> Json:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


async def access(api: Api, kind: str, **spec: Json) -> Json:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    return await api.create(f"{AUTHORIZATION}/{kind.lower()}s", body)


async def test_a_requested_token_names_its_account(api: Api, ns: str) -> None:
    made = await account(api, ns)
    status = await request_token(api, ns, expirationSeconds=3600)
    content = claims(status["token"])
    assert content["sub"] == f"system:serviceaccount:{ns}:robot"
    assert content["kubernetes.io"]["namespace"] == ns
    assert content["kubernetes.io"]["serviceaccount"] == {"name": "robot", "uid": made["metadata"]["uid"]}
    assert 3500 < content["exp"] - content["iat"] <= 3700
    expires = datetime.datetime.fromisoformat(status["expirationTimestamp"])
    assert abs(expires.timestamp() - content["exp"]) < 2


async def test_a_token_review_knows_the_token(api: Api, ns: str) -> None:
    made = await account(api, ns)
    status = await review(api, (await request_token(api, ns))["token"])
    assert status["authenticated"] is True
    user = status["user"]
    assert user["username"] == f"system:serviceaccount:{ns}:robot"
    assert user["uid"] == made["metadata"]["uid"]
    assert set(user["groups"]) == {"system:serviceaccounts", f"system:serviceaccounts:{ns}", "system:authenticated"}


async def test_a_wrong_token_is_not_authenticated(api: Api, ns: str) -> None:
    status = await review(api, "wrong")
    assert not status.get("authenticated")
    assert status["user"] == {}
    assert status["error"]


async def test_a_token_for_another_audience_is_not_taken(api: Api, ns: str) -> None:
    await account(api, ns)
    token = (await request_token(api, ns, audiences=["vault"]))["token"]
    assert claims(token)["aud"] == ["vault"]
    assert not (await review(api, token)).get("authenticated")
    status = await review(api, token, audiences=["vault", "other"])
    assert status["authenticated"] is True
    assert status["audiences"] == ["vault"]


async def test_a_token_dies_with_its_account(api: Api, ns: str) -> None:
    await account(api, ns)
    token = (await request_token(api, ns))["token"]
    (await api.delete(core(ns, "serviceaccounts", "robot"))).expect(200)
    await refused(api, token)
    await account(api, ns)
    assert not (await review(api, token)).get("authenticated"), "the account of the same name is another one"


async def test_a_token_bound_to_an_object_dies_with_it(api: Api, ns: str) -> None:
    await account(api, ns)
    bound = await api.create(core(ns, "secrets"), {"metadata": {"name": "s"}})
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": bound["metadata"]["uid"]}
    known, token = [(await request_token(api, ns, boundObjectRef=reference))["token"] for _ in range(2)]
    assert (await review(api, known))["authenticated"] is True
    (await api.delete(core(ns, "secrets", "s"))).expect(200)
    await refused(api, token)


async def test_token_requests_are_checked(api: Api, ns: str) -> None:
    await account(api, ns)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 5}}
    status = (await api.post(core(ns, "serviceaccounts", "robot", "token"), body)).fails(422, "Invalid")
    assert status["details"]["causes"][0]["field"] == "spec.expirationSeconds"
    (await api.post(core(ns, "serviceaccounts", "nobody", "token"), {**body, "spec": {}})).fails(404, "NotFound")


async def test_self_subject_access_review(api: Api, ns: str) -> None:
    attributes = {"namespace": ns, "verb": "delete", "resource": "secrets"}
    mine = await access(api, "SelfSubjectAccessReview", resourceAttributes=attributes)
    assert mine["status"]["allowed"] is True
    theirs = await access(api.impersonate("jane"), "SelfSubjectAccessReview", resourceAttributes=attributes)
    assert theirs["status"]["allowed"] is False
    assert theirs["spec"]["resourceAttributes"] == attributes


async def test_subject_access_review(api: Api, ns: str) -> None:
    user = unique("user")
    await grant(api, ns, user, rule("get", "configmaps"))
    for namespace, verb, expected in ((ns, "get", True), (ns, "list", False), ("default", "get", False)):
        attributes = {"namespace": namespace, "verb": verb, "resource": "configmaps"}
        answer = await access(api, "SubjectAccessReview", user=user, resourceAttributes=attributes)
        assert answer["status"]["allowed"] is expected, (namespace, verb)


async def test_local_subject_access_review_is_of_its_namespace(api: Api, ns: str) -> None:
    body: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": ns},
        "spec": {"user": "jane", "resourceAttributes": {"namespace": ns, "verb": "get", "resource": "pods"}},
    }
    path = f"/apis/authorization.k8s.io/v1/namespaces/{ns}/localsubjectaccessreviews"
    assert (await api.create(path, body))["status"]["allowed"] is False
    body["spec"]["resourceAttributes"]["namespace"] = "default"
    assert (await api.post(path, body)).status == 422


async def test_rules_review_lists_what_one_may(api: Api, ns: str) -> None:
    user = unique("user")
    await grant(api, ns, user, rule("get list", "configmaps"))
    answer = await access(api.impersonate(user), "SelfSubjectRulesReview", namespace=ns)
    rules = answer["status"]["resourceRules"]
    assert {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]} in rules
    assert any("selfsubjectaccessreviews" in each.get("resources", []) for each in rules)
    assert any("/version" in each["nonResourceURLs"] for each in answer["status"]["nonResourceRules"])
    assert answer["status"]["incomplete"] is False


async def test_self_subject_review_says_who_one_is(api: Api) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await api.impersonate("jane", "team").create(f"{AUTHENTICATION}/selfsubjectreviews", body)
    assert answer["status"]["userInfo"]["username"] == "jane"
    assert set(answer["status"]["userInfo"]["groups"]) == {"team", "system:authenticated"}
