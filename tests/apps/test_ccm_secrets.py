"""Tokens are planted wherever a provider reads them, and looked for wherever people or machines read."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import forkserver, servers
from tests.apps import managers
from tests.apps.managers import PROGRAMS, initialised, joined, program, running
from tests.apps.test_ccm_serving import reader
from tests.waiting import until

from bedplate.api.resources import EVENTS
from bedplate.kube import Client
from bedplate.sim.clouds import BmmCloud, OxideCloud, SimulatedCloud

JWT = re.compile(r"eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.")
Planted = tuple[list[str], dict[str, str], list[str]]
"""Flags, environment, and further secrets that must not be seen."""


def bmm_settings(cloud: BmmCloud, **more: object) -> dict[str, object]:
    return {
        "endpoint": cloud.url,
        "orgName": cloud.org,
        "siteId": cloud.site_id,
        "tenantId": cloud.tenant_id,
        **more,
    }


def as_file(folder: Path, name: str, content: object) -> str:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


def bmm_in_file(cloud: BmmCloud, folder: Path) -> Planted:
    return [f"--cloud-config={as_file(folder, 'c', bmm_settings(cloud, token=cloud.token))}"], {}, []


def bmm_in_environment(cloud: BmmCloud, folder: Path) -> Planted:
    config = as_file(folder, "c", bmm_settings(cloud))
    return [f"--cloud-config={config}"], {"NVIDIA_BMM_TOKEN": cloud.token}, []


def bmm_in_token_file(cloud: BmmCloud, folder: Path) -> Planted:
    token = as_file(folder, "token", cloud.token + "\n")
    return [f"--cloud-config={as_file(folder, 'c', bmm_settings(cloud, tokenFile=token))}"], {}, []


def bmm_by_oidc(cloud: BmmCloud, folder: Path) -> Planted:
    oidc = {"tokenUrl": cloud.token_url, "clientId": cloud.client_id, "clientSecret": cloud.client_secret}
    config = as_file(folder, "c", bmm_settings(cloud, oidc=oidc))
    return [f"--cloud-config={config}"], {}, [cloud.client_secret]


def oxide_in_environment(cloud: OxideCloud, folder: Path) -> Planted:
    return [], managers.oxide_environment(cloud), []


def oxide_in_file(cloud: OxideCloud, folder: Path) -> Planted:
    config = {"host": cloud.url, "project": cloud.project, "token": cloud.token}
    return [f"--cloud-config={as_file(folder, 'c', config)}"], {}, []


def oxide_in_token_file(cloud: OxideCloud, folder: Path) -> Planted:
    environment = managers.oxide_environment(cloud)
    environment["OXIDE_TOKEN_FILE"] = as_file(folder, "token", environment.pop("OXIDE_TOKEN"))
    return [], environment, []


def oxide_in_profile(cloud: OxideCloud, folder: Path) -> Planted:
    home = folder / ".config" / "oxide"
    home.mkdir(parents=True)
    as_file(home, "credentials.toml", f'[profile.lab]\nhost = "{cloud.url}"\ntoken = "{cloud.token}"\n')
    return [], {"OXIDE_PROFILE": "lab", "OXIDE_PROJECT": cloud.project, "HOME": str(folder)}, []


SOURCES: dict[str, tuple[str, Callable[..., Planted]]] = {
    "bmm file": ("nvidia-bmm", bmm_in_file),
    "bmm environment": ("nvidia-bmm", bmm_in_environment),
    "bmm token file": ("nvidia-bmm", bmm_in_token_file),
    "bmm oidc": ("nvidia-bmm", bmm_by_oidc),
    "oxide environment": ("oxide", oxide_in_environment),
    "oxide file": ("oxide", oxide_in_file),
    "oxide token file": ("oxide", oxide_in_token_file),
    "oxide profile": ("oxide", oxide_in_profile),
}


# Where a token comes from is the same on both servers: one source of each cloud is enough on the real one.
ON_REAL = ("bmm token file", "oxide environment")


@pytest.mark.parametrize(
    ("server", "source"),
    [
        *(("embedded", source) for source in SOURCES),
        *(pytest.param("real", source, marks=pytest.mark.real) for source in ON_REAL),
    ],
    indirect=["server"],
)
async def test_a_planted_token_is_seen_nowhere(
    server: servers.Server, client: Client, tmp_path: Path, source: str
) -> None:
    provider, plant = SOURCES[source]
    cloud: SimulatedCloud = BmmCloud() if provider == "nvidia-bmm" else OxideCloud()
    name = f"secret-{uuid.uuid4().hex[:6]}"
    async with cloud:
        cloud.add(name)
        flags, environment, more = plant(cloud, tmp_path)
        # A cloud, or a proxy before it, that repeats what it was sent.
        cloud.faults.add("500", path="/v[12]/", times=4, fault={"message": f"cannot use Bearer {cloud.token}"})
        if not more:
            # With OIDC the manager has another token than this one, and need not know that it is one.
            cloud.faults.add("403", path="/v[12]/", times=2, fault={"message": f"token={cloud.token} is refused"})
        words = [*managers.arguments(server, name, f"ccm-test={name}"), *flags, "-v=10"]
        words += ["--use-service-account-credentials", "--authorization-webhook-cache-unauthorized-ttl=0s"]
        async with (
            joined(client, name, labels={"ccm-test": name}),
            reader(client) as kubernetes_token,
            running(program(PROGRAMS[provider]), *words, folder=tmp_path, env=environment) as manager,
        ):
            await initialised(client, name, manager)
            seen = await everything(client, manager, kubernetes_token)
            seen |= await explained(server, provider, name, flags, environment, tmp_path)
            assert await manager.stop() == 0
            seen["log"] = manager.log()
        secrets = [cloud.token, *more, kubernetes_token, *([server.token] if server.token else [])]
    for place, text in seen.items():
        for secret in secrets:
            assert secret not in text, f"{place} shows a secret:\n{around(text, secret)}"
        assert not JWT.search(text), f"{place} shows a token"
    assert name in seen["log"]
    assert name in seen["explanation"]
    # The cloud's own words were passed on, without what must not be seen: the test looks where it would be.
    assert "[redacted]" in seen["log"]


def around(text: str, secret: str) -> str:
    at = text.index(secret)
    return text[max(0, at - 300) : at + 300]


async def everything(client: Client, manager: managers.Running, token: str) -> dict[str, str]:
    """All that a running manager shows, by place."""

    async def is_allowed() -> bool:
        return (await manager.get("/metrics", token))[0] == 200

    await until(is_allowed, "the role counts")
    paths = ("/metrics", "/configz", "/debug/pprof/goroutine", "/debug/pprof/cmdline", "/readyz?verbose")
    seen = {path: (await manager.get(path, token))[1] for path in paths}
    found = await client.list(EVENTS.raw())
    seen["events"] = json.dumps(found.items)
    seen["command line"] = Path(f"/proc/{manager.process.pid}/cmdline").read_text()
    return seen


async def explained(
    server: servers.Server, provider: str, name: str, flags: list[str], environment: dict[str, str], folder: Path
) -> dict[str, str]:
    """What an explanation shows, with its log."""
    command = [program("bedplate"), "ccm", "explain", "node", name, f"--cloud-provider={provider}", *flags]
    command += [f"--kubeconfig={server.kubeconfig}", "-v=10"]
    shown = await asyncio.to_thread(
        forkserver.run,
        command,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **environment},
    )
    assert shown.returncode in (0, 1), shown.stderr
    return {"explanation": shown.stdout, "explanation's log": shown.stderr}


@pytest.mark.parametrize(
    "content",
    [
        "token: {secret}\nendpoint: [",
        "token: {secret}\ntoken: {secret}",
        "token: [{secret}]",
        "{secret}",
        "- {secret}",
        "token: {secret}\nnope: {secret}",
        "endpoint: https://user:{secret}@example.com\ntoken: t",
    ],
)
@pytest.mark.parametrize("provider", ["nvidia-bmm", "oxide"])
def test_a_broken_file_is_refused_without_showing_what_is_in_it(tmp_path: Path, provider: str, content: str) -> None:
    secret = "planted-b7d1c2e9f3a4"
    file = as_file(tmp_path, "c", content.replace("{secret}", secret))
    ended = forkserver.run(
        [
            program(PROGRAMS[provider]),
            f"--cloud-config={file}",
            "--master=http://127.0.0.1:1",
            "--secure-port=0",
            "-v=10",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        timeout=120,
    )
    assert ended.returncode == 1
    shown = ended.stdout + ended.stderr
    assert secret not in shown, shown
    assert "Traceback" not in shown
