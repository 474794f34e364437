"""The certificate of a registry view: the view shows it, and the node beside it watches its end."""

from __future__ import annotations

import ssl

from keyway.clusters.registries import RegistryView
from keyway.tls.certificates import Certificates, TlsFiles, plain_context

PORT = "registry_view"  # in the place of a listener's name


def certificate_of(section: RegistryView) -> Certificates[ssl.SSLContext] | None:
    """None: the view is plain HTTP. Raises UnusableFiles."""
    if section.cert_file is None:
        return None
    files = TlsFiles(cert_file=section.cert_file, key_file=section.key_file)
    return Certificates(PORT, files, plain_context)
