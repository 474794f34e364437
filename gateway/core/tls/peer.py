"""The certificate that a client showed, as OpenSSL has verified it: who the client is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

# RFC 2253 has these names of attributes. Kafka's principals (Java's X500Principal) write any other
# one as an object id; here it keeps OpenSSL's long name, such as emailAddress.
_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_ESCAPED: Final = frozenset(',+"\\<>;')


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCertificate:
    """`subject`: in the form of RFC 2253, as Kafka's principals have it:
    `CN=orders,OU=shop,C=DE`.
    """

    subject: str
    dns_names: tuple[str, ...] = ()  # subject alternative names
    uris: tuple[str, ...] = ()  # the same, as SPIFFE has them
    emails: tuple[str, ...] = ()
    serial: str = ""  # hex digits
    issuer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFacts:
    """What TLS shows of a client connection. `peer`: None if the client showed no certificate."""

    version: str  # TLSv1.3
    cipher: str
    server_name: str | None  # that the client asked for (SNI)
    peer: PeerCertificate | None
    peer_expires_s: float | None = None  # the end of that certificate, seconds since the epoch


def peer_certificate(verified: Mapping[str, Any] | None) -> PeerCertificate | None:
    """`verified`: what ssl.SSLSocket.getpeercert() tells of a verified certificate; None and {}: no
    certificate came.
    """
    if not verified:
        return None
    alternatives = verified.get("subjectAltName", ())

    def named(kind: str) -> tuple[str, ...]:
        return tuple(value for tag, value in alternatives if tag == kind)

    return PeerCertificate(
        subject=_distinguished_name(verified.get("subject", ())),
        dns_names=named("DNS"),
        uris=named("URI"),
        emails=named("email"),
        serial=verified.get("serialNumber", ""),
        issuer=_distinguished_name(verified.get("issuer", ())),
    )


def _distinguished_name(relative_names: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """RFC 2253 begins with the last of the certificate's relative names."""
    return ",".join(
        "+".join(f"{_SHORT.get(name, name)}={_value(value)}" for name, value in pairs)
        for pairs in reversed(relative_names)
    )


def _value(text: str) -> str:
    """Escaped, so that no value can look like a further attribute."""
    escaped = "".join(
        "\\" + character if character in _ESCAPED else character for character in text
    )
    if text[:1] in ("#", " "):
        escaped = "\\" + escaped
    if len(text) > 1 and text.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return escaped.replace("\x00", "\\00")
