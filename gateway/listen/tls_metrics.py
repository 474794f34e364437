"""Metrics of TLS: handshakes, and the certificates of the node's ports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.listen.handshakes import HandshakeFault, Handshakes
from keyway.tls.certificates import AllCertificates


@dataclass(slots=True, eq=False)
class TlsCollector(Collector):
    certificates: AllCertificates
    handshakes: Handshakes

    def collect(self) -> Iterator[Metric]:
        expiry = GaugeMetricFamily(
            "keyway_tls_certificate_expiry_timestamp_seconds",
            "End of a certificate, by listener and file; position 0 of cert_file is the port's own",
            labels=["listener", "file", "position"],
        )
        for port in self.certificates.ports:
            for certificate in port.expiring:
                expiry.add_metric(
                    [port.port, certificate.file, str(certificate.position)], certificate.expires_s
                )
        yield expiry
        unusable = GaugeMetricFamily(
            "keyway_tls_certificate_files_unusable",
            "1: the files as they are now cannot be used, and the certificate before stays in use",
            labels=["listener"],
        )
        for port in self.certificates.ports:
            unusable.add_metric([port.port], float(port.problem is not None))
        yield unusable
        reloads = CounterMetricFamily(
            "keyway_tls_certificate_reloads",
            "Times that certificates were read again, by outcome",
            labels=["outcome"],
        )
        reloads.add_metric(["done"], self.certificates.reloads)
        reloads.add_metric(["failed"], self.certificates.reloads_failed)
        yield reloads
        yield from self._handshakes()

    def _handshakes(self) -> Iterator[Metric]:
        under_way = GaugeMetricFamily(
            "keyway_tls_handshakes_open", "TLS handshakes of clients that are not done"
        )
        under_way.add_metric([], self.handshakes.open)
        yield under_way
        done = CounterMetricFamily(
            "keyway_tls_handshakes", "TLS handshakes of clients, by listener", labels=["listener"]
        )
        failed = CounterMetricFamily(
            "keyway_tls_handshakes_failed",
            "TLS handshakes of clients that failed, by listener and reason",
            labels=["listener", "reason"],
        )
        for listener, counts in sorted(self.handshakes.counts.items()):
            done.add_metric([listener], counts.done)
            for fault in HandshakeFault:
                failed.add_metric([listener, fault.name.lower()], counts.failed.get(fault, 0))
        yield from (done, failed)
