"""Source of `s3://`, `gs://`, `az://`, `ais://` URLs and listings, based on the library obstore."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from wids.base.processes import BucketLibrary
from wids.base.shardref import Version
from wids.base.urls import display_url, hide_credentials, scheme_of
from wids.errors import FetchError
from wids.fetching.storesettings import read_settings, settings_file
from wids.fetching.transport import (
    AbsentError,
    ChangedError,
    ListedFile,
    ListingPage,
    ServerBusyError,
    Stream,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from obstore import GetResult
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.store import ObjectStore, RetryConfig

    from wids.fetching.transport import FetchPolicy

__all__ = ["OBJECT_SCHEMES", "ObjectSource"]

_CHUNK_NBYTES = 1 << 20
_PAGE_LENGTH = 1000  # as stores send them
_WHOLE_REQUEST = timedelta(days=1)  # the library's default of 30 seconds is too short for shards
_EXTRAS = {
    "s3": "s3",
    "s3a": "s3",
    "ais": "s3",
    "gs": "gs",
    "az": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
_NO_RETRIES: RetryConfig = {"max_retries": 0}  # only `Fetcher` retries
OBJECT_SCHEMES = tuple(_EXTRAS)
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT")
# In the library's errors if there are no credentials: the URLs that it tries last, and its message.
_NO_CREDENTIALS = re.compile(
    r"latest/api/token|latest/meta-data|computeMetadata|metadata/identity|Account must be specified"
)
_BEYOND_END = re.compile(r"status code: 416\b|requested range was invalid", re.IGNORECASE)
_UNREADABLE_NAME = re.compile("object with invalid path")  # in listings
_ABSENT = re.compile(r"status code: 404\b")
# S3 answers 400 to tokens that have expired, but also to a client that was slow.
_REFUSED = re.compile(r"status code: (400|401|403)\b(?!.*\bRequestTimeout\b)")
_CROWDED = re.compile(r"status code: (429|503)\b")
_LIMITED = re.compile(r"status code: 429\b|\bSlowDown\b")
_MAY_PASS = re.compile(r"status code: (5\d\d|429)")
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN, AWS_REGION, "
    "AWS_ENDPOINT_URL where needed), or AWS_PROFILE, or for a public bucket "
    "AWS_SKIP_SIGNATURE=true; wids.open(store=...) or a file of stores sets these, too",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS to the path of a key file, or run "
    "`gcloud auth application-default login`, or for a public bucket set "
    "GOOGLE_SKIP_SIGNATURE=true",
    "azure": "AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or "
    "AZURE_STORAGE_SAS_TOKEN, or for a public container AZURE_SKIP_SIGNATURE=true",
}


class ObjectSource:
    """Source that opens objects of object stores, with one store per bucket.

    Args:
        policy: Time limits, and the store of `s3:` URLs if the program names one.
    """

    def __init__(self, policy: FetchPolicy) -> None:
        self._client_options: dict[str, Any] = {
            "connect_timeout": timedelta(seconds=policy.connect_timeout_seconds),
            "read_timeout": timedelta(seconds=policy.stall_timeout_seconds),
            "timeout": _WHOLE_REQUEST,
        }
        self._stores: dict[str, ObjectStore] = {}
        # The file of settings is read when a store is first made.
        self._settings = None if policy.store is None else [policy.store]
        # Imported here rather than in a thread; if it is missing, `open` says what to install.
        with suppress(ImportError):
            import obstore.exceptions
            import obstore.store  # noqa: F401

    def close(self) -> None:
        """Drop the stores; the library closes their connections."""
        self._stores.clear()

    def open(
        self, url: str, start: int = 0, stop: int | None = None, *, validator: str | None = None
    ) -> Stream:
        """Request the bytes `[start, stop)` of an object; see `Source.open`.

        Raises:
            FetchError: The object does not exist, access is denied, or obstore is missing.
            ChangedError: The range lies outside the object.
            ConnectionError: The store did not respond, or asks for a retry.
        """
        options: Any = {}
        if start or stop is not None:
            options["range"] = {"offset": start} if stop is None else (start, stop)
            if validator is not None:
                options["if_match"] = validator
        with _translated_errors(url):
            import obstore
            from obstore.exceptions import PreconditionError

            store, path = self._locate(url)
            if not path:
                raise FetchError(f"{display_url(url)}: expected {scheme_of(url)}://<bucket>/<path>")
            try:
                result = obstore.get(store, path, options=options)
            except PreconditionError:  # it has changed: get the whole object, like HTTP's If-Range
                result = obstore.get(store, path)
            return Stream(
                start=result.range[0],
                version=Version(nbytes=result.meta["size"], validator=result.meta["e_tag"]),
                content_type=str(result.attributes.get("Content-Type", "")),
                delimited=True,
                chunks=_body(result),
                close=lambda: None,  # the library closes a response that is no longer read
                stop=result.range[1] if "range" in options else None,
            )

    def put(self, url: str, file: Path) -> None:
        """Put a file into a bucket; see `Sink.put`.

        Raises:
            FetchError: Access is denied, or obstore is missing.
            ConnectionError: The store did not respond, or asks for a retry.
        """
        with _translated_errors(url):
            import obstore

            obstore.put(*self._locate(url), file)

    def pin(self, url: str) -> str:
        """Return the URL of a folder as it is, since buckets have no revisions."""
        return url

    def pages(self, url: str, cursor: str | None = None) -> Iterator[ListingPage]:
        """List the objects in a folder of a bucket; see `Lister.pages`.

        Raises:
            FetchError: There is no such bucket, access is denied, or obstore is missing.
            ConnectionError: The store did not respond, or asks for a retry.
        """
        bucket_url = "/".join(url.split("/", 3)[:3])
        with _translated_errors(url):
            import obstore

            store, path = self._locate(url)
            # Only its last key says where a listing goes on.
            listing = obstore.list(
                store, path.strip("/") or None, offset=cursor, chunk_size=_PAGE_LENGTH
            )
            for objects in listing:
                files = [
                    ListedFile(f"{bucket_url}/{each['path']}", each["size"]) for each in objects
                ]
                yield ListingPage(files, objects[-1]["path"] if objects else cursor)

    def _locate(self, url: str) -> tuple[ObjectStore, str]:
        from obstore.store import from_url

        scheme, _, rest = url.partition("://")
        bucket, _, path = rest.partition("/")
        if not bucket:
            raise FetchError(f"{display_url(url)}: expected {scheme}://<bucket>/<path>")
        # A fork does not copy the library's threads: a call in the child would wait for ever.
        if BucketLibrary.used_by not in (None, os.getpid()):
            raise FetchError(
                f"{display_url(url)}: obstore was used before this process was forked, and works "
                "on one side of a fork only; start workers by multiprocessing_context='spawn' or "
                f"'forkserver', or fork before the first {scheme}: URL is read"
            )
        BucketLibrary.used_by = os.getpid()
        bucket_url = f"{scheme.lower()}://{bucket}"
        if bucket_url not in self._stores:
            plain = any(os.environ.get(name, "").lower().startswith("http:") for name in _ENDPOINTS)
            options: Any = {**self._client_options, "allow_http": plain}
            if scheme.lower() == "ais":
                self._stores[bucket_url] = _aistore_bucket(url, bucket, options)
            elif scheme.lower() in {"s3", "s3a"}:
                self._stores[bucket_url] = self._s3_bucket(bucket_url, options)
            else:
                self._stores[bucket_url] = from_url(
                    bucket_url, client_options=options, retry_config=_NO_RETRIES
                )
        return self._stores[bucket_url], path

    def _s3_bucket(self, bucket_url: str, options: Any) -> ObjectStore:
        """Return the store for a bucket of S3, by the settings for it, else by the environment."""
        from obstore.store import S3Store

        if self._settings is None:
            self._settings = read_settings(settings_file())
        settings = next((each for each in self._settings if each.fits(bucket_url)), None)
        config: Any = {}
        profile = os.environ.get("AWS_PROFILE")
        if "AWS_ACCESS_KEY_ID" in os.environ:
            profile = None  # as for AWS's own tools
        endpoint = None
        if settings is not None:
            endpoint, profile = settings.endpoint, settings.profile or profile
            if settings.region is not None:
                config["region"] = settings.region
            if settings.profile is not None:
                config["skip_signature"] = False  # the environment may say True for another store
            if settings.anonymous:
                config["skip_signature"] = True
                profile = None
        credentials = None
        if profile is not None:
            credentials, endpoint_of_profile = _profile(bucket_url, profile)
            endpoint = endpoint or endpoint_of_profile
        if endpoint is not None:
            # Both, since the second one may be set in the environment for another store.
            config |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
            options = {**options, "allow_http": endpoint.lower().startswith("http:")}
        return S3Store(
            bucket_url.partition("://")[2],
            config=config,
            client_options=options,
            retry_config=_NO_RETRIES,
            credential_provider=credentials,
        )


def _profile(bucket_url: str, name: str) -> tuple[Boto3CredentialProvider, str | None]:
    """Return what gets and renews the credentials of a profile in `~/.aws`, and its endpoint.

    Raises:
        FetchError: There is no such profile, it has no credentials, or boto3 is missing.
    """
    try:
        import boto3  # type: ignore[import-untyped]  # it has no types of its own
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise FetchError(
            f"{bucket_url}: the profile {name!r} of ~/.aws is read by boto3, which is missing; "
            "pip install boto3, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    try:
        session = boto3.Session(profile_name=name)
        endpoint: str = session.client("s3").meta.endpoint_url
        is_aws = ".amazonaws.com" in endpoint  # else the profile or the environment names a store
        return Boto3CredentialProvider(session), None if is_aws else endpoint
    except Exception as error:  # the library's errors have no common base
        raise FetchError(f"{bucket_url}: the profile {name!r} of ~/.aws: {error}") from error


def _aistore_bucket(url: str, bucket: str, options: dict[str, Any]) -> ObjectStore:
    """Return the store for a bucket of AIStore, whose gateways speak S3's API, too.

    Args:
        url: The URL, for messages.
        bucket: The bucket.
        options: Options of the HTTP client.
    """
    from obstore.store import S3Store

    gateway = os.environ.get("AIS_ENDPOINT", "").rstrip("/")
    if not gateway.lower().startswith(("http://", "https://")):
        raise FetchError(
            f"{display_url(url)}: set AIS_ENDPOINT to the URL of a gateway of AIStore, such as "
            "http://host:51080"
        )
    if bucket[0] in "@#":
        raise FetchError(
            f"{display_url(url)}: expected ais://<bucket>/<path>; AIStore's S3 gateway, which is "
            "used here, knows no namespaces and no remote clusters"
        )
    client: Any = {**options, "allow_http": gateway.lower().startswith("http:")}
    if token := os.environ.get("AIS_AUTHN_TOKEN"):
        client["default_headers"] = {"Authorization": f"Bearer {token}"}
    settings: Any = {
        # Both, since AWS_ENDPOINT_URL and AWS_ENDPOINT_URL_S3 may be those of another store.
        "endpoint": f"{gateway}/s3",
        "aws_endpoint_url_s3": f"{gateway}/s3",
        "region": "ais",
        "skip_signature": True,  # AIStore checks no signatures
        "virtual_hosted_style_request": False,
    }
    return S3Store(bucket, config=settings, client_options=client, retry_config=_NO_RETRIES)


def _body(result: GetResult) -> Iterator[bytes]:
    """Yield an object in pieces of about 1 MiB; raise ConnectionError if it breaks off."""
    from obstore.exceptions import BaseError

    try:
        yield from result.stream(_CHUNK_NBYTES)
    except (BaseError, OSError) as error:
        raise ConnectionError(_first_line(error)) from None


@contextmanager
def _translated_errors(url: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        extra = _EXTRAS.get(scheme_of(url), scheme_of(url))
        message = f"{display_url(url)}: needs obstore (extra wids[{extra}]); pip install obstore"
        raise FetchError(message) from error
    except FetchError:
        raise
    except BaseException as error:
        # A panic of the library's Rust code, which occurs for some unusual names.
        if type(error).__name__ == "PanicException":
            raise FetchError(f"{display_url(url)}: {_first_line(error)}") from None
        if not isinstance(error, Exception):
            raise
        # The library's errors have no common base: a missing object is a FileNotFoundError.
        if type(error).__name__ == "GenericError":
            _raise_generic(url, error)
        if isinstance(error, FileNotFoundError):  # without the request and the page of the store
            said = _first_line(error).partition(": Error performing")[0]
            raise AbsentError(
                f"{display_url(url)}: {said}; check the URL, the spec's base, and the endpoint"
            ) from None
        cure = ""
        if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
            wanted = _CREDENTIALS[_EXTRAS[scheme_of(url)]]
            cure = f"; the store refuses what it was given: set {wanted}"
        if _UNREADABLE_NAME.search(str(error)):
            cure = (
                "; the library obstore lists no folder with such a key: rename or remove this "
                "object, list a folder or pattern without it, or name a spec or the shards"
            )
        raise FetchError(f"{display_url(url)}: {_first_line(error)}{cure}") from None


def _raise_generic(url: str, error: Exception) -> NoReturn:
    """Raise the error of this library that fits the text of a `GenericError` of obstore.

    Raises:
        FetchError: Another try will not help.
        ChangedError: A range lies outside the object.
        ServerBusyError: Another try may help.
    """
    text, shown = str(error), display_url(url)
    wanted = _CREDENTIALS[_EXTRAS[scheme_of(url)]]
    if _NO_CREDENTIALS.search(text) and not _MAY_PASS.search(text):
        raise FetchError(f"{shown}: no credentials were found; set {wanted}") from None
    if _BEYOND_END.search(text):
        raise ChangedError("the server says that the file ends before the range") from None
    if _ABSENT.search(text):  # only in listings; a missing object is another error
        raise AbsentError(f"{shown}: no such bucket ({_first_line(error)})") from None
    if _REFUSED.search(text):  # mostly in listings, too
        raise FetchError(
            f"{shown}: {_first_line(error)}; where credentials are wanted, set {wanted}"
        ) from None
    raise ServerBusyError(
        _first_line(error),
        crowded=_CROWDED.search(text) is not None,
        limited=_LIMITED.search(text) is not None,
    ) from None


def _first_line(error: BaseException) -> str:
    """Return the first line of an error of the library; later lines show its internals.

    The error itself is never chained to one of ours: a traceback would show the URL that it quotes.
    """
    return hide_credentials((str(error).splitlines() or [type(error).__name__])[0][:300])
