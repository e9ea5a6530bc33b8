"""cm-kubernetes-setup by its numbers: the command line, and answers that do not fit."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from tests.setup.conftest import tool
from tests.setup.engine import fakes
from tests.setup.places import MINIMAL, answers, site
from tests.setup.test_prechecks import dns, manager, packages
from tests.setup.tool.driving import Tool

from bedplate.head.folder import datafolder
from bedplate.head.images.repositories import Mirror, bump
from bedplate.setup.answers import aliases, declaration, document, fitting
from bedplate.setup.answers.site import of_tree
from bedplate.setup.kubernetes import deploy, hardware, repositories
from bedplate.setup.kubernetes.settings import Settings, of_answers
from bedplate.setup.tool import listings, operations
from bedplate.setup.tool.flags import FLAGS, GROUPS
from bedplate.setup.wizard import menu

__all__ = ["tool"]


def test_item_50_aliases_let_a_file_fit_a_head_of_another_name() -> None:
    here, there = site(), site(head="otherhead", category="compute")
    values = answers(nodes__etcd__head_nodes=["basecm10"], nodes__workers__categories=["default"])
    saved = document.save(aliases.aliased(fitting.complete(values, here), here))
    assert "- master" in saved
    assert "- defaultcategory" in saved
    assert "basecm10" not in saved
    loaded = fitting.complete(document.load(saved).values, there)
    assert loaded["kubernetes"]["nodes"]["etcd"]["head_nodes"] == ["otherhead"]
    assert fitting.problems(loaded, there) == []


def test_item_75_versions_are_listed_newest_first(tool: Tool) -> None:
    done = tool("--list-versions", on_head=False)
    assert done.exit_code == 0
    minors = [line.removesuffix(" (NVIDIA AI Enterprise certified)") for line in done.stdout.splitlines()]
    assert all(re.fullmatch(r"1\.\d+", minor) for minor in minors)
    assert minors == sorted(minors, key=lambda minor: int(minor.split(".")[1]), reverse=True)


def test_item_76_help_lists_every_flag_in_its_group(tool: Tool) -> None:
    done = tool("-h", on_head=False)
    assert done.exit_code == 0
    assert done.stdout.startswith("usage: Kubernetes Setup cm-kubernetes-setup ")
    sections = re.split(r"^(\S.*):$", done.stdout, flags=re.MULTILINE)[1:]
    texts = dict(zip(sections[::2], sections[1::2], strict=True))
    assert [name for name in texts if name != "Examples"] == list(GROUPS)
    for flag in FLAGS:
        word = "-c FILE" if flag.name == "config" else f"--{flag.name}"
        assert re.search(rf"^  (-\w, )?{re.escape(word)}\b", texts[flag.group], re.MULTILINE), flag.name


def test_item_77_the_first_screen_has_deploy_and_exit_alone_before_there_is_a_cluster() -> None:
    assert [each.title for each in menu.operations(site())] == ["Deploy", "Exit"]
    later = {each.title: each.about for each in menu.operations(site(clusters={"default": 10443}))}
    assert {"Deploy", "Add user", "Modify User", "Exit"} < set(later)
    assert later["Configure Ingress"] == "Configure Ingress Server Certificate"


def test_item_78_the_name_is_prefilled_and_a_second_cluster_needs_another(tool: Tool) -> None:
    assert document.load(MINIMAL).values["kubernetes"]["name"] == "default"
    tool.cluster("default")
    assert "the cluster default already exists; choose another name" in tool.deploy().stderr
    tool.answers.write_text(MINIMAL.replace("kubernetes:\n", "kubernetes:\n  name: second\n"))
    assert tool.deploy().exit_code == 0


def test_item_79_ranges_that_overlap_a_network_are_refused(tool: Tool) -> None:
    tool.answers.write_text(MINIMAL + "  networks: {pod: 10.141.0.0/17, service: 10.150.0.0/16}\n")
    done = tool.deploy()
    assert done.exit_code == 2
    assert "kubernetes.networks.pod (line 10): 10.141.0.0/17 overlaps the network internalnet" in done.stderr
    filled = fitting.complete(answers(), site(networks={"a": "10.150.0.0/16", "b": "172.28.0.0/14"}))["kubernetes"]
    assert filled["networks"]["service"] == "10.151.0.0/16"
    assert filled["networks"]["pod"] == "172.16.0.0/16"


@pytest.mark.parametrize(("count", "is_good"), [(1, True), (2, False), (3, True), (4, False), (5, True)])
def test_item_80_an_even_number_of_etcd_nodes_is_refused(count: int, is_good: bool) -> None:
    values = fitting.complete(answers(nodes__etcd__nodes=[f"node00[1-{count}]"]), site())
    told = [text for path, text in fitting.problems(values, site()) if path == "kubernetes.nodes.etcd"]
    assert told == ([] if is_good else [f"the number of etcd nodes must be odd (1, 3, 5), not {count}"])


def test_item_81_a_node_of_another_cluster_is_refused() -> None:
    place = site(clusters={"first": 10443}, members={"node002": "first", "node004": "first"})
    values = fitting.complete(answers(nodes__workers__categories=["default"]), place)
    told = [text for _, text in fitting.problems(values, place)]
    assert "node002 already belongs to the cluster first" in told
    assert "node004 already belongs to the cluster first" in told


def test_item_82_each_cluster_has_a_port_of_its_own() -> None:
    place = site(clusters={"first": 10443, "second": 10444})
    assert fitting.complete(answers(name="third"), place)["kubernetes"]["proxy"]["port"] == 10445
    values = fitting.complete(answers(name="third", proxy__port=10444), place)
    assert ("kubernetes.proxy.port", "10444 is the port of the cluster second; 10445 is free") in fitting.problems(
        values, place
    )


def test_item_83_a_small_node_is_warned_about_with_its_value() -> None:
    assert hardware.warnings("node001", {"cpu": "1", "memory": "8000000Ki"}) == [
        "node001 has 7.6 GiB of memory; 16 GB are recommended",
        "node001 has 1 core; 2 are recommended",
    ]
    assert hardware.warnings("node001", {"cpu": "2", "memory": "16000000Ki"}) == []


async def test_item_84_without_dns_the_setup_stops(tmp_path: Path) -> None:
    status, printed = await dns(tmp_path, "", 0)
    assert status == "failed"
    assert "Nothing was changed." in printed


async def test_item_85_without_a_package_index_the_setup_stops(tmp_path: Path) -> None:
    status, printed = await packages(tmp_path, manager(tmp_path, "dnf", 1))
    assert status == "failed"
    assert "Nothing was changed." in printed


def test_item_100_the_summary_has_the_url_with_fqdn_and_port(tool: Tool) -> None:
    async def settings() -> Settings:
        async with datafolder.open_head(tool.data) as opened:
            tree = opened.head.tree
            values = fitting.complete(answers(fqdn="k.example.com", proxy__port=10444), of_tree(tree, "basecm10"))
            return of_answers(values, tree, "basecm10")

    lines = deploy.summary(asyncio.run(settings()), Path("/kubeconfig"))
    assert lines[0] == "Installation completed. Pods might still be initializing."
    assert "- Kubernetes API server: https://k.example.com:10444" in lines
    assert any(line.startswith("To use kubectl load the module file: kubernetes/default/1.") for line in lines)


@pytest.mark.parametrize(
    ("flag", "stage"),
    [
        ("--skip-dns-configuration-check", "Check DNS Configuration"),
        ("--skip-package-manager-update-check", "Check Package Manager Update"),
        ("--skip-reboot", "Reboot Nodes"),
        ("--skip-image-update", "Update Software Images"),
        ("--skip-packages", "Install Packages"),
        ("--skip-package-install", "Install Packages"),
        ("--skip-docker", "Assign Docker Role"),
        ("--skip-install-repos", "Write Package Repositories"),
        ("--skip-disksetup-changes", "Protect Etcd Nodes"),
        ("--no-distro-checks", "Check Distribution"),
    ],
)
def test_item_101_a_skip_flag_removes_exactly_its_stage(
    tool: Tool, monkeypatch: pytest.MonkeyPatch, flag: str, stage: str
) -> None:
    monkeypatch.undo()
    tool.answers.write_text(MINIMAL.partition("  skip:")[0] + "docker: {install: true}\n")
    plans = [re.findall(r"^ *\d+\. \w+: (.*)$", tool.deploy("--plan", *words).stdout, re.M) for words in ([], [flag])]
    assert stage in plans[0]
    assert plans[1] == [name for name in plans[0] if name != stage]


@pytest.mark.parametrize(("key", "tag"), declaration.TAGS.items())
def test_item_101_the_same_keys_of_the_file_leave_the_same_stages_out(key: str, tag: str) -> None:
    values = fitting.complete(answers(), site())
    values["docker"]["install"] = True
    values["kubernetes"]["operators"] = {
        "netq": {"version": "", "chart": "/netq.tgz", "values_file": "", "options": {}}
    }
    values["kubernetes"]["skip"] = dict.fromkeys(declaration.SKIPS, False)
    whole = operations.deployment(values, site())
    left_out = [stage.name for stage in whole if tag in stage.tags]
    assert len(left_out) == 1
    values["kubernetes"]["skip"][key] = True
    assert [stage.name for stage in operations.deployment(values, site())] == [
        stage.name for stage in whole if stage.name not in left_out
    ]


def test_item_52_less_time_for_reboots_than_the_minimum_is_refused(tool: Tool) -> None:
    done = tool.deploy("--min-reboot-timeout", "100")
    assert done.exit_code == 2
    assert "--min-reboot-timeout" in done.stderr and "300" in done.stderr
    assert not (tool.data / "setup").exists()
    tool.answers.write_text(MINIMAL + "  reboot_timeout: 100\n")
    done = tool.deploy()
    assert done.exit_code == 2
    assert "kubernetes.reboot_timeout (line 10): must be an integer from 300 to 86400" in done.stderr
    tool.answers.write_text(MINIMAL)
    assert tool.deploy("--min-reboot-timeout", "600").exit_code == 0
    assert tool.journal()["answers"]["kubernetes"]["reboot_timeout"] == 600


@pytest.mark.parametrize(
    ("family", "path", "line", "install"),
    [
        ("apt", "/etc/apt/sources.list.d/kubernetes.list", "/v1.35/deb/ /", "apt-get install -y kubeadm=1.35.4-*"),
        ("yum", "/etc/yum.repos.d/kubernetes.repo", "/v1.35/rpm/\n", "yum install -y kubeadm-1.35.4"),
        ("zypper", "/etc/zypp/repos.d/kubernetes.repo", "/v1.35/rpm/\n", "zypper install -y kubeadm-1.35.4"),
    ],
)
def test_item_108_every_distribution_has_its_repository_and_its_packages(
    family: Any, path: str, line: str, install: str
) -> None:
    systems = {"apt": "ID=ubuntu\n", "yum": "ID=rhel\n", "zypper": "ID=sles\n"}
    made = repositories.overlay(family, "1.35.4", Mirror(), ["node001"])
    assert made is not None
    (file,) = made["children"]["customizations"].values()
    assert file["values"]["filename"] == path
    assert line in file["values"]["content"]
    step = bump(systems[family], {}, "1.35.4")
    assert (step.family, step.path, step.content) == (family, path, file["values"]["content"])
    assert any(install in command for command in step.commands)


def test_item_198_the_flag_of_netq_removes_its_check(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    tool.answers.write_text(MINIMAL + "  operators: {netq: {chart: /netq.tgz}}\n")
    stage, flag = "Check NetQ Prerequisites", "--skip-netq-prerequisites-checks"
    plans = [re.findall(r"^ *\d+\. \w+: (.*)$", tool.deploy("--plan", *words).stdout, re.M) for words in ([], [flag])]
    assert stage in plans[0]
    assert plans[1] == [name for name in plans[0] if name != stage]


def test_item_202_an_operator_without_a_chart_is_refused_with_its_key(tool: Tool) -> None:
    tool.answers.write_text(MINIMAL + "  operators: {spark-operator: }\n")
    done = tool.deploy()
    assert done.exit_code == 2
    assert "kubernetes.operators.spark-operator.chart: spark-operator is installed from its chart" in done.stderr
    assert fakes.content(tool.world) == {}


def test_item_111_without_the_confirmation_nothing_is_removed(tool: Tool) -> None:
    tool.cluster("default")
    done = tool("--remove")
    assert done.exit_code == 2
    assert "nothing was changed" in done.stderr
    assert "--yes-i-really-mean-it" in done.stderr
    assert not (tool.data / "setup").exists()


def test_item_112_with_several_clusters_one_must_be_named(tool: Tool) -> None:
    tool.cluster("first")
    tool.cluster("second", 10444)
    done = tool("--remove", "--yes-i-really-mean-it", "--log-file", str(tool.log))
    assert done.exit_code == 2
    assert "there are several clusters to remove: first, second" in done.stderr
    assert fakes.content(tool.world) == {}
    wrong = tool("--remove", "--yes-i-really-mean-it", "--cluster", "..", "--log-file", str(tool.log))
    assert wrong.exit_code == 2
    assert "clusters: first, second" in wrong.stderr


def test_item_113_a_removal_has_the_twenty_documented_stages() -> None:
    names = [stage.name for stage in operations.removal("default")]
    assert names == [
        "Get Kube Cluster",
        "Check Kube Cluster Exists",
        "Find Installed Components",
        "Find Files On Headnodes",
        "Firewall Zone Close",
        "Firewall Interface Close",
        "Firewall Policy Close",
        "Nginx Reverse Proxy Close",
        "IP Ports Close",
        "Remove Health Checks",
        "Unassign Roles",
        "Remove Config Overlays",
        "Remove Installed Components",
        "Remove Files On Headnodes",
        "Remove Etcd Spool",
        "Remove Networks",
        "Set Reboot Required",
        "Collection Update Provisioners",
        "Remove Kube Cluster",
        "Print Summary",
    ]


def test_item_191_versions_of_operators_show_the_default_first_and_netq_by_release(tool: Tool) -> None:
    done = tool("--list-operators-versions", on_head=False)
    assert done.exit_code == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    first = lines[lines.index("NVIDIA GPU Operator:") + 1]
    assert first == "24.6.2 (default) (NVIDIA AI Enterprise certified)"
    netq = lines[lines.index("NetQ:") + 1 :][:5]
    assert netq == [f"4.{9 + number} (Kubernetes 1.{27 + number})" for number in range(5)]


def test_item_192_an_operator_is_available_only_while_its_definition_is_served() -> None:
    def definition(established: str, served: bool) -> dict[str, Any]:
        return {
            "metadata": {"name": "mpijobs.kubeflow.org"},
            "spec": {"versions": [{"name": "v1", "served": served}]},
            "status": {"conditions": [{"type": "Established", "status": established}]},
        }

    for item, number in (
        (definition("True", True), 1),
        (definition("False", True), 0),
        (definition("True", False), 0),
    ):
        rows = dict(line.split(" : ") for line in listings.available({"items": [item]}))
        assert {name.strip(): int(text) for name, text in rows.items() if text.isdecimal()} == {
            "cm-jupyter-kernel-operator": 0,
            "postgresql-operator": 0,
            "spark-operator": 0,
            "cm-kubernetes-mpi-operator": number,
        }
