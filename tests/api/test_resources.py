"""Request paths and keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.api import core, identity, meta, resources


def test_paths_follow_group_scope_and_subresource() -> None:
    assert resources.NODES.path() == "/api/v1/nodes"
    assert resources.NODES.path(name="a", subresource="status") == "/api/v1/nodes/a/status"
    assert resources.PODS.path() == "/api/v1/pods"
    assert resources.PODS.path("n") == "/api/v1/namespaces/n/pods"
    assert resources.LEASES.path("n", "l") == "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"
    assert resources.LEASES.api_version == "coordination.k8s.io/v1"
    assert resources.LEASES.qualified == "leases.coordination.k8s.io"


def test_a_namespace_where_there_is_none_and_a_missing_one_are_refused() -> None:
    with pytest.raises(ValueError, match="no namespaces"):
        resources.NODES.path("n", "a")
    with pytest.raises(ValueError, match="needs a namespace"):
        resources.PODS.path(None, "a")


@pytest.mark.parametrize("name", ["..", ".", "a/b", "%2e%2e", "a%"])
def test_a_name_that_could_change_the_path_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="request path"):
        resources.NODES.path(name=name)


@given(st.text(min_size=1).filter(lambda text: text not in (".", "..") and not set(text) & set("/%")))
def test_any_other_name_stays_one_segment(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return
    path = resources.NODES.path(name=name)
    assert path.count("/") == 4
    assert not set(path) & set("?# \n")


def test_names_of_rbac_keep_their_colons() -> None:
    roles = resources.custom("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False)
    assert roles.path(name="system:node").endswith("/clusterroles/system:node")


def test_the_same_resource_can_be_read_raw_or_in_part() -> None:
    assert resources.NODES.raw().model is dict
    assert resources.NODES.partial().model is meta.PartialObject
    assert resources.NODES.raw().path(name="a") == resources.NODES.path(name="a")


@pytest.mark.parametrize("namespace", ["", "n"])
def test_models_and_raw_objects_answer_alike(namespace: str) -> None:
    raw = {"metadata": {"name": "a", "namespace": namespace, "uid": "u", "resourceVersion": "5"}}
    model = core.Node(
        metadata=meta.ObjectMeta(name="a", namespace=namespace, uid="u", resource_version="5", labels={"k": "v"})
    )
    for ask in (
        identity.key_of,
        identity.uid_of,
        identity.resource_version_of,
    ):
        assert ask(raw) == ask(model)
    assert identity.split_key(identity.key_of(raw)) == (namespace, "a")


def test_an_object_without_metadata_has_empty_answers() -> None:
    assert (identity.name_of({}), identity.uid_of({"metadata": None}), identity.key_of({})) == ("", "", "")
