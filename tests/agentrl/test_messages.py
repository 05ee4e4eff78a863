"""What is said: messages, parts, actions, and what an observation may be."""

from __future__ import annotations

import ast
import json
import re

import pytest

from agentrl.messages import Action, Image, Message, ParseError, Text, ToolCall, as_messages


def test_content_becomes_parts():
    assert Message(role="user", content="a").content == (Text(text="a"),)
    assert Message(role="user", content=["a", Text(text="b")]).text == "ab"
    assert Message(role="user", content=None).content == ()


def test_unknown_role_is_refused():
    with pytest.raises(ValueError, match="system, user, assistant, tool, not 'human'"):
        Message(role="human", content="a")


def test_a_part_that_is_neither_text_nor_image_is_refused():
    with pytest.raises(TypeError, match=r"3\.5 is neither text nor an image"):
        Message(role="user", content=[3.5])


def test_dict_form_and_back():
    message = Message(
        role="assistant",
        content="Look.",
        reasoning="hm",
        tool_calls=(ToolCall(id="call_0", name="add", arguments={"a": 1, "b": [None]}),),
    )
    data = {
        "role": "assistant",
        "content": "Look.",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": [None]}}}],
    }
    assert message.to_dict() == data
    assert Message.from_dict(json.loads(json.dumps(data))) == message
    answer = Message(role="tool", content="2", tool_call_id="call_0", name="add")
    assert Message.from_dict(answer.to_dict()) == answer


def test_calls_of_other_systems_are_read():
    data = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}]}
    assert Message.from_dict(data).tool_calls == (ToolCall(id="call_0", name="f", arguments={"x": 1}),)
    data["tool_calls"][0]["function"]["arguments"] = "[1]"
    with pytest.raises(ValueError, match=r"arguments of a call of 'f' are no JSON object: \[1\]"):
        Message.from_dict(data)


def test_images_are_never_dropped_silently():
    picture = Image(png=b"x", sha256="ab", width=2, height=3)
    message = Message(role="user", content=["see", picture])
    assert message.images == (picture,)
    data = message.to_dict()
    assert data["content"] == [{"type": "text", "text": "see"}, {"type": "image", "image": "ab"}]
    with pytest.raises(ValueError, match="'image' cannot be made from a dict"):
        Message.from_dict(data)


def test_images_from_arrays_and_bytes():
    numpy = pytest.importorskip("numpy")
    pytest.importorskip("PIL")
    one = Image.of(numpy.zeros((4, 6, 3), dtype=numpy.uint8))
    assert (one.width, one.height) == (6, 4)
    assert Image.of(one.png).sha256 == one.sha256
    with pytest.raises(TypeError, match="neither text nor an image"):
        Image.of(numpy.int64(3))


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("Higher.", [("user", "Higher.")]),
        ("", []),
        (None, []),
        (["a", "b"], [("user", "ab")]),
        ([Message(role="tool", content="1"), "a", {"role": "system", "content": "s"}, "b", "c"], None),
        ({"role": "assistant", "content": "x"}, [("assistant", "x")]),
        (Text(text="t"), [("user", "t")]),
    ],
)
def test_observations_as_messages(value, texts):
    expected = texts if texts is not None else [("tool", "1"), ("user", "a"), ("system", "s"), ("user", "bc")]
    assert [(m.role, m.text) for m in as_messages(value)] == expected


@pytest.mark.parametrize("value", [5, 2.5, object(), [1, 2]])
def test_what_is_no_observation_is_refused(value):
    with pytest.raises(TypeError, match="neither text nor an image"):
        as_messages(value)


def test_a_dict_that_is_no_message_names_its_keys():
    with pytest.raises(ValueError, match="needs a role; this one has only 'board'"):
        as_messages({"board": "x"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The answer is 42.", 42),
        ("between 10-20", 20),
        ("5 - 3 = 2", 2),
        ("-7", -7),
        ("I take 1,000,000 now", 1000000),
        ("4.0", 4),
        ("3, but not 3.5", 3),
        ("<think>9</think> 4", 4),
        ("9 </think> 4", 4),
        ("is it −3?", -3),
        ("guess: **50**", 50),
    ],
)
def test_whole_numbers(text, expected):
    assert Action(text=text).parse(int) == expected


@pytest.mark.parametrize("text", ["none", "3.5", "", "<think>7</think>", "9" * 5000])
def test_no_whole_number(text):
    with pytest.raises(ParseError, match="must hold a whole number"):
        Action(text=text).parse(int)


@pytest.mark.parametrize(
    ("text", "expected"), [("x = 2.5", 2.5), ("1e-3", 0.001), ("about .5", 0.5), ("-1,234.5", -1234.5), ("7", 7.0)]
)
def test_numbers(text, expected):
    value = Action(text=text).parse(float)
    assert value == expected
    assert isinstance(value, float)


def test_a_number_beyond_all_bounds_is_none():
    with pytest.raises(ParseError, match="must hold a number"):
        Action(text="1e999").parse(float)


def test_yes_and_no():
    assert Action(text="I say Yes.").parse(bool) is True
    assert Action(text="True? No").parse(bool) is False
    with pytest.raises(ParseError, match="one of: yes, no"):
        Action(text="maybe").parse(bool)


def test_other_forms():
    action = Action(text="<think>a=1</think> key=value [1, 2]")
    assert action.parse(str) == "key=value [1, 2]"
    assert action.parse(r"key=(\w+)") == "value"
    assert action.parse(re.compile(r"\[.*\]")) == "[1, 2]"
    assert action.parse(lambda text: ast.literal_eval(text[text.index("[") :])) == [1, 2]
    with pytest.raises(ParseError, match="must match 'a=1'"):
        action.parse("a=1")


@pytest.mark.parametrize("form", [json.loads, ast.literal_eval, lambda text: 1 / 0, lambda text: [][0]])
def test_what_a_form_cannot_read_is_a_parse_error(form):
    with pytest.raises(ParseError):
        Action(text="{not").parse(form)


def test_a_bug_in_a_form_is_no_parse_error():
    with pytest.raises(AttributeError):
        Action(text="x").parse(lambda text: text.nothing)


def test_words():
    assert Action(text="I go left, no: RIGHT!").word("left", "right") == "right"
    assert Action(text="**left**").word("left", "right") == "left"
    assert Action(text="_left_").word("left") == "left"
    assert Action(text="go up").word("go down", "go up") == "go up"
    assert Action(text="the last word").word() == "word"
    with pytest.raises(ParseError, match="one of: left, right"):
        Action(text="left-handed, leftover").word("left", "right")
    with pytest.raises(ParseError, match="empty"):
        Action(text="<think>x</think>").word()


def test_tags():
    assert Action(text="<move>a</move> <move> b </move> <move>c").tag("move") == "b"
    with pytest.raises(ParseError, match=r"<go>\.\.\.</go>"):
        Action(text="<move>a</move>").tag("go")


CODE = "First:\n```python\na = 1\n```\nthen\n```\nb = 2\n```\n"


@pytest.mark.parametrize(
    ("text", "languages", "code"),
    [
        (CODE, (), "b = 2"),
        (CODE, ("python",), "b = 2"),
        ("```python\na = 1\n```\n```js\nx\n```", ("python",), "a = 1"),
        ("```py\na = 1\n```", ("python",), "a = 1"),
        ("```Python3 title=x\na = 1\n\n```", ("python",), "a = 1\n"),
        ("~~~\na\n~~~", (), "a"),
        ("```python\na = 1```", (), "a = 1"),
        ("````md\n```\ninner\n```\n````", (), "```\ninner\n```"),
        ("1. so:\n   ```python\n   if x:\n       y\n   ```", (), "if x:\n    y"),
        ("```python\nlost\n```python\na = 1\n```", (), "a = 1"),
        ("```python\na = 1\n```\n```python\nb = ", (), "a = 1"),
        ("```\r\na\r\n```\r\n", (), "a\r"),
        ("```\n```", (), ""),
        ('```python\ns = "```" + x\n```', (), 's = "```" + x'),
        ("<think>```\nno\n```</think>```\nyes\n```", (), "yes"),
    ],
)
def test_code_blocks(text, languages, code):
    assert Action(text=text).code(*languages) == code


@pytest.mark.parametrize("text", ["none", "```python\ndef f(", "a ``` b ```", "<think>```\nx\n```", "```js\nx\n```"])
def test_no_complete_code_block(text):
    with pytest.raises(ParseError, match="complete code block:\n```python\n"):
        Action(text=text).code("python")


def test_action_as_a_message():
    calls = (ToolCall(id="call_0", name="f", arguments={}),)
    assert Action(text="a", reasoning="r", tool_calls=calls).message() == Message(
        role="assistant", content="a", reasoning="r", tool_calls=calls
    )
    assert Action(text="").message().content == ()


def test_a_form_that_cannot_be_called_is_no_fault_of_the_answer():
    import json

    with pytest.raises(TypeError, match="parse takes int, float, bool, str, a pattern or a function, not <module 'json'"):
        Action(text="{}").parse(json)
    assert Action(text='{"a": 1}').parse(json.loads) == {"a": 1}
