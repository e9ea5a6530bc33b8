"""Events in both of their groups."""

from __future__ import annotations

from typing import Any

from tests.conformance.http import Api, Json
from tests.conformance.objects import core, path


def event(name: str, ns: str, **fields: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": ns},
        "reason": "Tested",
        "message": "it was tested",
        "type": "Normal",
        "source": {"component": "tester"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
        **fields,
    }


def new_events(ns: str, name: str = "") -> str:
    return path("events.k8s.io", "v1", ns, "events", name)


async def test_created_and_read(api: Api, ns: str) -> None:
    made = await api.create(core(ns, "events"), event("e", ns))
    assert made["count"] == 1
    assert made["source"] == {"component": "tester"}
    assert await api.read(core(ns, "events", "e")) == made


async def test_counted_up_by_patch(api: Api, ns: str) -> None:
    await api.create(core(ns, "events"), event("e", ns))
    patch = {"count": 2, "lastTimestamp": "2026-01-02T03:05:05Z"}
    patched = (await api.patch(core(ns, "events", "e"), patch, "application/strategic-merge-patch+json")).expect(200)
    assert (patched["count"], patched["lastTimestamp"]) == (2, "2026-01-02T03:05:05Z")


async def test_one_event_in_two_groups(api: Api, ns: str) -> None:
    await api.create(core(ns, "events"), event("e", ns))
    other = await api.read(new_events(ns, "e"))
    assert other["apiVersion"] == "events.k8s.io/v1"
    assert other["regarding"]["name"] == "p"
    assert other["note"] == "it was tested"
    assert other["deprecatedCount"] == 1
    assert other["deprecatedSource"] == {"component": "tester"}


async def test_a_new_style_event_in_the_old_group(api: Api, ns: str) -> None:
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "n"},
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "reportingController": "example.com/tester",
        "reportingInstance": "tester-1",
        "action": "Testing",
        "reason": "Tested",
        "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": ns},
        "note": "new style",
    }
    await api.create(new_events(ns), body)
    old = await api.read(core(ns, "events", "n"))
    assert old["involvedObject"]["name"] == "p"
    assert old["message"] == "new style"
    assert old["eventTime"] == "2026-01-02T03:04:05.678901Z"
    assert old["reportingComponent"] == "example.com/tester"


async def test_checks(api: Api, ns: str) -> None:
    elsewhere = event("e", ns, involvedObject={"kind": "Pod", "name": "p", "namespace": "default"})
    status = (await api.post(core(ns, "events"), elsewhere)).fails(422, "Invalid")
    assert "involvedObject.namespace" in status["message"]
    (await api.post(new_events(ns), {**event("e", ns), "apiVersion": "events.k8s.io/v1"})).expect(400, 422)


async def test_events_of_cluster_objects_live_in_default(api: Api) -> None:
    from tests.conformance.objects import unique

    name = unique("e")
    body = event(name, "", involvedObject={"kind": "Node", "name": "n1"})
    assert (await api.create(core("default", "events"), body))["metadata"]["namespace"] == "default"


async def test_watching(api: Api, ns: str) -> None:
    start = (await api.read(core(ns, "events")))["metadata"]["resourceVersion"]
    async with api.watch(core(ns, "events"), resourceVersion=start, fieldSelector="reason=Wanted") as watch:
        await api.create(core(ns, "events"), event("e1", ns))
        await api.create(core(ns, "events"), event("e2", ns, reason="Wanted"))
        assert await watch.take(1) == [("ADDED", "e2")]
