"""Metrics with a row per partition of a group, as Prometheus's text, a portion at a time.

A node may have tens of thousands of such rows. The library makes an object and a dict of each
sample, and formats all of them in one go: a second or more in which nothing else would happen, at
each scrape. Here other work goes on between portions, and the labels of a row are formatted once.
The text is the library's, byte for byte.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, Protocol, runtime_checkable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from gateway.core.cluster.busiest_topics import BusiestTopics
from gateway.core.times import Times

ROWS_AT_ONCE = 1_000  # lines of text made before other work goes on: a millisecond or two
INT_MAX = 1_000_000  # beyond it Prometheus's text has an exponent


class Labels:
    """The values of a row's labels, in the order of their sorted names."""

    __slots__ = ("_text", "values")

    def __init__(self, *values: str) -> None:
        self.values = values
        self._text = ""

    def text(self, form: str) -> str:
        """`form`: of the family, or of another with the same names."""
        if not self._text:
            self._text = form % tuple(_escaped(value) for value in self.values)
        return self._text


@dataclass(slots=True)
class Rows:
    """One family. `names`: of the labels, sorted."""

    name: str
    documentation: str
    names: Sequence[str] = ()
    kind: Literal["gauge", "counter"] = "gauge"
    _rows: list[tuple[Labels, float]] = field(default_factory=list)

    def add(self, labels: Labels, figure: float) -> None:
        self._rows.append((labels, figure))

    def family(self) -> Metric:
        """As the library has it."""
        family = (CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily)(
            self.name, self.documentation, labels=self.names
        )
        for labels, figure in self._rows:
            family.add_metric(labels.values, figure)
        return family

    def portions(self) -> Iterator[bytes]:
        name = f"{self.name}_total" if self.kind == "counter" else self.name
        yield f"# HELP {name} {self.documentation}\n# TYPE {name} {self.kind}\n".encode()
        form = "{" + ",".join(f'{label}="%s"' for label in self.names) + "}" if self.names else ""
        for at in range(0, len(self._rows), ROWS_AT_ONCE):
            portion = self._rows[at : at + ROWS_AT_ONCE]
            lines = [f"{name}{labels.text(form)} {_figure(value)}\n" for labels, value in portion]
            yield "".join(lines).encode()


@runtime_checkable
class RowCollector(Protocol):
    """A collector of metrics with many rows, which need not be read in one go."""

    def collect(self) -> Iterator[Metric]:
        """All at once, for the library."""
        ...

    def gather(self) -> Iterator[tuple[Rows, ...]]:
        """The same families, filled a little more between each two of its turns."""
        ...


def bytes_by_topic(topics: BusiestTopics, direction: str, documentation: str) -> Metric:
    """Of the busiest topics; each scrape ranks them anew."""
    name = f"keyway_topic_{direction}_bytes"
    counter = CounterMetricFamily(name, documentation, labels=["topic"])
    topics.rank()
    for topic, size in topics.rows():
        counter.add_metric([topic], size)
    return counter


def families(collector: RowCollector) -> Iterator[Metric]:
    """All that `gather` comes to, at once."""
    for rows in deque(collector.gather(), maxlen=1).pop():
        yield rows.family()


async def texts(
    collector: RowCollector, pause: Callable[[], Awaitable[None]]
) -> AsyncIterator[bytes]:
    """Prometheus's text of the families; other work goes on at each `pause`."""
    found: tuple[Rows, ...] = ()
    for rows in collector.gather():
        found = rows
        await pause()
    for one in found:
        for portion in one.portions():
            yield portion
            await pause()


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def _figure(figure: float) -> str:
    if isinstance(figure, int) and -INT_MAX < figure < INT_MAX:
        return f"{figure:d}.0"
    return str(floatToGoString(figure))  # type: ignore[no-untyped-call]


def histogram_of(times: Times) -> tuple[list[tuple[str, float]], float]:
    """The buckets and the sum, in seconds, as HistogramMetricFamily takes them."""
    bounds = [*(_figure(bound / 1e9) for bound in times.bounds_ns), "+Inf"]
    counts: list[tuple[str, float]] = list(zip(bounds, accumulate(times.buckets), strict=True))
    return counts, times.sum_ns / 1e9
