"""plan and explain: what a change does on which node, and what caused what is there."""

from __future__ import annotations

import json

from tests.ui.transcripts.driving import Desk, read_table

from bedplate.head.service import Head


async def test_a_plan_without_changes_has_nothing_to_do(desk: Desk) -> None:
    said = await desk.type("plan")
    assert (said.code, said.out) == (0, "0 to add, 0 to change, 0 to remove on 0 nodes\n")


async def test_a_plan_names_nodes_actions_and_causes_and_exits_with_3(desk: Desk) -> None:
    await desk.do("category use default", "roles", "assign docker::host", "set iptables no")
    said = await desk.type("plan")
    assert said.code == 3
    *lines, totals = said.out.splitlines()
    table = read_table("\n".join(lines))
    assert table.headers == ["Node", "Kind", "Name", "Action", "Cause"]
    assert ["node004", "file", "/etc/docker/daemon.json", "add", "category:default"] in table.rows
    assert ["node004", "service", "docker", "add", "category:default"] in table.rows
    assert set(table.column("Node")) == {f"node00{number}" for number in range(1, 7)}
    assert totals.endswith("on 6 nodes")


async def test_explain_names_what_would_win_next(desk: Desk) -> None:
    for name in ("kubelet", "generic::containerd", "/cm/local/apps/containerd/var/etc/config.toml", "containerd"):
        rows = json.loads(await desk.do(f"device explain node001 {name} -d {{}}"))
        won = {(row["Cause"], row["Next"]) for row in rows}
        assert won == {("overlay:kube-default-master", "overlay:kube-default-worker")}, name
        rows = json.loads(await desk.do(f"device explain node004 {name} -d {{}}"))
        assert {(row["Cause"], row["Next"]) for row in rows} == {("overlay:kube-default-worker", "")}, name
    await desk.do("device set node001 softwareimage my-new-image")
    (row,) = json.loads(await desk.do("device explain node001 software_image -d {}"))
    assert row["Next"] == "default-image (category:default)"


async def test_a_role_for_containers_comes_with_its_service_and_settings(desk: Desk) -> None:
    await desk.do("category use gpu-nodes", "roles", "assign generic::containerd")
    assert await desk.do("get services") == "containerd\n"
    assert (await desk.table("configurations list")).column("Name (key)") == ["containerd-cri"]
    await desk.do("/", "device; add node777; set category gpu-nodes; /; commit")
    await desk.do("category use gpu-nodes; roles; use generic::containerd; configurations; remove containerd-cri")
    rows = read_table("\n".join((await desk.type("plan")).out.splitlines()[:-1])).rows
    assert ["node777", "service", "containerd", "restart", "category:gpu-nodes"] in rows


async def test_a_role_for_containers_without_services_has_its_own(desk: Desk) -> None:
    await desk.do("category use gpu-nodes", "roles", "assign generic::containerd", "clear services")
    await desk.do("/", "device; add node777; set category gpu-nodes; /; commit")
    assert "containerd" in (await desk.table("device explain node777")).column("Name")


async def test_a_plan_answers_for_a_revision_and_between_two(desk: Desk, site_head: Head) -> None:
    start = site_head.revision
    await desk.do("category use default", "roles", "assign docker::host", "commit", "set debug yes", "commit")
    first, second = await desk.type(f"plan --at {start + 1}"), await desk.type(f"plan --at {start + 2}")
    assert first.code == second.code == 3
    assert "add" in first.out and "restart" in second.out
    both = json.loads((await desk.type(f"plan -d {{}} --at {start}..{start + 2}")).out)
    assert {row["Action"] for row in both if row["Name"] == "docker"} == {"add"}
    assert (await desk.fails("plan --at 0")).code == 1
    assert (await desk.fails("plan --at x")).code == 2


async def test_a_plan_says_when_a_commit_would_be_refused(desk: Desk) -> None:
    await desk.do("device remove node001")
    said = await desk.type("plan")
    assert "refused" in said.err and "kube-default-etcd" in said.err


async def test_explain_names_the_cause_of_every_fact(desk: Desk) -> None:
    await desk.do("device use node001")
    table = await desk.table("explain")
    causes = {(row[0], row[1]): row[3] for row in table.rows}
    assert causes["role", "kubelet"] == "overlay:kube-default-master"
    assert causes["setting", "software_image"] == "category:default"
    one = await desk.table("explain kubelet")
    assert {row[1] for row in one.rows} == {"kubelet"}
    assert "nothing named" in (await desk.fails("explain /etc/nowhere")).err


async def test_explain_prints_a_rendered_file(desk: Desk) -> None:
    await desk.do("category use default", "roles", "assign docker::host", "set debug yes", "/")
    content = json.loads(await desk.do("device explain -v node004 /etc/docker/daemon.json"))
    assert content["debug"] is True
    assert "node004" in (await desk.fails("device explain -v node004 /etc/no/such")).err


async def test_explain_answers_for_a_past_revision_and_for_what_is_staged(desk: Desk, site_head: Head) -> None:
    before = site_head.revision
    await desk.do("category use default", "roles", "assign docker::host", "device use node004")
    assert (await desk.table("explain Docker::Host")).rows
    await desk.fails(f"explain --at {before} Docker::Host")
    await desk.do("/", "commit", "device use node004")
    assert (await desk.table(f"explain --at {before + 1} Docker::Host")).column("Revision")[0] == str(before + 1)
    assert "device" in (await desk.fails("/; explain")).err
