"""The declarations of every entity, and `SCHEMA`: the modes they stand in."""

from __future__ import annotations

from bedplate.head.entities.kubernetes import EtcdCluster, KubeCluster
from bedplate.head.entities.nodes import Category, ConfigurationOverlay, HeadNode, PhysicalNode, SoftwareImage
from bedplate.head.entities.site import HealthCheck, Network, User
from bedplate.head.schema.entity import Schema, Submode

__all__ = ["SCHEMA"]

SCHEMA = Schema(
    [
        Submode("Device", HeadNode, PhysicalNode, doc="head nodes and compute nodes", usual=PhysicalNode),
        Submode("Category", Category, doc="groups of nodes"),
        Submode("SoftwareImage", SoftwareImage, doc="directory trees for nodes"),
        Submode("Network", Network, doc="ranges of addresses"),
        Submode("ConfigurationOverlay", ConfigurationOverlay, doc="roles for sets of nodes"),
        Submode("Kubernetes", KubeCluster, doc="Kubernetes clusters"),
        Submode("Etcd", EtcdCluster, doc="etcd clusters"),
        Submode("HealthCheck", HealthCheck, doc="checks that return PASS or FAIL"),
        Submode("User", User, doc="users of the head"),
    ]
)
