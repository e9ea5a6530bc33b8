"""The tests stand alone: the user may have a cluster and a proxy, and neither is touched."""

from __future__ import annotations

import os
import urllib.request


def test_the_cluster_of_whoever_runs_the_tests_is_out_of_reach() -> None:
    assert "KUBECONFIG" not in os.environ


def test_servers_of_this_machine_are_reached_without_a_proxy() -> None:
    assert urllib.request.proxy_bypass("127.0.0.1")
