"""Conversations: both ways to write them, and documents that are none, long, cut or hostile."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wids.display.conversation import Part, read_turns
from wids.display.fieldview import view_field


def document(turns: list[object]) -> bytes:
    return json.dumps({"id": [1, {"a": "]"}], "messages": turns, "after": 2}).encode()


def test_each_way_to_write_a_turn_is_read() -> None:
    """ShareGPT's and OpenAI's turns have their sides, texts, and places of pictures."""
    turns = [
        {"from": "system", "value": "brief"},
        {"from": "human", "value": "Look: <image>\nand <audio>"},
        {"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "x"}, "y"]},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]},
        {"role": "tool", "content": {"a": 1}},
        {"role": "narrator", "content": ""},
    ]
    found = read_turns(document(turns))
    assert found is not None
    assert [turn.side for turn in found.shown] == [
        "system", "user", "user", "assistant", "tool", "other",
    ]  # fmt: skip
    assert found.shown[1].parts == (
        Part("text", "Look:"), Part("image", ""), Part("text", "and"), Part("audio", ""),
    )  # fmt: skip
    assert found.shown[2].parts == (Part("image", ""), Part("text", "x"), Part("text", "y"))
    assert found.shown[3].parts == (Part("text", '{"name": "f"}'),)
    assert found.shown[5].parts == ()
    assert (found.total, found.more) == (6, False)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "3", '{"messages": 3}', '{"messages": []}', '[{"role": "user"}]', "[[1]]",
     '{"messages": ["a"]}', "{" * 9_000, "[" * 90_000, '{"a": ' * 9_000, '"messages',
     '{"messages": [{',
     '{"messages": [{"role": "user", "content": ' + "[" * 90_000],
)  # fmt: skip
def test_other_documents_are_no_conversation(text: str) -> None:
    """What is no conversation, is damaged or nested too deep has no turns, and raises nothing."""
    assert read_turns(text.encode()) is None


@given(
    st.lists(st.text(max_size=40), min_size=1, max_size=30), st.integers(0, 35), st.integers(1, 9)
)
def test_a_page_of_turns_is_that_of_the_whole_document(
    texts: list[str], start: int, count: int
) -> None:
    """Turns are those that `json.loads` gives; a document that is cut has a part of them."""
    data = document([{"role": "user", "content": text} for text in texts])
    wanted = [each["content"] for each in json.loads(data)["messages"]]
    found = read_turns(data, start=start, count=count)
    assert found is not None
    assert len(found.shown) == len(wanted[start : start + count])
    assert found.total == len(wanted)
    assert found.more == (start + len(found.shown) < len(wanted))
    cut = read_turns(data[: len(data) * 2 // 3], whole=False)
    if cut is not None:
        assert len(cut.shown) <= len(wanted)
        assert (cut.more, cut.total) == (True, None)


def test_a_long_conversation_takes_bounded_memory() -> None:
    """Turns of megabytes, and a hundred thousand of them, make a summary of bounded size."""
    for turns in (
        [{"role": "user", "content": "x" * 100_000}] * 50,
        [{"role": "u", "content": "x"}] * 100_000,
    ):
        view = view_field(".json", document(turns))
        assert view.error is None
        conversation = view.summary["conversation"]
        assert conversation["more"]
        assert len(json.dumps(conversation)) < 400_000
        last = conversation["start"] + len(conversation["turns"])
        found = read_turns(document(turns), start=last)
        assert found is not None
        assert found.shown
