"""Which labels a node gets."""

from __future__ import annotations

import pytest

from bedplate.cloud import labels
from bedplate.cloud.interface import InstanceMetadata

SIX = {
    "beta.kubernetes.io/instance-type": "small",
    "node.kubernetes.io/instance-type": "small",
    "failure-domain.beta.kubernetes.io/zone": "z",
    "topology.kubernetes.io/zone": "z",
    "failure-domain.beta.kubernetes.io/region": "r",
    "topology.kubernetes.io/region": "r",
}
METADATA = InstanceMetadata(instance_type="small", zone="z", region="r")


def test_both_names_of_type_zone_and_region_are_set_over_existing_values() -> None:
    wanted = labels.from_cloud({"topology.kubernetes.io/zone": "other"}, METADATA)
    assert wanted == labels.Wanted(SIX)


def test_what_the_cloud_does_not_say_is_not_set() -> None:
    assert labels.from_cloud({}, InstanceMetadata(zone="z")).labels == {
        key: value for key, value in SIX.items() if "zone" in key
    }


def test_additional_labels_never_replace_at_initialisation_and_do_at_refresh() -> None:
    given = InstanceMetadata(labels={"example.com/rack": "4", "example.com/new": "1"})
    first = labels.from_cloud({"example.com/rack": "3"}, given)
    assert first.labels == {"example.com/new": "1"}
    assert "example.com/rack" in first.warnings[0]
    assert labels.at_refresh({"example.com/rack": "3"}, given).labels == {
        "example.com/rack": "4",
        "example.com/new": "1",
    }


@pytest.mark.parametrize("key", ["kubernetes.io/x", "node.kubernetes.io/x", "a.b.k8s.io/x", "k8s.io/x"])
def test_a_cloud_may_not_set_labels_of_kubernetes(key: str) -> None:
    for rule in (labels.from_cloud, labels.at_refresh):
        wanted = rule({}, InstanceMetadata(labels={key: "1"}))
        assert wanted.labels == {}
        assert key in wanted.warnings[0]


@pytest.mark.parametrize("key", ["notkubernetes.io/x", "example.com/kubernetes.io", "plain"])
def test_keys_that_only_look_alike_are_a_clouds_to_set(key: str) -> None:
    assert labels.from_cloud({}, InstanceMetadata(labels={key: "1"})).labels == {key: "1"}


def test_a_label_the_server_would_refuse_is_left_out_with_a_warning() -> None:
    given = InstanceMetadata(instance_type="has blanks", zone="z" * 64, region="r", labels={"a/b/c": "1", "x": "no!"})
    wanted = labels.from_cloud({}, given)
    assert set(wanted.labels) == {"failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"}
    assert len(wanted.warnings) == 4


def test_new_labels_follow_old_ones_and_never_the_other_way() -> None:
    assert labels.from_beta({"failure-domain.beta.kubernetes.io/zone": "z"}) == {"topology.kubernetes.io/zone": "z"}
    assert labels.from_beta({"topology.kubernetes.io/zone": "z"}) == {}
    assert labels.from_beta(SIX) == {}


def test_at_refresh_the_cloud_wins_over_old_labels_and_old_labels_over_nothing() -> None:
    present = {**SIX, "failure-domain.beta.kubernetes.io/zone": "edited", "beta.kubernetes.io/instance-type": "edited"}
    wanted = labels.at_refresh(present, InstanceMetadata(zone="z", region="r")).labels
    assert wanted == {
        "failure-domain.beta.kubernetes.io/zone": "z",
        "node.kubernetes.io/instance-type": "edited",
    }


def test_a_refresh_that_agrees_wants_nothing() -> None:
    assert labels.at_refresh({**SIX, "mine": "1"}, METADATA) == labels.Wanted()


@pytest.mark.parametrize(("value", "expected"), [("", True), ("true", True), ("x", True), ("false", False)])
def test_any_value_but_false_excludes_from_lifecycle(value: str, expected: bool) -> None:
    assert labels.is_excluded({labels.LABEL_EXCLUDE_FROM_LIFECYCLE: value}) is expected
    assert labels.is_excluded({}) is False
