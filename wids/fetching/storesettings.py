"""`StoreSettings`: where a store with S3's API is, and whose credentials it takes.

A program gives them to one dataset, or a file gives them by patterns of URLs to all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from wids.base.arguments import check_mapping
from wids.errors import FetchError

__all__ = ["StoreSettings", "read_settings", "settings_file"]

_ENVIRONMENT = "WIDS_STORES"
_SECRETS = ("key", "secret", "token", "password")


@dataclass(frozen=True)
class StoreSettings:
    """How to reach the buckets whose URLs match a pattern.

    Secrets are not among them: they stay where the tools of the store keep them. What is not given
    comes from the environment.

    Attributes:
        pattern: URLs of buckets, such as `s3://set` or `s3://team-*`.
        endpoint: URL of a server that speaks S3's API; None for AWS.
        region: Region of the bucket.
        profile: Profile in `~/.aws` with the credentials.
        anonymous: Whether requests are not signed, as for public buckets.
    """

    pattern: str = "*"
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    anonymous: bool = False

    @classmethod
    def of(cls, settings: Any, where: str, pattern: str = "*") -> StoreSettings:
        """Return the settings in a mapping, after checking them.

        Args:
            settings: Names of attributes to values.
            where: What gives them, for messages.
            pattern: The buckets that they are for.

        Raises:
            TypeError: It is no mapping.
            ValueError: It holds something else, such as a secret.

        >>> StoreSettings.of({"secret": "hush"}, "store")
        Traceback (most recent call last):
        ValueError: store: secret: secrets do not belong here; write them into a profile ...
        """
        known = {each.name for each in fields(cls)} - {"pattern"}
        for name, value in check_mapping(where, settings, "settings of a store").items():
            if name in known and isinstance(value, bool if name == "anonymous" else str):
                continue
            if any(word in str(name).lower() for word in _SECRETS):
                raise ValueError(
                    f"{where}: {name}: secrets do not belong here; write them into a profile "
                    '(`aws configure --profile NAME`), and its name here: profile = "NAME"'
                )
            raise ValueError(
                f"{where}: expected some of endpoint, region and profile (strings) and anonymous "
                f"(true or false), got {name} = {value!r:.200}"
            )
        if (endpoint := settings.get("endpoint")) is not None:
            _check_endpoint(endpoint, where)
        return cls(pattern, **settings)

    def fits(self, bucket_url: str) -> bool:
        """Return whether these settings are for a bucket."""
        return fnmatchcase(bucket_url, self.pattern)


def _check_endpoint(endpoint: str, where: str) -> None:
    """Refuse an endpoint for which obstore panics, or which holds a secret; quote none of it.

    Raises:
        ValueError: It is no plain URL of a server.
    """
    try:
        parts = urlsplit(endpoint)
        usual = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 0) >= 0
    except ValueError:  # a port that is no number
        usual = False
    if not usual or "@" in parts.netloc or parts.query or parts.fragment or not endpoint.isascii():
        raise ValueError(
            f"{where}: endpoint: expected the URL of a server, such as https://host:9000, without "
            "user, password, query and fragment; write keys into a profile"
        )


def settings_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of settings: `WIDS_STORES`, or `wids/stores.toml` in the user's folder.

    >>> str(settings_file({"WIDS_STORES": "/run/stores.toml"}))
    '/run/stores.toml'
    >>> str(settings_file({"XDG_CONFIG_HOME": "/home/me/.config"}))
    '/home/me/.config/wids/stores.toml'
    """
    if named := environment.get(_ENVIRONMENT):
        return Path(named).expanduser()
    return Path(environment.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / (
        "wids/stores.toml"
    )


def read_settings(path: Path) -> list[StoreSettings]:
    """Return the settings in a file, in its order; none if there is no such file.

    Raises:
        FetchError: It cannot be read, or says something else.
    """
    import tomllib  # rarely needed, and the import delays every program

    try:
        tables = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise FetchError(f"{path}: cannot be read as settings of stores: {error}") from error
    found = []
    for pattern, table in tables.items():
        if not pattern.startswith(("s3://", "s3a://")) or not isinstance(table, Mapping):
            raise FetchError(
                f'{path}: expected tables such as ["s3://bucket"] or ["s3://team-*"], got '
                f"{pattern!r}; other stores are set by their own environment variables"
            )
        try:
            found.append(StoreSettings.of(table, f"{path}: [{pattern!r}]", pattern))
        except ValueError as error:
            raise FetchError(str(error)) from error
    return found
