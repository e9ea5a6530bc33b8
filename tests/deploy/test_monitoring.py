"""The dashboards and the alert rules: every query parses, and names metrics and labels that the programs have."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, ProcessCollector
from tests.deploy.conftest import ROOT

import bedplate
from bedplate.ipam.node.metrics import Snapshot, StateCollector
from bedplate.ipam.node.reservations import Usage

promql_parser = pytest.importorskip("promql_parser", reason="promql-parser is not installed (requirements/dev.txt)")
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "deploy/dashboards").glob("*.json"))}
ALERTS = [
    rule
    for path in sorted((ROOT / "deploy/alerts").glob("*.yaml"))
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
GRAFANA = {"$__rate_interval": "5m", "$job": ".*", "$controller": ".*", "$node": ".*", "$pool": ".*"}
# What Prometheus itself knows of every target.
OF_PROMETHEUS = {"up": set[str]()}
OF_TARGETS = {"job", "instance", "le"}


def metrics_of_the_code() -> dict[str, set[str]]:
    """Each series that the programs can have, with its labels."""
    found = dict(OF_PROMETHEUS)
    for each in pkgutil.walk_packages(bedplate.__path__, "bedplate."):
        # The second is a library that is loaded by name.
        if each.name.endswith(("__main__", ".libstoresum")):
            continue
        module = importlib.import_module(each.name)
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if name.endswith("Metrics") and kind.__module__ == module.__name__:
                registry = CollectorRegistry()
                kind(registry)
                for collector in registry._collector_to_names:
                    own = getattr(collector, "_labelnames", ())
                    labels = set(getattr(collector, "label_names", own))
                    for family in collector.collect():
                        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
                        for suffix in suffixes.get(family.type, ("",)):
                            found[family.name + suffix] = labels
    found |= {family.name: set(family.samples[0].labels) for family in state_of_a_daemon()}
    process = CollectorRegistry()
    ProcessCollector(registry=process)
    return found | {sample.name: set() for family in process.collect() for sample in family.samples}


def state_of_a_daemon() -> Iterator[Any]:
    """The gauges that a node daemon shows, which depend on what it has."""
    snapshot = Snapshot({"p": Usage(1, 2, 1)}, {"q": "wrong"}, is_ready=True)
    return iter(StateCollector(CollectorRegistry(), lambda: snapshot).collect())


def queries() -> Iterator[tuple[str, str]]:
    for board, panel in ((name, panel) for name, one in DASHBOARDS.items() for panel in one["panels"]):
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in GRAFANA.items():
                expression = expression.replace(name, value)
            yield f"{board}: panel {panel['title']}", expression
    for rule in ALERTS:
        yield f"alert {rule['alert']}", rule["expr"]


def parts(node: Any) -> Iterator[Any]:
    """An expression and all within it."""
    yield node
    below = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "vector_selector", "param")]
    for each in (*below, *(getattr(node, "args", None) or ())):
        if each is not None:
            yield from parts(each)


@pytest.mark.parametrize(("place", "expression"), list(queries()), ids=[place for place, _ in queries()])
def test_every_query_names_what_the_manager_has(place: str, expression: str) -> None:
    known = metrics_of_the_code()
    tree = promql_parser.parse(expression)
    selectors = [each for each in parts(tree) if isinstance(each, promql_parser.VectorSelector)]
    assert selectors, expression
    labels = set(OF_TARGETS)
    for selector in selectors:
        assert selector.name in known, f"{place}: no metric is called {selector.name}"
        labels |= known[selector.name]
        for matcher in selector.matchers.matchers:
            assert matcher.name in known[selector.name] | OF_TARGETS, f"{selector.name} has no label {matcher.name}"
    for aggregate in (each for each in parts(tree) if isinstance(each, promql_parser.AggregateExpr)):
        grouped = set(aggregate.modifier.labels) if aggregate.modifier else set()
        assert grouped <= labels, f"{place}: nothing in it has the labels {grouped - labels}"


def test_a_metric_that_nobody_has_is_noticed() -> None:
    with pytest.raises(AssertionError, match="ccm_nonsense_total"):
        test_every_query_names_what_the_manager_has("here", "rate(ccm_nonsense_total[5m])")
    with pytest.raises(ValueError):
        promql_parser.parse("sum(rate(up[5m])")


def test_every_alert_says_how_grave_it_is_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS)
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.parametrize("board", DASHBOARDS.values(), ids=DASHBOARDS)
def test_panels_do_not_overlap(board: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
