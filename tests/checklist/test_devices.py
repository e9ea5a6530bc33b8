"""Items that need a node (29, 34, 59, 123, 124, 128, 129, 131): simulated devices carry out what the plan holds."""

from __future__ import annotations

from pathlib import Path

from tests.checklist.test_docker import planned
from tests.ui.transcripts.living import living

from bedplate.api.desired import File
from bedplate.api.steps import Step

NGINX = "/etc/nginx/nginx.conf"
CRI = "/cm/local/apps/containerd/var/etc/conf.d/cri.toml"
CONTAINERD = ("configurationoverlay use kube-default-worker", "roles", "use generic::containerd", "configurations")


async def test_item_029_what_a_command_says_about_nodes_is_filtered(tmp_path: Path) -> None:
    async with living("deployed", tmp_path) as site:
        await site.desk.do("category use default", "roles", "assign docker::host")
        said = await site.desk.type("plan | grep node003 | grep -c service")
        assert int(said.out) >= 1


async def test_item_034_a_commit_that_changes_a_service_is_told_with_host_and_action(tmp_path: Path) -> None:
    async with living("deployed", tmp_path) as site:
        await site.desk.do("category use default", "roles", "assign docker::host", "commit")
        assert (await site.hears("node001: Service docker was started")).count("[notice]") == 1
        await site.hears("node006: Service docker was started")
        await site.desk.do("..", "remove docker::host", "commit")
        await site.hears("node001: Service docker was stopped")


async def test_item_034_commit_waits_until_the_nodes_have_done_it(tmp_path: Path) -> None:
    async with living("deployed", tmp_path) as site:
        await site.desk.do("category use default", "roles", "assign docker::host", "commit --wait")
        devices = site.devices
        assert devices is not None
        assert all(devices.devices[f"node00{number}"].services["docker"] == "running" for number in range(1, 7))


async def test_item_059_iptables_off_restarts_docker(tmp_path: Path) -> None:
    async with living("deployed", tmp_path) as site:
        await site.desk.do("category use default", "roles", "assign docker::host", "commit --wait")
        await site.desk.do("set iptables no")
        assert ["node002", "service", "docker", "restart"] in await planned(site.desk)
        await site.desk.do("commit")
        await site.hears("node002: Service docker was restarted")


async def test_item_123_a_drop_in_is_written_restarts_containerd_and_is_removed(tmp_path: Path) -> None:
    async with living("deployed", tmp_path) as site:
        desk, devices = site.desk, site.devices
        assert devices is not None
        await desk.do(*CONTAINERD, "use containerd-cri", "set content {files}/690", "commit --wait")
        await site.hears("node004: Service containerd was restarted")
        assert len(devices.devices["node004"].files[CRI]) == 690
        await desk.do("..", "remove containerd-cri", "commit --wait")
        assert CRI not in devices.devices["node004"].files


async def test_item_124_a_disabled_drop_in_is_left_as_it_is(tmp_path: Path) -> None:
    async with living("deployed", tmp_path) as site:
        desk, devices = site.desk, site.devices
        assert devices is not None
        before = devices.devices["node004"].files[CRI]
        await desk.do(*CONTAINERD, "use containerd-cri", "set disabled yes", "commit --wait")
        await desk.do("set content {files}/690", "commit --wait")
        assert devices.devices["node004"].files[CRI] == before


async def test_item_124_a_file_that_cannot_be_written_stops_its_service_where_it_says_so(tmp_path: Path) -> None:
    def disk_is_full(node: str, step: Step, file: File | None) -> str | None:
        return "no space left" if (node, step.verb, step.name) == ("node004", "write", CRI) and broken else None

    broken = False
    async with living("deployed", tmp_path, disk_is_full) as site:
        devices = site.devices
        assert devices is not None
        broken = True
        await site.desk.do(*CONTAINERD, "use containerd-cri", "set content {files}/690", "commit")
        assert "warning" in await site.hears(
            "node004: File /cm/local/apps/containerd/var/etc/conf.d/cri.toml could not"
        )
        await site.hears("node004: Service containerd was stopped")
        assert devices.devices["node004"].services["containerd"] == "stopped"
        broken = False
        await site.hears("node004: Service containerd was started")


async def test_item_128_the_ingress_on_443_has_the_proxy_reloaded_and_leaves_again(tmp_path: Path) -> None:
    async with living("deployed", tmp_path) as site:
        desk, devices = site.desk, site.devices
        assert devices is not None
        await desk.do("kubernetes", "set -e ingress_proxy_backend_port 30443", "set -e ingress_proxy_listen_port 443")
        await desk.do("set -e ingress_proxy_enable true", "commit --wait")
        await site.hears("basecm10: Service nginx was reloaded")
        assert "listen 443;" in devices.devices["basecm10"].files[NGINX]
        await desk.do("set -e ingress_proxy_enable no", "commit --wait")
        await site.hears("basecm10: Service nginx was reloaded", 2)
        assert "listen 443;" not in devices.devices["basecm10"].files[NGINX]


async def test_item_129_port_443_in_use_is_told_with_service_and_file_and_nginx_goes_on(tmp_path: Path) -> None:
    why = "port 443 is in use by apache2: /etc/apache2/ports.conf, line 5, says 'Listen 443'"

    def has_another(node: str, step: Step, file: File | None) -> str | None:
        return why if step.verb == "test" and file is not None and 443 in file.ports else None

    async with living("deployed", tmp_path, has_another) as site:
        desk, devices = site.desk, site.devices
        assert devices is not None
        await desk.do(
            "kubernetes", "set -e ingress_proxy_listen_port 443", "set -e ingress_proxy_enable true", "commit"
        )
        heard = await site.hears(f"basecm10: File /etc/nginx/nginx.conf could not be tested: {why}")
        assert "[warning]" in heard
        assert "listen 443;" not in devices.devices["basecm10"].files[NGINX]
        assert not [line for line in site.told if "basecm10: Service nginx" in line]
        await desk.do("set -e ingress_proxy_listen_port 8443", "commit")
        await site.hears("basecm10: Service nginx was reloaded")
        assert "listen 8443;" in devices.devices["basecm10"].files[NGINX]


async def test_item_131_a_proxy_configuration_that_fails_its_test_is_never_loaded(tmp_path: Path) -> None:
    def test_fails(node: str, step: Step, file: File | None) -> str | None:
        return "unexpected end of file" if (step.verb, step.name) == ("test", NGINX) and broken else None

    broken = False
    async with living("deployed", tmp_path, test_fails) as site:
        desk, devices = site.desk, site.devices
        assert devices is not None
        before = devices.devices["basecm10"].files[NGINX]
        broken = True
        await desk.do("kubernetes", "set kubernetesapiserverproxyport 10444")
        assert ["basecm10", "file", NGINX, "test"] in await planned(desk)
        await desk.do("commit")
        heard = await site.hears("basecm10: File /etc/nginx/nginx.conf could not be tested: unexpected end of file")
        assert "[warning]" in heard
        assert devices.devices["basecm10"].files[NGINX] == before
        assert not [line for line in site.told if "basecm10: Service nginx" in line]
