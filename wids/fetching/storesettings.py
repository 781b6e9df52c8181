"""Settings of the stores of buckets: endpoint, region and profile, by patterns of URLs."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wids.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["StoreSettings", "read_settings", "settings_file"]

_ENVIRONMENT = "WIDS_STORES"
_SECRETS = ("key", "secret", "token", "password")


@dataclass(frozen=True)
class StoreSettings:
    """How to reach the buckets whose URLs match a pattern.

    Secrets are not among them: they stay where the tools of the store keep them.

    Attributes:
        pattern: URLs of buckets, such as `s3://set` or `s3://team-*`.
        endpoint: URL of a server that speaks S3's API; None for AWS.
        region: Region of the bucket.
        profile: Profile in `~/.aws` with the credentials.
        anonymous: Whether requests are not signed, as for public buckets.
    """

    pattern: str
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    anonymous: bool = False

    @classmethod
    def of_table(cls, where: str, pattern: str, table: Any) -> StoreSettings:
        """Return the settings that a table of the file gives.

        Args:
            where: The file, for messages.
            pattern: Name of the table.
            table: Its content.

        Raises:
            FetchError: It is no table of these settings.
        """
        known = {each.name for each in fields(cls)} - {"pattern"}
        if not pattern.startswith(("s3://", "s3a://")) or not isinstance(table, dict):
            raise FetchError(
                f'{where}: expected tables such as ["s3://bucket"] or ["s3://team-*"], got '
                f"{pattern!r}; other stores are set by their own environment variables"
            )
        for name, value in table.items():
            if name in known and isinstance(value, bool if name == "anonymous" else str):
                continue
            if any(word in name.lower() for word in _SECRETS):
                raise FetchError(
                    f"{where}: [{pattern!r}]: {name}: secrets do not belong in this file; write "
                    "them into a profile (`aws configure --profile NAME`), and its name here: "
                    'profile = "NAME"'
                )
            raise FetchError(
                f"{where}: [{pattern!r}]: expected some of endpoint, region and profile (strings) "
                f"and anonymous (true or false), got {name} = {value!r}"
            )
        return cls(pattern, **table)

    def fits(self, bucket_url: str) -> bool:
        """Return whether these settings are for a bucket."""
        return fnmatchcase(bucket_url, self.pattern)


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
    try:
        tables = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise FetchError(f"{path}: cannot be read as settings of stores: {error}") from error
    return [StoreSettings.of_table(str(path), pattern, table) for pattern, table in tables.items()]
