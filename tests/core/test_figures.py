"""Figures are what prometheus_client's own classes would show."""

from __future__ import annotations

import re

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from bedplate.core import figures

BOUNDS = (0.001, 0.5, 1.0, 2500000.0)
NAMES = st.sampled_from(["a", "b", 'quoted "\n"', "ä"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("inc"), NAMES, st.floats(0, 1e6)),
        st.tuples(st.just("set"), NAMES, st.floats(-1e6, 1e6)),
        st.tuples(st.just("observe"), NAMES, st.sampled_from([*BOUNDS, 0.0, 0.4999, 3e6]) | st.floats(0, 1e7)),
    ),
    max_size=30,
)


def shown(library: object, steps: list[tuple[str, str, float]]) -> str:
    registry = CollectorRegistry()
    kinds = {
        "inc": library.Counter("calls_total", "Calls.", ("name",), registry=registry),  # type: ignore[attr-defined]
        "set": library.Gauge("size", "Size.", ("name",), registry=registry),  # type: ignore[attr-defined]
        "observe": library.Histogram("took", "Took.", ("name",), buckets=BOUNDS, registry=registry),  # type: ignore[attr-defined]
    }
    alone = library.Counter("alone", "Without labels.", registry=registry)  # type: ignore[attr-defined]
    for step, name, amount in steps:
        getattr(kinds[step].labels(name), step)(amount)
        alone.inc()
    # When a value was first seen is a time of day.
    return re.sub(r"(_created(?:\{.*\})?) [0-9.e+]+", r"\1 then", generate_latest(registry).decode())


@given(STEPS)
def test_they_show_what_the_library_shows(steps: list[tuple[str, str, float]]) -> None:
    assert shown(figures, steps) == shown(prometheus_client, steps)


def test_metrics_wait_for_a_registry_and_count_meanwhile() -> None:
    waiting, registry = figures.Waiting(), CollectorRegistry()
    early = figures.Counter("early_total", "Early.", registry=waiting)
    early.inc(3)
    waiting.pass_on(registry)
    early.inc()
    late = figures.Gauge("late", "Late.", registry=waiting)
    late.set(7)
    assert registry.get_sample_value("early_total") == 4
    assert registry.get_sample_value("late") == 7


def test_a_name_is_registered_once() -> None:
    registry = CollectorRegistry()
    figures.Counter("calls_total", "Calls.", registry=registry)
    with pytest.raises(ValueError, match="Duplicated"):
        figures.Histogram("calls", "Calls.", buckets=(1.0,), registry=registry)


def test_labels_are_those_of_the_metric_and_counters_never_fall() -> None:
    counter = figures.Counter("calls_total", "Calls.", ("method",), registry=CollectorRegistry())
    with pytest.raises(ValueError, match="labels"):
        counter.inc()
    with pytest.raises(ValueError, match="falls"):
        counter.labels("GET").inc(-1)
