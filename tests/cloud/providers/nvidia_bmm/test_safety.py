"""No sequence of answers makes a machine absent, but the specific ones.

Random answers, most of them broken in some way, are put under the whole provider (cache, judgement, pagination,
retries, breaker). Whenever it says "absent", an oracle that knows only the table in `verdict` must find the proof in
what was answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cloud.http.leaping import LeapingClock
from tests.cloud.providers.nvidia_bmm.world import node

from bedplate.cloud.errors import CloudError, InstanceNotFound
from bedplate.cloud.http.transport import Broken, Exchange
from bedplate.cloud.providers.nvidia_bmm.provider import create
from bedplate.cloud.registry import Setting

ID, OTHER = "497f6eca-6276-4993-bfeb-53cbbbba6f08", "f61fbc1b-ba32-4476-aab5-5ac7c64c3f26"
SITE, TENANT = "550e8400-e29b-41d4-a716-446655440000", "660e8400-e29b-41d4-a716-446655440001"
SPECIFIC = "Could not find Instance with specified ID"
UNNAMED = "Could not find resource with specified ID"
ROUTE = "The requested path could not be found"
ENVIRON = {
    "NVIDIA_BMM_ENDPOINT": "http://cloud.invalid",
    "NVIDIA_BMM_ORG_NAME": "org",
    "NVIDIA_BMM_TOKEN": "token-of-the-test",
    "NVIDIA_BMM_SITE_ID": SITE,
    "NVIDIA_BMM_TENANT_ID": TENANT,
}


def instance(identifier: str) -> dict[str, Any]:
    return {"id": identifier, "name": "n", "siteId": SITE, "tenantId": TENANT, "status": "Ready", "interfaces": []}


def error(message: Any, source: Any = "carbide") -> dict[str, Any]:
    return {"source": source, "message": message, "data": None}


_bodies = st.sampled_from(
    [
        json.dumps(value).encode()
        for value in (
            instance(ID),
            instance(ID.upper()),
            instance(OTHER),
            {**instance(ID), "id": None},
            {},
            [],
            [instance(OTHER)],
            [instance(OTHER), instance(ID)],
            [instance(ID)],
            [{"name": "without an ID"}],
            [[]],
            None,
            0,
            "Could not find Instance with specified ID",
            error(SPECIFIC),
            error(SPECIFIC),
            error(SPECIFIC, source=None),
            error(SPECIFIC, source="proxy"),
            {"message": SPECIFIC},
            error([SPECIFIC]),
            error(UNNAMED),
            error(UNNAMED),
            error(UNNAMED),
            error(ROUTE),
            error(f"{SPECIFIC}: {ROUTE}"),
            error("Could not find Tenant"),
            error(""),
            error(None),
        )
    ]
    + [
        b"",
        b"[",
        b'{"source": "carbide", "message": "Could not find Inst',
        b"<html>Could not find Instance</html>",
        b"\xff",
    ]
)
_kinds = st.sampled_from(["application/json", "application/json; charset=UTF-8", "text/html", "text/plain", ""])
_statuses = st.sampled_from([200] * 3 + [404] * 3 + [204, 302, 400, 401, 403, 408, 409, 410, 429, 500, 502, 503, 504])
_paginations = st.sampled_from(
    [json.dumps({"pageNumber": 1, "pageSize": 100, "total": total}) for total in (0, 1, 2, 150)]
    + [json.dumps({"pageNumber": 2, "pageSize": 100, "total": 1}), "nonsense", "{}"]
)
_waits = st.sampled_from(["0", "5", "3600", "nonsense"])


_near = st.sampled_from(
    [
        (404, error(SPECIFIC)),
        (404, error(UNNAMED)),
        (404, error(UNNAMED)),
        (200, instance(ID)),
        (200, []),
        (200, [instance(OTHER)]),
        (200, [instance(OTHER)]),
        (200, [instance(ID)]),
    ]
)


@st.composite
def answers(draw: st.DrawFn) -> Exchange | Broken:
    """An answer that means something, spoilt in at most one way; or anything at all."""
    status, content = draw(_near)
    headers, body = {"content-type": "application/json"}, json.dumps(content).encode()
    if isinstance(content, list) and draw(st.booleans()):
        headers["x-pagination"] = json.dumps({"pageNumber": 1, "pageSize": 100, "total": len(content)})
    spoilt = draw(st.sampled_from(["", "", "", "status", "kind", "body", "pagination", "wait", "cut", "all"]))
    if spoilt == "cut":
        return Broken("cut off", is_sent=draw(st.booleans()))
    if spoilt in ("status", "all"):
        status = draw(_statuses)
    if spoilt in ("body", "all"):
        body = draw(_bodies)
    changes = {
        "content-type": draw(_kinds) if spoilt in ("kind", "all") else None,
        "x-pagination": draw(_paginations) if spoilt in ("pagination", "all") else None,
        "retry-after": draw(_waits) if spoilt in ("wait", "all") else None,
    }
    return Exchange(status, headers | {name: value for name, value in changes.items() if value is not None}, body)


class FakeTransport:
    """Answers from a script, the last one forever, and remembers what it answered to which path."""

    def __init__(self, script: list[Exchange | Broken]) -> None:
        self.script = script
        self.log: list[tuple[str, Exchange | Broken]] = []

    async def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout_s: float
    ) -> Exchange:
        assert method == "GET"
        answer = self.script[min(len(self.log), len(self.script) - 1)]
        self.log.append((urlsplit(url).path, answer))
        await asyncio.sleep(0)
        if isinstance(answer, Broken):
            raise answer
        return answer

    async def close(self) -> None:
        return None


def decoded(answer: Exchange) -> Any:
    """The JSON value, or a value that is none."""
    if not answer.headers.get("content-type", "").startswith("application/json"):
        return ...
    try:
        return json.loads(answer.body)
    except ValueError:
        return ...


def is_proof(log: list[tuple[str, Exchange | Broken]]) -> bool:
    """Whether these answers prove that the instance is absent: the rows of the table, read strictly."""
    gets = [(index, answer) for index, (path, answer) in enumerate(log) if path.endswith(f"/instance/{ID}")]
    if not gets:
        return False
    index, last = gets[-1]
    content = decoded(last) if isinstance(last, Exchange) else ...
    if not isinstance(last, Exchange) or last.status != 404 or not isinstance(content, dict):
        return False
    message = content.get("message")
    if content.get("source") != "carbide" or not isinstance(message, str) or not message:
        return False
    if "requested path" in message:
        return False
    if message == SPECIFIC:
        return True
    return is_complete_list_without([answer for path, answer in log[index + 1 :] if path.endswith("/instance")])


def is_complete_list_without(pages: list[Exchange | Broken]) -> bool:
    """Whether the last answer is a whole list that lacks the instance; the script has no list of several pages."""
    last = pages[-1] if pages else None
    content = decoded(last) if isinstance(last, Exchange) else ...
    if not isinstance(last, Exchange) or last.status != 200 or not isinstance(content, list):
        return False
    ids = [item.get("id") if isinstance(item, dict) else None for item in content]
    if any(not isinstance(each, str) for each in ids) or ID in [str(each).lower() for each in ids]:
        return False
    said = last.headers.get("x-pagination")
    return said is None or json.loads(said).get("total") in range(len(ids) + 1)


async def play(script: list[Exchange | Broken], asks: list[tuple[str, bool]]) -> int:
    """Ask as told; how often the machine was called absent. Every time there must be proof."""
    time = LeapingClock()
    provider = create(Setting(None, ENVIRON, time=time))
    transport = FakeTransport(script)
    provider._client._transport = transport  # type: ignore[assignment]
    assert provider.instances is not None
    ours = node("n", f"nvidia-bmm://org/{TENANT}/{SITE}/{ID}", is_uninitialised=False)
    absences = 0
    for question, fresh in asks:
        start = len(transport.log)
        try:
            if question == "exists":
                assert await provider.instances.exists(ours, fresh=fresh) is True
            elif question == "shutdown":
                await provider.instances.is_shutdown(ours, fresh=fresh)
            else:
                await provider.instances.metadata(ours)
        except InstanceNotFound:
            absences += 1
            assert is_proof(transport.log[start:]), transport.log[start:]
        except CloudError:
            pass
        time.leap(31)
    await provider.close()
    return absences


_asks = st.lists(
    st.tuples(st.sampled_from(["exists", "exists", "shutdown", "metadata"]), st.booleans()), min_size=1, max_size=4
)


@hypothesis.settings(max_examples=150, deadline=None)
@given(st.lists(answers(), min_size=1, max_size=10), _asks)
def test_no_sequence_of_answers_but_the_specific_ones_makes_a_machine_absent(
    script: list[Exchange | Broken], asks: list[tuple[str, bool]]
) -> None:
    asyncio.run(play(script, asks))


@pytest.mark.soak
@hypothesis.settings(max_examples=10_000, deadline=None)
@given(st.lists(answers(), min_size=1, max_size=10), _asks)
def test_no_sequence_of_many_makes_a_machine_absent(
    script: list[Exchange | Broken], asks: list[tuple[str, bool]]
) -> None:
    asyncio.run(play(script, asks))


def test_the_specific_sequences_do_make_it_absent() -> None:
    json_kind = {"content-type": "application/json"}
    specific = Exchange(404, json_kind, json.dumps(error(SPECIFIC)).encode())
    unnamed = Exchange(404, json_kind, json.dumps(error(UNNAMED)).encode())
    without = Exchange(200, json_kind, json.dumps([instance(OTHER)]).encode())
    holding = Exchange(200, json_kind, json.dumps([instance(ID)]).encode())
    outage = Broken("cut off", is_sent=True)
    for script, expected in (
        ([specific], 1),
        ([outage, outage, specific], 1),
        ([unnamed, without], 1),
        ([unnamed, outage, without], 1),
        ([unnamed, holding], 0),
        ([unnamed], 0),
        ([outage], 0),
    ):
        assert asyncio.run(play(script, [("exists", True)])) == expected, script
