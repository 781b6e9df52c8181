"""ASGI application of the page: its routes and the responses of each."""

from __future__ import annotations

import asyncio
import json
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cache, partial
from importlib import resources
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from wids.base.urls import hide_credentials
from wids.browse.columns import ENDPOINTS, check_parameters, number_of
from wids.browse.decoders import SIZES
from wids.browse.failures import message_of
from wids.browse.guard import Guard
from wids.browse.scans import NotReadyError
from wids.codecs.formats import OCTET_STREAM, media_type
from wids.errors import WidsError
from wids.log import logger

if TYPE_CHECKING:
    from wids.browse.fieldreader import LocatedSample
    from wids.browse.handlers import ApiHandlers
    from wids.display.thumbnails import Thumbnail

__all__ = ["exact", "make_app", "parse_range"]

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]

_STATIC_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# A field that is opened as a page of its own must not run or load anything.
_FIELD_POLICY = "default-src 'none'; sandbox"
_SOON_SECONDS = 0.5  # longest wait of a request that has `soon`
# Cached responses name this run of the server in their URL, so that another run is asked again.
_KEPT = "private, max-age=86400, immutable"
_MOST_EXACT = 1 << 53
_UNSAFE_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
# Nineteen digits are enough for the size of any file, and few enough for int() to be fast.
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


def parse_range(header: str | None, nbytes: int) -> tuple[int, int] | None:
    """Read a Range header.

    Args:
        header: Its text, or None where the request has none.
        nbytes: Bytes of the field.

    Returns:
        The requested half-open range, cut to the size of the field, which is empty if it begins
        after the end; None to send the whole field, as a server may also do for headers that it
        does not support, such as several ranges.

    Source:
        RFC 9110, section 14.

    >>> parse_range("bytes=2-4", 10), parse_range("bytes=-3", 10), parse_range("bytes=0-1,4-5", 10)
    ((2, 5), (7, 10), None)
    >>> parse_range("bytes=12-14", 10)
    (10, 10)
    """
    found = _RANGE.fullmatch(header.strip()) if header else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        start, stop = max(0, nbytes - int(found[2])), nbytes
    else:
        start = int(found[1])
        stop = min(int(found[2]) + 1, nbytes) if found[2] else nbytes
        # Malformed by the RFC, so the header is ignored.
        if found[2] and int(found[2]) < start:
            return None
    return min(start, stop), stop


def make_app(
    handlers: ApiHandlers, *, hosts: frozenset[str] = frozenset(), token: str | None = None
) -> Guard:
    """Make the application for one dataset.

    Args:
        handlers: What answers the requests.
        hosts: Names of this server in addition to those of the loopback.
        token: Secret that a first request must contain; None if none is required.
    """

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        handlers.close()

    # Each file has a route of its own, so no path of a request is ever looked up in a folder.
    routes = [
        Route("/", partial(_send_file, "index.html")),
        Route("/favicon.ico", partial(_send_file, "icon.svg")),
        *(Route(f"/static/{name}", partial(_send_file, name)) for name in _static_files()),
        _route("/thumb", "thumb", partial(_send_thumbnail, handlers)),
        _route("/raw", "raw", partial(_send_raw, handlers)),
        _route("/selection.json", "selection", partial(_send_selection, handlers)),
    ]
    for name in ENDPOINTS.keys() - {"thumb", "raw", "selection"}:
        answer = partial(_send_json, getattr(handlers, name))
        routes.append(_route(f"/api/{name}", name, answer))
    return Guard(Starlette(routes=routes, lifespan=lifespan), hosts, token)


def _route(path: str, name: str, endpoint: Endpoint) -> Route:
    """Return the route of an endpoint, which answers errors as JSON and logs faults of its own."""

    async def answer(request: Request) -> Response:
        try:
            check_parameters(name, request.query_params)
            return await endpoint(request)
        except (WidsError, OSError, ValueError, NotReadyError, LookupError) as error:
            # Unreadable data, a bad request, or nothing of that name.
            unread = isinstance(error, WidsError | OSError)
            status = 500 if unread else 404 if isinstance(error, LookupError) else 400
            return JSONResponse({"error": message_of(error)}, status)
        except Exception as error:  # noqa: BLE001 (the page shows every error)
            logger.error("%s: %s", request.url.path, hide_credentials(traceback.format_exc()))
            message = f"a fault of the server: {type(error).__name__}: {message_of(error)}"
            return JSONResponse({"error": message}, 500)

    return Route(path, answer)


async def _in_thread(call: Callable[..., T], *arguments: Any) -> T:
    """Run a blocking call in a thread, so that other requests are answered meanwhile.

    A cancelled call is abandoned, so that the server can end while the call waits for another
    server.
    """
    return await to_thread.run_sync(partial(call, *arguments), abandon_on_cancel=True)


@cache
def _static_files() -> dict[str, bytes]:
    """Return the static files of the page by name; a request can choose only among these."""
    folder = resources.files("wids.browse") / "static"
    kept = (each for each in folder.iterdir() if PurePath(each.name).suffix in _STATIC_TYPES)
    return {each.name: each.read_bytes() for each in kept}


async def _send_file(name: str, _request: Request) -> Response:
    # Not cached, as the files change with an update of the library and are small.
    headers = {"Content-Type": _STATIC_TYPES[PurePath(name).suffix], "Cache-Control": "no-cache"}
    return Response(_static_files()[name], headers=headers)


async def _send_json(
    answer: Callable[[Mapping[str, str]], dict[str, Any]], request: Request
) -> Response:
    # In a thread, because a shard may have to be opened or fetched.
    try:
        found = await _in_thread(answer, request.query_params)
    except NotReadyError as error:  # the page asks again
        found = error.progress
    # JSON has no NaN, and a browser would refuse the whole response.
    text = json.dumps(exact(found), allow_nan=False, separators=(",", ":"))
    return Response(text, media_type="application/json")


def exact(value: Any) -> Any:
    """Return JSON in which the integers that JavaScript would round, beyond 2**53, are text.

    >>> exact({"least": 3, "most": [2**53 + 1]})
    {'least': 3, 'most': ['9007199254740993']}
    """
    if isinstance(value, dict):
        return {name: exact(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(exact, value))
    return str(value) if type(value) is int and abs(value) > _MOST_EXACT else value


async def _send_selection(handlers: ApiHandlers, request: Request) -> Response:
    document = await _in_thread(handlers.selection, request.query_params)
    plain = _UNSAFE_IN_NAMES.sub("_", handlers.title)[-100:].strip("._") or "dataset"
    headers = {"Content-Disposition": f'attachment; filename="{plain}-selection.json"'}
    # Encoded by JSON's own defaults: surrogates of file names are escaped.
    return Response(json.dumps(document), media_type="application/json", headers=headers)


async def _send_thumbnail(handlers: ApiHandlers, request: Request) -> Response:
    try:
        drawn, placeholder = await _drawn(handlers, request), "later.svg"
    except (WidsError, OSError, ImportError):
        drawn, placeholder = None, "broken.svg"
    # Errors are not cached, since they may be temporary.
    lasts = drawn is not None and handlers.reader.version == request.query_params.get("v")
    headers = {"Cache-Control": _KEPT} if lasts else {}
    headers["Content-Security-Policy"] = _FIELD_POLICY
    # A placeholder picture and not an HTTP error, since the request itself was valid.
    if drawn is None:
        return Response(_static_files()[placeholder], media_type="image/svg+xml", headers=headers)
    return Response(drawn.data, media_type=drawn.media_type, headers=headers)


async def _drawn(handlers: ApiHandlers, request: Request) -> Thumbnail | None:
    """Return the thumbnail of a field; None if the client disconnected before it was drawn.

    Also None if it takes long, and the request has `soon`: a browser has few connections, and a
    slow picture would keep one from the others.
    """
    query = request.query_params
    size = number_of(query, "s")
    if size not in SIZES:
        raise ValueError(f"s: expected one of {SIZES}, got {size}")
    strip = query.get("strip") == "1"
    located, number = await _in_thread(handlers.field_of, query)
    if await request.is_disconnected():
        return None
    drawing = handlers.describer.drawn(located, number, size, strip=strip)
    soon = bool(query.get("soon"))
    if soon and drawing.is_left and not drawing.result.done():
        return None
    drawn: asyncio.Future[Thumbnail] = asyncio.wrap_future(drawing.result)
    try:
        return await asyncio.wait_for(drawn, _SOON_SECONDS if soon else None)
    except TimeoutError:  # not that it cannot be drawn; the page asks again
        return None


async def _send_raw(handlers: ApiHandlers, request: Request) -> Response:
    located, number = await _in_thread(handlers.field_of, request.query_params)
    field = located.fields[number]
    asked = parse_range(request.headers.get("range"), field.nbytes)
    start, stop = asked or (0, field.nbytes)
    if asked is not None and start == stop:
        return Response(status_code=416, headers={"Content-Range": f"bytes */{field.nbytes}"})
    headers = _field_headers(located, number, save=request.query_params.get("save") == "1")
    if handlers.reader.version == request.query_params.get("v"):
        headers["Cache-Control"] = _KEPT
    headers["Content-Length"] = str(stop - start)
    if asked is not None:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{field.nbytes}"
    status = 200 if asked is None else 206
    # Otherwise the whole field would be read although no body is sent.
    if request.method == "HEAD":
        return Response(status_code=status, headers=headers)
    pieces = handlers.reader.pieces(located, number, start, stop)
    return StreamingResponse(_sent(pieces), status, headers)


def _field_headers(located: LocatedSample, number: int, *, save: bool) -> dict[str, str]:
    """Return headers that let a browser show images, sound and video inline, and save the rest."""
    extension = located.fields[number].extension
    kind = media_type(extension)
    shown = "inline" if kind != OCTET_STREAM and not save else "attachment"
    name = f"{located.key.rpartition('/')[2]}{extension}"
    # Old browsers read the ASCII name, others the encoded one. Both are escaped, so that a name
    # cannot add a header.
    plain = _UNSAFE_IN_NAMES.sub("_", name)[-100:]
    encoded = quote(name.encode("utf-8", "surrogateescape")[-200:], safe="")
    return {
        "Accept-Ranges": "bytes",
        "Content-Disposition": f"{shown}; filename=\"{plain}\"; filename*=UTF-8''{encoded}",
        "Content-Security-Policy": _FIELD_POLICY,
        "Content-Type": kind,
    }


async def _sent(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces, each of which is read when the previous one was sent."""
    while (piece := await _in_thread(next, pieces, None)) is not None:
        yield piece
