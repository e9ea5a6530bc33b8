"""Counters, gauges and histograms that cost little to load and to count with.

In: observations, from one thread. Out: the samples that prometheus_client's own classes would give, read when somebody
asks. That library is loaded only then: it takes a program longer to load than to start, and a node's daemon has its
first caller while it starts. Until a program serves its metrics, a `Waiting` stands for the library's registry.
"""

from __future__ import annotations

import abc
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["Collecting", "Counter", "Gauge", "Histogram", "Registry", "Waiting"]

V = TypeVar("V", bound="_Value")
_Sample = tuple[str, dict[str, str], float]
"""What is added to the name, what is added to the labels, the number."""


class Collecting(Protocol):
    """What a registry asks for samples."""

    def collect(self) -> Iterable[Metric]: ...


class Registry(Protocol):
    """Where metrics are registered: the library's `CollectorRegistry`, or a `Waiting`."""

    def register(self, collector: Collecting) -> None: ...


class Waiting:
    """Keeps what is registered until the library's registry is there."""

    def __init__(self) -> None:
        self._collectors: list[Collecting] = []
        self._registry: CollectorRegistry | None = None

    def register(self, collector: Collecting) -> None:
        """Keep it, or pass it on."""
        if self._registry is not None:
            self._registry.register(collector)
        else:
            self._collectors.append(collector)

    def pass_on(self, registry: CollectorRegistry) -> None:
        """Register there what is here, and what comes later."""
        for collector in self._collectors:
            registry.register(collector)
        self._registry, self._collectors = registry, []


class _Value(abc.ABC):
    """The number of one combination of labels."""

    __slots__ = ("_since", "_value")

    def __init__(self, bounds: Sequence[float] = ()) -> None:
        self._since, self._value = time.time(), 0.0

    @abc.abstractmethod
    def samples(self) -> Iterator[_Sample]:
        """What a scrape shows of it."""


class _Count(_Value):
    __slots__ = ()

    def inc(self, amount: float = 1) -> None:
        if amount < 0:
            raise ValueError("a counter never falls")
        self._value += amount

    def samples(self) -> Iterator[_Sample]:
        yield "_total", {}, self._value
        yield "_created", {}, self._since


class _Level(_Value):
    __slots__ = ()

    def set(self, value: float) -> None:
        self._value = float(value)

    def samples(self) -> Iterator[_Sample]:
        yield "", {}, self._value


class _Spread(_Value):
    __slots__ = ("_bounds", "_counts")

    def __init__(self, bounds: Sequence[float] = ()) -> None:
        super().__init__()
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, amount: float) -> None:
        self._value += amount
        self._counts[bisect_left(self._bounds, amount)] += 1

    def samples(self) -> Iterator[_Sample]:
        from prometheus_client.utils import floatToGoString

        total = 0.0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            yield "_bucket", {"le": str(floatToGoString(bound))}, total  # type: ignore[no-untyped-call]
        yield "_count", {}, total
        yield "_sum", {}, self._value
        yield "_created", {}, self._since


class _Metric(Generic[V]):
    """A metric: one value, or one for each combination of labels that was seen."""

    kind = ""

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str] = (),
        *,
        make: type[V],
        bounds: Sequence[float] = (),
        registry: Registry,
    ) -> None:
        self.label_names = tuple(labels)
        self._name, self._text = name.removesuffix("_total") if self.kind == "counter" else name, text
        self._make, self._bounds = make, tuple(bounds)
        self._values: dict[tuple[str, ...], V] = {}
        if not labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> V:
        """The value of this combination of labels."""
        value = self._values.get(values)
        if value is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self._name} has the labels {self.label_names}, not {len(values)}")
            value = self._values[values] = self._make(self._bounds)
        return value

    def describe(self) -> Iterable[Metric]:
        """The metric without samples, by which a registry sees that a name is taken."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """The metric with its samples."""
        family = self._family()
        for values, value in list(self._values.items()):
            labels = dict(zip(self.label_names, values, strict=True))
            for suffix, more, number in value.samples():
                family.add_sample(self._name + suffix, labels | more, number)
        return [family]

    def _family(self) -> Any:
        from prometheus_client.core import Metric

        return Metric(self._name, self._text, self.kind)


class Counter(_Metric[_Count]):
    """What only grows."""

    kind = "counter"

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, registry: Registry) -> None:
        super().__init__(name, text, labels, make=_Count, registry=registry)

    def inc(self, amount: float = 1) -> None:
        """Count; for a counter without labels."""
        self.labels().inc(amount)


class Gauge(_Metric[_Level]):
    """What rises and falls."""

    kind = "gauge"

    def __init__(self, name: str, text: str, labels: Sequence[str] = (), *, registry: Registry) -> None:
        super().__init__(name, text, labels, make=_Level, registry=registry)

    def set(self, value: float) -> None:
        """It is this now; for a gauge without labels."""
        self.labels().set(value)


class Histogram(_Metric[_Spread]):
    """How many observations were at most so large, for each of the bounds."""

    kind = "histogram"

    def __init__(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float], registry: Registry
    ) -> None:
        super().__init__(name, text, labels, make=_Spread, bounds=buckets, registry=registry)

    def observe(self, amount: float) -> None:
        """Count it; for a histogram without labels."""
        self.labels().observe(amount)
