"""Judges how often the manager asks its clouds, from its own metrics. Pure but for `read`.

In: the text of `/metrics`. Out: findings: calls a minute since the manager began, refusals for asking too often, and
time that calls waited before they were sent.
"""

from __future__ import annotations

import ssl
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from bedplate.cloud.doctor import Finding, fine, note, problem, unknown

__all__ = ["check_rates", "read"]

TIMEOUT_S = 10.0
_REQUESTS = "ccm_cloud_api_requests_total"
_THROTTLED = "ccm_cloud_api_throttled_seconds_total"
_STARTED = "process_start_time_seconds"


async def read(url: str, token: str, ca_file: Path | None, *, is_insecure: bool) -> str | Exception:
    """The manager's metrics, or why they could not be read."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        trust: ssl.SSLContext | bool = False if is_insecure else ssl.create_default_context(cafile=ca_file)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, headers=headers, ssl=trust) as got,
        ):
            if got.status != 200:
                return ConnectionError(f"{url} answers with status {got.status}")
            return await got.text()
    except (OSError, aiohttp.ClientError, TimeoutError) as err:
        return ConnectionError(f"{url}: {str(err) or type(err).__name__}")


def check_rates(text: str | Exception | None, now: datetime, *, is_served: bool = True) -> list[Finding]:
    """What the metrics say; None: no address was given. `is_served`: the manager has an address for them."""
    if text is None and not is_served:
        return [note("request-rate", "manager", "not checked: it runs with --secure-port=0, without metrics")]
    if text is None:
        fix = "bedplate doctor --help   # --metrics-url, --metrics-token-file"
        return [note("request-rate", "manager", "not checked: give the address of its metrics", fix)]
    if isinstance(text, Exception):
        return [
            unknown("request-rate", "manager", text, "check --metrics-url, --metrics-token-file, --metrics-ca-file")
        ]
    try:
        return list(_judge(text, now))
    except ValueError as err:
        return [
            unknown(
                "request-rate", "manager", f"the response is not in the metrics format: {err}", "check --metrics-url"
            )
        ]


def _judge(text: str, now: datetime) -> Iterator[Finding]:
    total: dict[str, float] = defaultdict(float)
    refused: dict[str, float] = defaultdict(float)
    throttled, started = 0.0, 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == _REQUESTS:
                provider = sample.labels.get("provider", "")
                total[provider] += sample.value
                refused[provider] += sample.value if sample.labels.get("code") == "429" else 0.0
            elif sample.name == _THROTTLED:
                throttled += sample.value
            elif sample.name == _STARTED:
                started = sample.value
    minutes = max((now.timestamp() - started) / 60, 1 / 60) if started else 0.0
    for provider, count in sorted(total.items()):
        rate = f"{count / minutes:.0f} calls a minute" if minutes else f"{count:.0f} calls"
        if refused[provider]:
            yield problem(
                "request-rate",
                provider,
                f"the cloud refused {refused[provider]:.0f} of {count:.0f} calls because there were too many ({rate})",
                "set a lower --cloud-api-qps, raise --cloud-cache-ttl and --node-status-update-frequency",
            )
        else:
            yield fine("request-rate", provider, f"{rate} since the manager started, none refused")
    if throttled > 60 * max(minutes, 1) * 0.1:
        text = f"calls waited {throttled:.0f} s in all, for --cloud-api-qps or because the cloud is slow or refuses"
        yield note("request-rate", "manager", text, "raise --cloud-api-qps if it is set, or ask the cloud's operator")
    if not total:
        yield note("request-rate", "manager", "it has not called any cloud yet")
