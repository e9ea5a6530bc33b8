"""Unmodified helm 3 with a chart made here, on both servers."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from tests.scripts import manifests
from tests.scripts.shell import Script, Shell, Transcript, unique

pytestmark = pytest.mark.real
OnBoth = Callable[[pathlib.Path, Script], Transcript]


def make_chart(folder: pathlib.Path, crd_group: str = "") -> pathlib.Path:
    chart = folder / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: sample\nversion: 0.1.0\nappVersion: '1.0'\n")
    (chart / "values.yaml").write_text("color: blue\nreplicas: 0\n")
    (chart / "templates" / "all.yaml").write_text(
        manifests.DEPLOYMENT.replace("name: web, labels", "name: {{ .Release.Name }}, labels").replace(
            "replicas: 0", "replicas: {{ .Values.replicas }}"
        )
        + "---"
        + manifests.SERVICE
        + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-settings}\n"
        + "data: {color: {{ .Values.color | quote }}, revision: {{ .Release.Revision | quote }}}\n"
    )
    (chart / "templates" / "NOTES.txt").write_text("Installed {{ .Release.Name }} in {{ .Release.Namespace }}.\n")
    if crd_group:
        (chart / "crds").mkdir()
        (chart / "crds" / "gadget.yaml").write_text(manifests.crd(crd_group))
        (chart / "templates" / "gadget.yaml").write_text(manifests.gadget(crd_group, "mine", 3))
    return chart


def test_install_upgrade_rollback_uninstall(helm: pathlib.Path, on_both: OnBoth, tmp_path: pathlib.Path) -> None:
    chart = make_chart(tmp_path)

    def script(run: Shell) -> None:
        run(f"install site {chart}")
        run("list")
        run.unlike("status site -o json")
        run("get manifest site")
        run("get values site --all")
        run(f"upgrade site {chart} --set color=red --wait --timeout 60s")
        assert run.quietly("get cm site-settings -o jsonpath={.data}") == '{"color":"red","revision":"2"}'
        run("history site")
        run("rollback site 1")
        assert run.quietly("get cm site-settings -o jsonpath={.data}") == '{"color":"blue","revision":"1"}'
        run("list -o yaml")
        run.fails(f"install site {chart}")
        run("uninstall site")
        run("list")
        assert run.quietly("get deploy,svc,cm -l app=web -o name") == ""

    on_both(helm, script)


def test_a_chart_with_a_custom_kind(helm: pathlib.Path, on_both: OnBoth, tmp_path: pathlib.Path) -> None:
    group = f"{unique('g')}.example.com"
    chart = make_chart(tmp_path, group)

    def script(run: Shell) -> None:
        run(f"upgrade --install site {chart}")
        assert run.quietly(f"get gadgets.{group} mine -o jsonpath={{.spec}}") == '{"color":"blue","size":3}'
        run(f"upgrade --install site {chart} --set color=green")
        run(f"template site {chart} --validate")
        run("uninstall site --wait")
        assert run.quietly(f"get gadgets.{group} -o name") == ""

    on_both(helm, script)


def test_a_failed_install_can_be_repeated(helm: pathlib.Path, on_both: OnBoth, tmp_path: pathlib.Path) -> None:
    chart = make_chart(tmp_path)

    def script(run: Shell) -> None:
        run.fails(f"install site {chart} --set replicas=-1")
        run(f"upgrade --install site {chart} --reset-values")
        run("history site")
        run("uninstall site --keep-history")
        run("list --uninstalled")

    on_both(helm, script)
