"""Serves REST on admin.host and admin.port, with uvicorn inside the node's event loop."""

from __future__ import annotations

import resource
import socket
import ssl

from starlette.applications import Starlette

from gateway.config.admin import AdminSection
from gateway.config.file import ConfigError
from gateway.listen.admission import rest_connections_max
from gateway.listen.listeners import listening_socket
from gateway.node.settings import tls_files
from gateway.part import Part
from keyway.rest.serving import Serving
from keyway.tls.certificates import AllCertificates, Certificates, UnusableFiles, plain_context

REST = "rest"  # in the place of a listener's name


class RestServer:
    """`certificates`: None: plain HTTP."""

    def __init__(
        self,
        section: AdminSection,
        app: Starlette,
        certificates: Certificates[ssl.SSLContext] | None,
    ) -> None:
        self._section = section
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        context = None if certificates is None else certificates.following()
        self._serving = Serving(app, rest_connections_max(files), context)
        self._listening: socket.socket | None = None
        self.run, self.accept = self._serving.run, self._serving.accept

    async def start(self) -> None:
        """Raises CannotListen."""
        section = self._section
        self._listening = listening_socket(section.host, section.port, "admin.host, admin.port")
        await self._serving.start(self._listening)

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.close()


def build(section: AdminSection, app: Starlette, all_of_node: AllCertificates) -> Part[None]:
    """The part that serves REST, from before clients come, who may have to wait, until the very
    end. Raises ConfigError for TLS files that cannot be used.
    """
    certificates = None
    if section.tls is not None:
        try:
            certificates = Certificates(REST, tls_files(section.tls, "admin.tls"), plain_context)
        except UnusableFiles as unusable:
            raise ConfigError(f"admin.tls: {unusable}") from unusable
        all_of_node.add(certificates)
    server = RestServer(section, app, certificates)
    return Part(
        name="rest",
        room=None,
        start=server.start,
        background=(server.run, server.accept),
        close=server.close,
    )
