"""Conversations in JSON documents: the turns of a chat, as ShareGPT and OpenAI write them.

    {"conversations": [{"from": "human", "value": "<image> What is this?"}, ...]}
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is this?"}]}, ...]}

The list may also be the whole document. A document is read turn by turn from its beginning, so that
a conversation of any length costs no more memory than the turns that are shown.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, NamedTuple

from wids.display.safejson import safe_text

__all__ = ["Part", "Turn", "Turns", "read_turns"]

Side = Literal["user", "assistant", "system", "tool", "other"]

MAX_TURN = 20_000  # characters of a turn
MAX_PARTS = 50  # texts and pictures of a turn
MAX_SHOWN = 200_000  # characters of all turns together, beyond which no other turn begins
LIST = re.compile(r'"(?:conversations?|messages|dialog|dialogue|turns)"\s*:\s*\[')
ROLES = ("role", "from", "speaker")
TEXTS = ("content", "value", "text")
SIDES: dict[str, Side] = {
    "human": "user", "user": "user", "prompter": "user", "question": "user",
    "gpt": "assistant", "assistant": "assistant", "bot": "assistant", "chatbot": "assistant",
    "model": "assistant", "chatgpt": "assistant", "bing": "assistant", "answer": "assistant",
    "system": "system", "developer": "system",
    "tool": "tool", "function": "tool", "observation": "tool", "ipython": "tool",
}  # fmt: skip
# Where a text of ShareGPT has its pictures, videos and sounds.
PLACES = re.compile(r"<(image|video|audio)>")
MEDIA = ("image", "video", "audio")
_SPACE = re.compile(r"[ \t\r\n]*")


class Part(NamedTuple):
    """Part of a turn: `kind` is "text", or the medium that stands there, such as "image"."""

    kind: str
    text: str


@dataclass(frozen=True)
class Turn:
    """What one side of a conversation says.

    Attributes:
        role: Name of the side, as the document has it.
        side: Which side that is, by its name.
        parts: The texts, and the positions of pictures, in their order.
    """

    role: str
    side: Side
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Turns:
    """Some turns of a conversation.

    Attributes:
        shown: The turns.
        start: Number of the first.
        more: Whether there are others after them.
        total: Number of all turns; None if the document was not read to its end.
    """

    shown: tuple[Turn, ...]
    start: int
    more: bool
    total: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return the turns as JSON: `[role, side, [[kind, text], ...]]` each."""
        turns = [[turn.role, turn.side, [list(part) for part in turn.parts]] for turn in self.shown]
        return {"turns": turns, "start": self.start, "more": self.more, "total": self.total}


def read_turns(
    data: bytes | memoryview, *, start: int = 0, count: int = 100, whole: bool = True
) -> Turns | None:
    """Read some turns of a document.

    Args:
        data: The document, or its beginning.
        start: Number of the first turn.
        count: Most turns to return.
        whole: Whether `data` is all of the document; what breaks off is left out otherwise.

    Returns:
        The turns; None if the document is no conversation.

    >>> read_turns(b'[{"from": "human", "value": "<image> What?"}]').shown
    (Turn(role='human', side='user', parts=(Part(kind='image', text=''), \
Part(kind='text', text='What?'))),)
    >>> read_turns(b'{"messages": ["a"]}') is None
    True
    """
    text = str(data, "utf-8", "replace").removeprefix("\ufeff")
    items = _Items(text)
    try:
        first = next(items, None)
        if first is None or _turn(first) is None:
            return None
        shown = [] if start > 0 or count < 1 else [first]
        seen = 1
        for item in items:
            shown += [item] if start <= seen < start + count else []
            seen += 1
    except (ValueError, RecursionError):
        # Cut off, or damaged; the card of the field says so.
        return None
    complete = whole and items.is_closed
    turns, taken = _within_bounds(shown)
    more = seen > start + taken or not complete
    return Turns(turns, start, more, seen if complete else None)


def _within_bounds(items: list[Any]) -> tuple[tuple[Turn, ...], int]:
    """Return the turns among some items, up to a number of characters; and how many items that is.

    An item that is no turn counts as an empty one, so that turns are where their numbers say.
    """
    turns: list[Turn] = []
    nchars = 0
    for item in items:
        if nchars > MAX_SHOWN:
            break
        turn = _turn(item) or Turn("?", "other", ())
        nchars += sum(len(part.text) for part in turn.parts)
        turns.append(turn)
    return tuple(turns), len(turns)


class _Items(Iterator[Any]):
    """Iterator over the items of the list of turns, which ends where the text breaks off."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._decode = json.JSONDecoder().raw_decode
        self._position = self._begin()
        self.is_closed = False

    def _begin(self) -> int | None:
        """Return where the first item begins; None if there is no list of turns."""
        position = self._after_space(0)
        if self._text.startswith("{", position):
            found = LIST.search(self._text, position)
            return None if found is None else found.end()
        return position + 1 if self._text.startswith("[", position) else None

    def __next__(self) -> Any:
        if self._position is None:
            raise StopIteration
        position = self._after_space(self._position)
        if self._text[position : position + 1] == "]":
            self.is_closed, self._position = True, None
            raise StopIteration
        try:
            item, position = self._decode(self._text, position)
        except ValueError:
            self._position = None
            raise StopIteration from None
        position = self._after_space(position)
        self.is_closed = self._text[position : position + 1] == "]"
        self._position = position + 1 if self._text[position : position + 1] == "," else None
        return item

    def _after_space(self, position: int) -> int:
        found = _SPACE.match(self._text, position)
        return position if found is None else found.end()


def _turn(item: Any) -> Turn | None:
    """Return an item of the list as a turn; None if it is none."""
    if not isinstance(item, Mapping):
        return None
    role = next((item[name] for name in ROLES if isinstance(item.get(name), str)), None)
    content = next((item[name] for name in TEXTS if item.get(name) is not None), None)
    calls = item.get("tool_calls") or item.get("function_call")
    if role is None or (content is None and not calls):
        return None
    parts = list(islice(_parts(content, calls), MAX_PARTS))
    return Turn(safe_text(role, 60), SIDES.get(role.strip().lower(), "other"), tuple(parts))


def _parts(content: Any, calls: Any) -> Iterator[Part]:
    for each in content if isinstance(content, list) else [content]:
        yield from _of_piece(each)
    for call in calls if isinstance(calls, list) else [calls]:
        if call:
            yield Part("text", _shortened(call))


def _of_piece(piece: Any) -> Iterator[Part]:
    """Yield the parts of a text, or of one piece of a content as OpenAI writes it."""
    if piece is None:
        return
    if isinstance(piece, Mapping):
        kind = str(piece.get("type", ""))
        medium = next((each for each in MEDIA if each in kind), None)
        if medium is not None:
            yield Part(medium, "")
        elif isinstance(piece.get("text"), str):
            yield Part("text", safe_text(piece["text"], MAX_TURN))
        else:
            yield Part("text", _shortened(piece))
        return
    text = piece if isinstance(piece, str) else _shortened(piece)
    # Between its pictures, a text has parts of its own: text, name, text, name, ...
    for number, each in enumerate(PLACES.split(text[:MAX_TURN])):
        if number % 2:
            yield Part(each, "")
        elif each.strip():
            yield Part("text", safe_text(each.strip("\n "), MAX_TURN))


def _shortened(value: Any) -> str:
    """Return a value that is no text as JSON."""
    return safe_text(json.dumps(value, ensure_ascii=False)[: 2 * MAX_TURN], MAX_TURN)
