"""The dashboard's files: the page at `/`, its modules, styles and icon under `/dashboard/`.

They lie beside this file, are read once, and need nothing from elsewhere: the policy that is sent
along lets a browser load nothing but them, and speak to nobody but this node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # asked again each time, and answered with 304
}
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGE = "index.html"


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    media_type: str
    etag: str


def assets() -> dict[str, Asset]:
    """The files of the page, by path below the folder."""
    return dict(_found(files("gateway.admin.dashboard") / "static", ""))


def _found(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        if entry.is_dir():
            found += _found(entry, f"{prefix}{entry.name}/")
            continue
        media_type = MEDIA_TYPES.get(entry.name.rpartition(".")[2])
        if media_type is not None:
            body = entry.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
            found.append((prefix + entry.name, Asset(body, media_type, etag)))
    return found


def page_routes() -> list[Route]:
    """The page shows nothing by itself: all it asks for is checked as any other request is."""
    known = assets()

    async def show_page(request: Request) -> Response:
        return _answer(request, known, PAGE)

    async def show_asset(request: Request) -> Response:
        return _answer(request, known, request.path_params["file"])

    return [
        Route("/", show_page, methods=["GET"], include_in_schema=False),
        Route("/dashboard/{file:path}", show_asset, methods=["GET"], include_in_schema=False),
    ]


def _answer(request: Request, known: Mapping[str, Asset], name: str) -> Response:
    asset = known.get(name)
    if asset is None:
        raise HTTPException(404, f"no file {name!r} of the dashboard")
    headers = {**HEADERS, "ETag": asset.etag}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)
