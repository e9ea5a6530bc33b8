"""Defaulting gives what Go's own defaulting gives, on recorded samples and on the cases people meet."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from bedplate.api import quantity
from bedplate.apiserver import facts
from bedplate.apiserver.shape import defaults

DATA = Path(__file__).parents[1] / "data"


def samples(version: str) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """kind, type, object before and after; made by `bedplate lab facts --samples`."""
    table = facts.load(version)
    for line in gzip.decompress((DATA / f"defaults-v{version}.jsonl.gz").read_bytes()).splitlines():
        pair = json.loads(line)
        api_version, kind = pair["after"]["apiVersion"], pair["after"]["kind"]
        name = table.type_name(api_version, kind)
        # Image volumes are a switched-off feature of 1.34: Go defaults them from 1.35 on, the rules always.
        if name is not None and not (version == "1.34" and b'"image":{' in line):
            yield f"{api_version} {kind}", name, pair["before"], pair["after"]


@pytest.mark.parametrize("version", facts.available())
def test_samples_become_what_go_makes_of_them(version: str) -> None:
    table = facts.load(version)
    count = 0
    for kind, name, before, after in samples(version):
        obj = copy.deepcopy(before)
        defaults.apply_defaults(table.node(name), obj)
        assert obj == after, kind
        count += 1
    assert count > 150


@pytest.mark.parametrize("version", facts.available())
def test_applying_twice_changes_nothing_more(version: str) -> None:
    table = facts.load(version)
    for kind, name, _, after in samples(version):
        again = copy.deepcopy(after)
        defaults.apply_defaults(table.node(name), again)
        assert again == after, kind


@pytest.fixture(scope="module")
def table() -> facts.Facts:
    return facts.load()


def defaulted(table: facts.Facts, api_version: str, kind: str, **content: Any) -> dict[str, Any]:
    name = table.type_name(api_version, kind)
    assert name is not None
    obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}} | content
    defaults.apply_defaults(table.node(name), obj)
    return obj


def test_small_pod_becomes_what_the_real_server_answers(table: facts.Facts) -> None:
    pod = defaulted(table, "v1", "Pod", spec={"containers": [{"name": "c", "image": "nginx"}]})
    assert pod["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    }
    assert pod["status"] == {}


def test_template_differs_from_pod_where_go_says_so(table: facts.Facts) -> None:
    container = {"name": "c", "image": "nginx:1", "resources": {"limits": {"cpu": "1000m"}}}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container], "hostNetwork": False}}
    deployment = defaulted(table, "apps/v1", "Deployment", spec={"template": template, "selector": {}})
    spec = deployment["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    inner = spec["template"]["spec"]
    assert "enableServiceLinks" not in inner
    assert "hostNetwork" not in inner
    assert inner["containers"][0]["resources"] == {"limits": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/team/nginx:v1", "IfNotPresent"),
        ("nginx@sha256:" + "0" * 64, "IfNotPresent"),
        ("Not/An Image", "IfNotPresent"),
        ("", "IfNotPresent"),
        ("a" * 5000 + "!", "IfNotPresent"),
    ],
)
def test_pull_policy_follows_the_tag(table: facts.Facts, image: str, policy: str) -> None:
    pod = defaulted(table, "v1", "Pod", spec={"containers": [{"name": "c", "image": image}]})
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_host_network_gives_host_ports(table: facts.Facts) -> None:
    container = {"name": "c", "image": "a:1", "ports": [{"containerPort": 80}]}
    pod = defaulted(table, "v1", "Pod", spec={"hostNetwork": True, "containers": [container]})
    assert pod["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("ClusterIP", {"internalTrafficPolicy": "Cluster"}),
        ("NodePort", {"internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster"}),
        (
            "LoadBalancer",
            {
                "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": "Cluster",
                "allocateLoadBalancerNodePorts": True,
            },
        ),
        ("ExternalName", {}),
    ],
)
def test_service_defaults_hang_on_its_type(table: facts.Facts, kind: str, expected: dict[str, Any]) -> None:
    service = defaulted(table, "v1", "Service", spec={"type": kind, "ports": [{"port": 80}]})
    assert service["spec"] == expected | {
        "type": kind,
        "sessionAffinity": "None",
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    }
    assert service["status"] == {"loadBalancer": {}}


def test_job_counts(table: facts.Facts) -> None:
    assert defaulted(table, "batch/v1", "Job")["spec"]["completions"] == 1
    fixed = defaulted(table, "batch/v1", "Job", spec={"parallelism": 3, "template": {}})["spec"]
    assert "completions" not in fixed
    assert fixed["backoffLimit"] == 6
    assert defaulted(table, "batch/v1", "Job", spec={"completions": 3})["spec"]["parallelism"] == 1


def test_numbers_and_times_get_their_canonical_form(table: facts.Facts) -> None:
    claim = defaulted(
        table,
        "v1",
        "PersistentVolumeClaim",
        metadata={"name": "a", "deletionTimestamp": "2026-01-02T04:04:05+01:00"},
        spec={"resources": {"requests": {"storage": 1024}}},
    )
    assert claim["spec"]["resources"]["requests"] == {"storage": "1024"}
    assert claim["metadata"]["deletionTimestamp"] == "2026-01-02T03:04:05Z"
    lease = defaulted(table, "coordination.k8s.io/v1", "Lease", spec={"renewTime": "2026-01-02T03:04:05Z"})
    assert lease["spec"]["renewTime"] == "2026-01-02T03:04:05.000000Z"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(("1000m", "1"), ("1024Mi", "1Gi"), ("0.5", "500m"), (1000, "1k"), ("1.5Gi", "1536Mi"), ("1500", "1500")),
        *((2000, "2k"), ("0.5Gi", "512Mi"), ("100Ki", "100Ki"), ("1E", "1E"), ("0Mi", "0"), ("1000Ki", "1000Ki")),
        *(("1024", "1024"), ("1023Ki", "1023Ki"), ("0.001Ki", "1024m"), ("1.0000001Gi", "1073741931375m")),
        *(("9223372036854775807", "9223372036854775807"), (12000000, "12M"), ("-3k", "-3k"), ("1n", "1m")),
        *(("text", "text"), ("", ""), (None, None), (True, True), ("1e999", "1e999"), ("3e-1", "300e-3")),
    ],
)
def test_quantities_in_lists_as_recorded_from_the_real_server(given: Any, expected: Any) -> None:
    assert quantity.canonical(given, in_list=True) == expected


@hypothesis.given(st.text("0123456789.eEinumkKMGTP+-", max_size=12))
def test_canonical_quantity_is_stable_and_keeps_the_value(text: str) -> None:
    once = quantity.canonical(text)
    assert quantity.canonical(once) == once
    assert quantity.parse(once) == quantity.parse(text)


@hypothesis.given(st.text(max_size=30))
def test_any_text_survives_as_a_time(text: str) -> None:
    assert defaults.canonical_time(defaults.canonical_time(text)) == defaults.canonical_time(text)
    assert isinstance(defaults.canonical_micro_time(text), str)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = ("metadata", "spec", "status", "containers", "ports", "template", "strategy", "resources", "limits", "volumes")


@hypothesis.given(st.sampled_from(["Pod", "Service", "Namespace", "LimitRange", "PersistentVolume"]), st.data())
def test_nonsense_never_crashes(table: facts.Facts, kind: str, data: st.DataObject) -> None:
    deep = st.recursive(
        JSON,
        lambda inner: st.dictionaries(st.sampled_from(NAMES), inner | st.lists(inner, max_size=2), max_size=4),
        max_leaves=20,
    )
    obj = data.draw(st.dictionaries(st.sampled_from(NAMES), deep, max_size=4))
    defaults.apply_defaults(table.node(f"io.k8s.api.core.v1.{kind}"), obj)
