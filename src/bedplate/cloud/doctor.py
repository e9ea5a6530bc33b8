"""What a look at a cluster or a cloud may find, how a provider takes part in it, and what all diagnoses have in common.

In: errors of the shared HTTP client; a provider's `Instances` and nodes. Out: findings; reads only. A `Finding` says
what is wrong with which object, and the command or edit that fixes it. A check that could not be made says so
(`unknown`): an answer that did not come is never taken for a good one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol, runtime_checkable

import msgspec

from bedplate.api import core
from bedplate.cloud.controllers import node_refusals
from bedplate.cloud.errors import AmbiguousInstance, InstanceNotFound, NoAddresses
from bedplate.cloud.http import errors as http_errors
from bedplate.cloud.http.secrets import Secret
from bedplate.cloud.interface import Instances
from bedplate.core import errors

__all__ = [
    "Advice",
    "Diagnosable",
    "Finding",
    "Level",
    "check_token",
    "examine_nodes",
    "fine",
    "judge_failure",
    "note",
    "problem",
    "unknown",
]

Level = Literal["ok", "note", "problem", "unknown"]
SOON = timedelta(hours=24)
# One line per node is read by people; after so many of a kind the rest is a number.
MOST_LINES = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of one check."""

    check: str
    level: Level
    about: str
    message: str
    fix: str = ""


@runtime_checkable
class Diagnosable(Protocol):
    """A provider that can say what is wrong with its configuration, its API and the machines of these nodes."""

    async def diagnose(self, nodes: Sequence[core.Node]) -> list[Finding]: ...


def fine(check: str, about: str, message: str) -> Finding:
    return Finding(check, "ok", about, message)


def note(check: str, about: str, message: str, fix: str = "") -> Finding:
    """Worth knowing, wrong only perhaps: does not change the exit code."""
    return Finding(check, "note", about, message, fix)


def problem(check: str, about: str, message: str, fix: str) -> Finding:
    return Finding(check, "problem", about, message, fix)


def unknown(check: str, about: str, error: BaseException | str, fix: str = "") -> Finding:
    return Finding(check, "unknown", about, f"could not be checked: {error}", fix)


class Advice(msgspec.Struct, frozen=True):
    """What to do about each way in which a cloud refuses us, in the provider's own words."""

    token: str
    access: str
    endpoint: str


def judge_failure(about: str, error: Exception, advice: Advice) -> Finding:
    """What a failed first call says. Only a clear refusal is a problem; the rest could not be found out."""
    match error:
        case http_errors.Unauthorized():
            return problem("credentials", about, f"the cloud does not accept the token: {error}", advice.token)
        case http_errors.Forbidden():
            return problem("credentials", about, f"the token does not allow this: {error}", advice.access)
        case http_errors.RateLimited():
            return problem("request-rate", about, f"the cloud rate-limits requests: {error}", "lower --cloud-api-qps")
        case http_errors.NotFound() | http_errors.Protocol() | http_errors.Invalid():
            return problem("cloud-api", about, f"this is not the cloud's API: {error}", advice.endpoint)
        case http_errors.Transport():
            return problem("cloud-api", about, f"cannot be reached: {error}", advice.endpoint)
        case _:
            return unknown("cloud-api", about, error, "try again later, and ask the cloud's operator")


def check_token(about: str, token: Secret, now: datetime, fix: str) -> list[Finding]:
    """When a token that says so (a JWT) will end; nothing for others."""
    ends = _ends(token)
    if ends is None:
        return []
    if ends <= now:
        return [problem("credentials", about, f"the token expired at {ends:%Y-%m-%d %H:%M} UTC", fix)]
    if ends <= now + SOON:
        return [note("credentials", about, f"the token expires at {ends:%Y-%m-%d %H:%M} UTC", fix)]
    return [fine("credentials", about, f"the token is valid until {ends:%Y-%m-%d %H:%M} UTC")]


def _ends(token: Secret) -> datetime | None:
    parts = token.reveal().split(".")
    if len(parts) != 3:
        return None
    try:
        payload = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return datetime.fromtimestamp(float(payload["exp"]), UTC)
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError, OverflowError):
        return None


async def examine_nodes(instances: Instances, nodes: Sequence[core.Node], where: str) -> list[Finding]:
    """Whether each node's machine exists, runs and has addresses."""
    findings: list[Finding] = []
    for node in nodes:
        finding = await _examine(instances, node, where)
        if finding is not None:
            findings.append(finding)
    shown = findings[:MOST_LINES]
    if len(findings) > MOST_LINES:
        left = len(findings) - MOST_LINES
        shown.append(problem("instance", "nodes", f"{left} more nodes have findings of this kind", "fix these first"))
    well = len(nodes) - len(findings)
    if well:
        shown.append(fine("instance", "nodes", f"{well} of {len(nodes)} have a running machine {where}"))
    return shown


async def _examine(instances: Instances, node: core.Node, where: str) -> Finding | None:
    about = f"Node {node.name}"
    look = f"bedplate ccm explain node {node.name}"
    try:
        if not await instances.exists(node):
            return _absent(node, where, look)
        if await instances.is_shutdown(node):
            text = f"its machine {where} is switched off or in error"
            return problem("instance", about, text, f"start the machine in the cloud; then: {look}")
        metadata = await instances.metadata(node)
    except InstanceNotFound:
        return _absent(node, where, look)
    except AmbiguousInstance as err:
        return problem("instance", about, str(err), node_refusals.remedy_for(node, err))
    except errors.Invalid as err:
        return problem("provider-id", about, str(err), node_refusals.remedy_for(node, err))
    except NoAddresses as err:
        return problem("addresses", about, str(err), node_refusals.remedy_for(node, err))
    except errors.BedplateError as err:
        if not node.spec.provider_id and await _is_unknown_by_name(instances, node):
            return _absent(node, where, look)
        return unknown("instance", about, err, look)
    if metadata is not None and not any(address.type == "InternalIP" for address in metadata.addresses):
        text = f"its machine {where} has no interface with an address yet"
        return problem("addresses", about, text, "check the machine's network interfaces in the cloud")
    return None


async def _is_unknown_by_name(instances: Instances, node: core.Node) -> bool:
    """Whether a search finds no machine: no proof that none exists, but the reason why the node is not initialised."""
    try:
        await instances.metadata(node)
    except InstanceNotFound:
        return True
    except errors.BedplateError:
        return False
    return False


def _absent(node: core.Node, where: str, look: str) -> Finding:
    fix = f"{node_refusals.remedy(node, node_refusals.REASON_NO_INSTANCE)}; then: {look}"
    return problem("instance", f"Node {node.name}", f"there is no such machine {where}", fix)
