"""How clusters stand, over REST, in the shell and on the page."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
from collections.abc import AsyncIterator

import pytest
from tests import servers
from tests.head.applications.conftest import config_map
from tests.head.committing import commit_session
from tests.ui.rest.serving import Served, served, serving
from tests.ui.transcripts.driving import Desk
from tests.waiting import until

from bedplate.client import HeadClient
from bedplate.core import errors
from bedplate.head.clusters import judging
from bedplate.head.clusters.service import Clusters
from bedplate.head.entities import SCHEMA
from bedplate.head.kubeclusters import file_of
from bedplate.head.objects import Obj
from bedplate.kube import Client
from bedplate.ui.remote import RemoteBackend


@pytest.fixture
async def site(tmp_path: pathlib.Path, server: servers.Server) -> AsyncIterator[Served]:
    """A served head that reaches a cluster."""
    file = file_of(tmp_path, "default")
    file.parent.mkdir()
    file.write_bytes(pathlib.Path(server.kubeconfig).read_bytes())
    async with served(tmp_path) as made:
        clusters = Clusters(made.store, made.head, made.notices, made.health, tmp_path)
        service = dataclasses.replace(made.service, clusters=await clusters.open())
        running = asyncio.create_task(clusters.run())
        try:
            async with serving(service) as url:
                yield dataclasses.replace(made, url=url, service=service)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


async def put(site: Served, namespace: str, **applications: str) -> None:
    inner = {name: Obj("Application", name, {"config": text}) for name, text in applications.items()}
    group = Obj("AppGroup", namespace, children={"applications": inner})
    session = site.head.session()
    session.put(("kubernetes", "default", "app_groups", namespace), group)
    await commit_session(site.head, session)


async def test_applications_and_checks_are_seen_over_rest_and_in_the_shell(
    site: Served, client: Client, namespace: str
) -> None:
    await put(site, namespace, good=config_map("a", namespace), bad=config_map("A_B", namespace))
    async with site.client() as head, RemoteBackend(head, SCHEMA) as backend:

        async def is_settled() -> bool:
            state = await head.cluster("default")
            return [one.state for one in state.applications] == ["failed", "applied"] and len(state.checks) == 4

        await until(is_settled)
        state = await head.cluster("default")
        assert state.reached and state.applications[0].failures[0].object == f"ConfigMap {namespace}/A_B"
        desk = Desk(site.head, backend=backend)
        shown = await desk.do("kubernetes; appstatus default -d ,")
        rows = [line.split(",") for line in shown.splitlines()[1:]]
        assert [row[1:4] for row in rows] == [[namespace, "bad", "failed"], [namespace, "good", "applied"]]
        assert rows[0][6] == f"ConfigMap {namespace}/A_B"
        told = await desk.do("kubernetes; use default; appstatus -s applied")
        assert "1 applications: 1 applied, 0 pending" in told
        assert "there is no state" in (await desk.fails("kubernetes; appstatus -s great")).err

        checks = await desk.do("kubernetes; health default -d ,")
        assert {line.split(",")[1] for line in checks.splitlines()[1:]} == set(judging.NAMES)
        dumped = await desk.do(f"kubernetes; use default; dumpmonitoringdata -1h now {judging.NODES}")
        assert dumped.splitlines()[0].split() == ["Timestamp", "Value", "Info"] and len(dumped.splitlines()) >= 3
        assert "there is no check" in (await desk.fails("kubernetes; health default Nothing")).err
        with pytest.raises(errors.NotFound):
            await head.cluster("nowhere")
        assert "kubernetes mode" in (await desk.fails("device; appstatus")).err


async def test_a_cluster_without_a_kubeconfig_says_what_is_missing(tmp_path: pathlib.Path) -> None:
    async with served(tmp_path) as made:
        clusters = Clusters(made.store, made.head, made.notices, made.health, tmp_path)
        service = dataclasses.replace(made.service, clusters=await clusters.open())
        async with serving(service) as url, HeadClient(url, token=made.tokens["arno"]) as head:
            await put(made, "g", app=config_map("a", "x"))
            state = await head.cluster("default")
            assert not state.reached and "kubernetes/default.kubeconfig" in state.trouble
            assert [(one.name, one.state) for one in state.applications] == [("app", "pending")]
            async with RemoteBackend(head, SCHEMA) as backend:
                shown = await Desk(made.head, backend=backend).type("kubernetes; appstatus")
                assert "the head does not reach default" in shown.err


async def test_a_head_without_a_daemon_says_so(tmp_path: pathlib.Path) -> None:
    async with served(tmp_path) as made:
        bare = dataclasses.replace(made.service, clusters=None)
        async with serving(bare) as url, HeadClient(url, token=made.tokens["admin"], attempts=1) as head:
            with pytest.raises(errors.Unavailable):
                await head.cluster("default")
        assert "no daemon serves this head" in (await Desk(made.head).fails("kubernetes; appstatus")).err
