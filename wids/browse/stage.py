"""What the page shows: first the head of a remote dataset, then the dataset."""

from __future__ import annotations

from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

from wids.base.threads import result_of
from wids.browse.failures import message_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from wids.browse.handlers import ApiHandlers
    from wids.browse.preview import Preview

__all__ = ["Stage"]

_SOON_SECONDS = 0.4  # wait for a dataset that may be there at once


class Stage:
    """The handlers that answer, while a dataset is opened and from then on.

    A request with `preview=1` is answered from the head of the dataset while there is no more;
    any other request waits for the dataset.

    Args:
        opened: The handlers of the dataset; an error if it cannot be opened.
        first: Done when the first shard can be read, or not.
        head: The head of the dataset, or None where there is none.
        counted: Returns how many shards are counted so far, as JSON.
    """

    def __init__(
        self,
        opened: Future[ApiHandlers],
        first: Future[None],
        head: Future[Preview | None],
        counted: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._counted = counted
        self._opened = opened
        self._first = first
        self._head = head

    @classmethod
    def of(cls, handlers: ApiHandlers) -> Stage:
        """Return the stage of a dataset that is open."""
        opened: Future[ApiHandlers] = Future()
        first: Future[None] = Future()
        head: Future[Preview | None] = Future()
        opened.set_result(handlers)
        first.set_result(None)
        head.set_result(None)
        return cls(opened, first, head)

    def at_once(self, query: Mapping[str, str]) -> ApiHandlers | None:
        """Return the handlers for a request; None if it has to wait."""
        preview = self._preview()
        if query.get("preview") and preview is not None and not self._is_ready():
            return preview.handlers
        return self._opened.result() if self._opened.done() else None

    def handlers(self, query: Mapping[str, str]) -> ApiHandlers:
        """Return the handlers for a request, which may have to wait for the dataset.

        Raises:
            WidsError: The dataset cannot be opened.
            OSError: The same.
        """
        found = self.at_once(query)
        return result_of(self._opened) if found is None else found

    def dataset(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the facts of the dataset, or, while it is opened, of its head.

        `opening` is None once the dataset is there; else `preview` says whether the head is.
        """
        if query.get("preview") and not self._is_ready():
            wait([self._first], _SOON_SECONDS)
        if not query.get("preview") or self._is_ready():
            return {**self.handlers({}).dataset(query), "opening": None}
        preview = self._preview()
        opening: dict[str, Any] = {"preview": preview is not None, "error": None}
        if self._opened.done() and (error := self._opened.exception()) is not None:
            opening["error"] = message_of(error if isinstance(error, Exception) else Exception())
        if preview is None:
            return {"opening": {**opening, **self._counted()}}
        return {**preview.handlers.dataset(query), "opening": opening | preview.progress()}

    def close(self) -> None:
        """Stop all background work of what is open."""
        if self._opened.done() and self._opened.exception() is None:
            self._opened.result().close()
        preview = self._preview()
        if preview is not None:
            preview.close()

    def _preview(self) -> Preview | None:
        return self._head.result() if self._head.done() else None

    def _is_ready(self) -> bool:
        """Return whether the first page of the dataset itself can be shown."""
        if not self._opened.done() or self._opened.exception() is not None:
            return False
        return self._first.done() or (self._head.done() and self._preview() is None)
