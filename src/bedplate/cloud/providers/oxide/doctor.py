"""What the doctor asks of an Oxide silo: reachability, the token, the project, and each node's instance.

In: the API, the configuration, the nodes. Out: findings.
"""

from __future__ import annotations

from collections.abc import Sequence

from bedplate.api import core
from bedplate.cloud import doctor
from bedplate.cloud.doctor import Finding, fine, problem
from bedplate.cloud.errors import CloudError
from bedplate.cloud.http.errors import ApiError
from bedplate.cloud.interface import Instances
from bedplate.cloud.providers.oxide.api import Api, is_absence
from bedplate.cloud.providers.oxide.config import Config

__all__ = ["diagnose"]

_ABOUT = "oxide"


async def diagnose(api: Api, instances: Instances, config: Config, nodes: Sequence[core.Node]) -> list[Finding]:
    """Everything; after a refusal of the first call nothing more is asked."""
    advice = doctor.Advice(
        token="make a new token (oxide auth login) and put it into OXIDE_TOKEN or the Secret's key oxide-token",
        access="use a token of a user with at least the role viewer in the project",
        endpoint=f"check OXIDE_HOST ({config.host}) and the network from the control plane",
    )
    try:
        user = await api.current_user_view()
    except CloudError as err:
        return [doctor.judge_failure(_ABOUT, err, advice)]
    findings = [fine("cloud-api", _ABOUT, f"{config.host} answers and accepts the token (silo {user.silo_name})")]
    try:
        project = await api.project_view()
    except ApiError as err:
        if not is_absence(err):
            return [*findings, doctor.judge_failure(_ABOUT, err, advice)]
        text = f"silo {user.silo_name} has no project {config.project!r} that this token can see"
        return [*findings, problem("configuration", _ABOUT, text, "correct OXIDE_PROJECT, or use a token of its silo")]
    findings.append(fine("configuration", f"project {project.name}", "is there"))
    return findings + await doctor.examine_nodes(instances, nodes, f"in project {project.name}")
