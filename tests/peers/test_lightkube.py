"""lightkube, a client library of others, against the embedded server: typed objects, apply, watch, scale, delete."""

from __future__ import annotations

import pathlib
import threading

import lightkube
import pytest
from lightkube.core.exceptions import ApiError
from lightkube.models.apps_v1 import DeploymentSpec
from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace, Pod
from tests.endurance import running
from tests.peers import programs

pytestmark = pytest.mark.external


@pytest.fixture
def client(server: running.Embedded) -> lightkube.Client:
    config = lightkube.KubeConfig.from_file(pathlib.Path(server.kubeconfig))
    return lightkube.Client(config, field_manager="lightkube", trust_env=False)


def test_objects_come_and_go(client: lightkube.Client) -> None:
    client.create(ConfigMap(metadata=ObjectMeta(name="lk", namespace="default", labels={"a": "b"}), data={"x": "1"}))
    found = client.get(ConfigMap, "lk", namespace="default")
    assert found.data == {"x": "1"}
    client.apply(ConfigMap(metadata=ObjectMeta(name="lk", namespace="default"), data={"x": "2"}), force=True)
    patched = client.patch(ConfigMap, "lk", {"data": {"y": "3"}}, namespace="default")
    assert patched.data == {"x": "2", "y": "3"}
    names = [one.metadata.name for one in client.list(ConfigMap, labels={"a": "b"}) if one.metadata]
    assert names == ["lk"]
    client.delete(ConfigMap, "lk", namespace="default")
    with pytest.raises(ApiError) as refused:
        client.get(ConfigMap, "lk", namespace="default")
    assert refused.value.status.code == 404


def test_a_watch_sees_changes(client: lightkube.Client) -> None:
    def create() -> None:
        client.create(ConfigMap(metadata=ObjectMeta(name="seen", namespace="default")))

    timer = threading.Timer(0.3, create)
    timer.start()
    for kind, one in client.watch(ConfigMap, namespace="default", fields={"metadata.name": "seen"}, server_timeout=30):
        assert (kind, one.metadata.name if one.metadata else "") == ("ADDED", "seen")
        break
    else:
        pytest.fail("the watch ended without an event")
    timer.join()


def test_a_deployment_is_scaled(client: lightkube.Client) -> None:
    client.create(Namespace(metadata=ObjectMeta(name="lk")))
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels={"a": "lk"}), spec=PodSpec(containers=[Container(name="c", image="i")])
    )
    spec = DeploymentSpec(selector=LabelSelector(matchLabels={"a": "lk"}), template=template, replicas=1)
    client.create(Deployment(metadata=ObjectMeta(name="d", namespace="lk"), spec=spec))
    scale = client.get(Deployment.Scale, "d", namespace="lk")
    assert scale.spec is not None and scale.spec.replicas == 1
    # Without a version: the deployment controller may be writing at the same time.
    client.patch(Deployment.Scale, "d", {"spec": {"replicas": 3}}, namespace="lk")
    programs.until(lambda: len(list(client.list(Pod, namespace="lk"))) == 3, "three pods")
    client.delete(Namespace, "lk")
    programs.until(lambda: not list(client.list(Pod, namespace="lk")), "no pods")
