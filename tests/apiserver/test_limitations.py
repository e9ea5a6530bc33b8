"""The page of the embedded API server lists what it lacks; each of these cases is as the page says.

A case that fails here is good news for users, and the page has to say so.
"""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.apiserver.test_server import CONFIG_MAPS, client, config_map

from bedplate.apiserver import server

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/apiserver.md"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICY: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "nothing"},
    "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
            ]
        },
        "validations": [{"expression": "false"}],
    },
}
BINDING: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "nothing"},
    "spec": {"policyName": "nothing", "validationActions": ["Deny"]},
}
HEADLESS: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "headless"},
    "spec": {"clusterIP": "None", "sessionAffinity": "ClientIP", "ports": [{"port": 80}]},
}
ENDPOINTS: dict[str, Any] = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "old"}}


@pytest.fixture
async def session(tmp_path: pathlib.Path) -> AsyncIterator[aiohttp.ClientSession]:
    options = server.Options(data=tmp_path / "data")
    async with server.ApiServer(options) as running, client(options.data, running.url) as session:
        yield session


def limitation(title: str) -> str:
    """What the page says of it, in one line."""
    limits = PAGE.read_text().partition("## Limitations\n")[2].partition("\n## ")[0]
    (item,) = [item for item in limits.split("\n- ") if item.strip().removeprefix("- ").startswith(f"**{title}")]
    return " ".join(item.split())


async def test_policies_are_stored_and_enforce_nothing(session: aiohttp.ClientSession) -> None:
    assert "stored and served, but no request is checked" in limitation("Admission policies")
    for plural, body in (("validatingadmissionpolicies", POLICY), ("validatingadmissionpolicybindings", BINDING)):
        assert (await session.post(f"{ADMISSION}/{plural}", json=body)).status == 201
    assert (await session.post(CONFIG_MAPS, json=config_map("refused-elsewhere"))).status == 201
    stored = await (await session.get(f"{ADMISSION}/validatingadmissionpolicies/nothing")).json()
    assert "typeChecking" not in stored.get("status", {})


@pytest.mark.parametrize(("plural", "body"), [("endpoints", ENDPOINTS), ("services", HEADLESS)])
async def test_two_kinds_of_warnings_are_missing(
    plural: str, body: dict[str, Any], session: aiohttp.ClientSession
) -> None:
    said = limitation("Warnings")
    assert "v1 Endpoints is deprecated" in said and "sessionAffinity` of a headless Service" in said
    reply = await session.post(f"/api/v1/namespaces/default/{plural}", json=body)
    assert (reply.status, reply.headers.getall("Warning", [])) == (201, [])


async def test_what_the_page_says_is_not_served_is_not(session: aiohttp.ClientSession) -> None:
    assert "`componentstatuses`" in limitation("`autoscaling/v1`")
    assert (await session.get("/api/v1/componentstatuses")).status == 404
    assert (await session.get("/apis/autoscaling/v1")).status == 404
    pod = "/api/v1/namespaces/default/pods/web"
    kubelets = limitation("Clients that accept protobuf")
    for verb in ("exec", "attach", "log", "proxy"):
        reply = await session.get(f"{pod}/{verb}")
        assert verb in kubelets and f"return {reply.status}" in kubelets


async def test_quotas_are_stored_and_hold_nobody_back(session: aiohttp.ClientSession) -> None:
    assert "no quotas" in limitation("Admission plug-ins")
    spec = {"hard": {"configmaps": "0"}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": spec}
    assert (await session.post("/api/v1/namespaces/default/resourcequotas", json=quota)).status == 201
    assert (await session.post(CONFIG_MAPS, json=config_map("too-many"))).status == 201
