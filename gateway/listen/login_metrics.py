"""Metrics of the logins that the gateway judges itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.listen.authentication import Authentication, SessionEnd


@dataclass(slots=True, eq=False)
class LoginCollector(Collector):
    authentications: Mapping[str, Authentication]  # by listener

    def collect(self) -> Iterator[Metric]:
        logins = CounterMetricFamily(
            "keyway_logins",
            "Logins that the gateway judged, by listener, mechanism and outcome",
            labels=["listener", "mechanism", "outcome"],
        )
        ended = CounterMetricFamily(
            "keyway_sessions_ended",
            "Sessions of clients that the gateway ended, by listener and reason",
            labels=["listener", "reason"],
        )
        unusable = GaugeMetricFamily(
            "keyway_login_files_unusable",
            "1: a file or URL of logins cannot be used as it is now; what was read before is",
            labels=["listener"],
        )
        for listener, authentication in sorted(self.authentications.items()):
            for (mechanism, outcome), count in sorted(authentication.logins.items()):
                logins.add_metric([listener, mechanism, outcome], count)
            for why in SessionEnd:
                ended.add_metric([listener, why.value], authentication.ended[why])
            unusable.add_metric([listener], float(bool(authentication.warnings())))
        yield from (logins, ended, unusable)
