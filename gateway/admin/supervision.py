"""REST for those who run the node: `GET /v1/config`, `POST /v1/config/reload`, `POST
/v1/tls/reload`, `GET /v1/audit`.
"""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.admin.audit import Audit
from gateway.admin.configuration import Configuration
from gateway.admin.limits import ID_MAX
from gateway.admin.node_rows import AuditList, AuditRow, PortCertificates, TlsReloadRow
from gateway.admin.pages import limit_of, number, page_of
from gateway.admin.problems import answered
from gateway.config.file import ConfigError
from keyway.tls.certificates import AllCertificates


def supervision_routes(
    configuration: Configuration, audit: Audit, certificates: AllCertificates
) -> list[Route]:
    async def show_config(_: Request) -> Response:
        return answered(configuration.shown())

    async def reload(_: Request) -> Response:
        try:
            return answered(configuration.reload())
        except ConfigError as error:
            raise HTTPException(409, str(error)) from error

    async def reload_tls(_: Request) -> Response:
        rows = [
            PortCertificates(
                listener=port.port,
                reloaded=done,
                problem=port.problem,
                expires_ms=min(certificate.expires_s for certificate in port.expiring) * 1000,
            )
            for port, done in certificates.reload()
        ]
        return answered(TlsReloadRow(listeners=rows))

    async def show_audit(request: Request) -> Response:
        limit = limit_of(request)
        after = number(request, "after", 0, ID_MAX, default=ID_MAX)
        wanted = {name: request.query_params.get(name) for name in ("who", "group", "action")}

        def kept(row: AuditRow) -> bool:
            return row.id < after and all(
                value in (None, getattr(row, name)) for name, value in wanted.items()
            )

        page, more = await page_of(audit.rows(), 0, limit, kept)
        return answered(AuditList(audit=page, next=str(page[-1].id) if more else None))

    return [
        Route("/v1/config", show_config, methods=["GET"]),
        Route("/v1/config/reload", reload, methods=["POST"]),
        Route("/v1/tls/reload", reload_tls, methods=["POST"]),
        Route("/v1/audit", show_audit, methods=["GET"]),
    ]
