"""What the doctor asks of BMM: reachability, the token, tenant and site, and each node's instance.

In: the API, the configuration, the nodes. Out: findings in the words of the document's troubleshooting chapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from bedplate.api import core
from bedplate.cloud import doctor
from bedplate.cloud.doctor import Finding, fine, note, problem
from bedplate.cloud.errors import CloudError
from bedplate.cloud.http import errors as http_errors
from bedplate.cloud.http.secrets import Secret
from bedplate.cloud.interface import Instances
from bedplate.cloud.providers.nvidia_bmm import providerid
from bedplate.cloud.providers.nvidia_bmm.api import Api
from bedplate.cloud.providers.nvidia_bmm.config import Config, oddities
from bedplate.core import errors

__all__ = ["diagnose"]

_ABOUT = "nvidia-bmm"


async def diagnose(
    api: Api, instances: Instances, config: Config, token: Secret, nodes: Sequence[core.Node], now: datetime
) -> list[Finding]:
    """Everything; after a refusal of the first call nothing more is asked."""
    findings = [note("configuration", _ABOUT, oddity) for oddity in oddities(config)]
    fix = "put a new token into the Secret nvidia-bmm-cloud-config (key cloud-config); it is reloaded automatically"
    findings += doctor.check_token(_ABOUT, token, now, fix)
    advice = doctor.Advice(
        token=fix,
        access=f"check orgName ({config.org}), tenantId, and that the token has the role FORGE_TENANT_ADMIN",
        endpoint=f"check endpoint ({config.endpoint}), apiName and apiVersion, and the network from the control plane",
    )
    try:
        tenant = await api.current_tenant()
    except CloudError as err:
        return [*findings, doctor.judge_failure(_ABOUT, err, advice)]
    findings.append(fine("cloud-api", _ABOUT, f"{config.endpoint} answers and accepts the token"))
    if tenant.id != config.tenant_id:
        text = f"the token belongs to tenant {tenant.id}, but tenantId is {config.tenant_id}"
        findings.append(
            problem(
                "configuration", _ABOUT, text, f"set tenantId to {tenant.id}, or use a token of the configured tenant"
            )
        )
    findings += await _site(api, config)
    findings += _foreign_sites(nodes, config)
    return findings + await doctor.examine_nodes(instances, nodes, f"at {config.endpoint}")


async def _site(api: Api, config: Config) -> list[Finding]:
    about = f"site {config.site_id}"
    try:
        site = await api.site(config.site_id)
    except http_errors.NotFound:
        return [problem("configuration", about, "BMM has no such site", "correct siteId")]
    except CloudError as err:
        return [note("configuration", about, f"could not be checked: {err}")]
    return [fine("configuration", about, f"exists ({site.name or 'without a name'})")]


def _foreign_sites(nodes: Sequence[core.Node], config: Config) -> list[Finding]:
    """Provider IDs that name another tenant than the configuration: legal, but most often a slip."""
    findings = []
    for node in nodes:
        try:
            parsed = providerid.parse(node.spec.provider_id) if node.spec.provider_id else None
        except errors.Invalid:
            continue
        if parsed is not None and parsed.tenant and parsed.tenant != config.tenant_id:
            text = f"its provider ID names tenant {parsed.tenant}, the configuration {config.tenant_id}"
            findings.append(note("provider-id", f"Node {node.name}", text))
    return findings
