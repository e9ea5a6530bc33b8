"""Start, readiness, and that no token ever shows."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.cloud.providers.nvidia_bmm.world import node, simulated

from bedplate.cloud import registry
from bedplate.cloud.interface import Provider
from bedplate.core import errors, logging
from bedplate.core.clock import ManualClock


async def test_the_provider_is_what_the_registry_promises(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        made = registry.create("nvidia-bmm", registry.Setting(None, world.environ()))
        assert isinstance(made, Provider)
        assert made.name == "nvidia-bmm" and made.schemes == ("nvidia-bmm", "nvidia-carbide")
        assert made.has_cluster_id and made.instances is not None
        assert made.legacy is None and made.load_balancers is None and made.routes is None
        await made.close()


async def test_good_credentials_are_checked_at_the_start_and_then_no_more(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        provider = world.provider()
        with pytest.raises(errors.Unavailable, match="not been checked"):
            provider._check_again_at = float("inf")
            await provider.check_ready()
        await provider.start()
        assert world.cloud.journal.count("get-current-tenant") == 1 and world.cloud.journal.count("get-metadata") == 1
        for _ in range(3):
            await provider.check_ready()
        assert world.cloud.journal.count() == 2 and world.recorder.events == []


async def test_a_403_at_the_start_keeps_running_tells_and_is_mended_later(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        time = ManualClock()
        provider = world.provider(time=time, NVIDIA_BMM_ORG_NAME="wrong-org")
        await provider.start()
        assert [event[1:3] for event in world.recorder.events] == [("Warning", "CloudCredentials")]
        assert "wrong-org" in world.recorder.events[0][3]
        with pytest.raises(errors.Unavailable, match="wrong-org"):
            await provider.check_ready()

        world.cloud.has_tenant = False
        provider = world.provider(time=time)
        await provider.start()
        asked = world.cloud.journal.count()
        for _ in range(5):
            with pytest.raises(errors.Unavailable, match="does not have a Tenant"):
                await provider.check_ready()
        assert world.cloud.journal.count() == asked, "a probe does not hammer the cloud"
        world.cloud.has_tenant = True
        await time.advance(16)
        await provider.check_ready()


async def test_an_outage_at_the_start_keeps_running(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        outage = world.cloud.faults.add("503")
        provider = world.provider()
        await provider.start()
        provider._check_again_at = float("-inf")
        with pytest.raises(errors.Unavailable, match="503"):
            await provider.check_ready()
        world.cloud.faults.remove(outage)
        provider._check_again_at = float("-inf")
        await provider.check_ready()


async def test_another_tenant_than_configured_is_told_but_ready(tmp_path: Path) -> None:
    async with simulated(tmp_path, machines=1) as world:
        provider = world.provider(NVIDIA_BMM_TENANT_ID="00000000-0000-4000-8000-000000000000")
        await provider.start()
        await provider.check_ready()
        assert world.cloud.tenant_id in world.recorder.events[0][3]


async def test_no_token_shows_in_logs_errors_events_or_values(tmp_path: Path) -> None:
    out = io.StringIO()
    logging.configure(logging.LogOptions(verbosity=10, format="json"), out)
    token = "tok-planted-0815-secret"
    try:
        async with simulated(tmp_path, machines=1, is_clean=False) as world:
            for kind in ("401", "403", "500", "reset", "wrong-json"):
                world.cloud.faults.clear()
                world.cloud.faults.add(kind, fault={"message": f"bad Bearer {token}"} if kind.isdigit() else {})
                provider = world.provider(NVIDIA_BMM_TOKEN=token)
                await provider.start()
                machine = world.cloud.all()[0]
                assert provider.instances is not None
                with pytest.raises(errors.BedplateError) as caught:
                    await provider.instances.exists(node(machine.name, machine.provider_id))
                shown = [repr(caught.value), str(caught.value), errors.describe(caught.value), repr(vars(caught.value))]
                shown += [repr(world.recorder.events), repr(provider.config), repr(vars(provider))]
                assert not any(token in text for text in shown)
    finally:
        logging.configure(logging.LogOptions())
    assert "cloud.request" in out.getvalue() and token not in out.getvalue()
