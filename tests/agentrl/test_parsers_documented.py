"""Texts as each family's authors publish them, read by hand from their pages; the page is named beside each."""

from __future__ import annotations

import pytest

from agentrl.parsers import parse_calls, parse_turn
from agentrl.tool import ToolSpec


def spec(name: str, **types: str) -> ToolSpec:
    properties = {key: {"type": kind} for key, kind in types.items()}
    return ToolSpec(
        name=name, description="", parameters={"type": "object", "properties": properties, "required": list(types)[:1]}
    )


TOOLS = [
    spec("get_current_temperature", location="string", unit="string"),
    spec("get_temperature_date", location="string", date="string", unit="string"),
    spec("square_the_number", input_num="number"),
    spec("get_weather", location="string", city="string"),
    spec("python", code="string"),
    spec("Search", query="string"),
]

HERMES = """<tool_call>
{"name": "get_current_temperature", "arguments": {"location": "San Francisco, CA, USA"}}
</tool_call>
<tool_call>
{"name": "get_temperature_date", "arguments": {"location": "San Francisco, CA, USA", "date": "2024-10-01"}}
</tool_call>"""
QWEN3_CODER = """<tool_call>
<function=square_the_number>
<parameter=input_num>
1024
</parameter>
</function>
</tool_call>"""
LLAMA_BUILT_IN = '<|python_tag|>brave_search.call(query="current weather in Menlo Park, California")'
LLAMA_CODE = "<|python_tag|># Import the library\nimport math\n\nprint(math.pi)"
LLAMA_TAG = '<function=spotify_trending_songs>{"n": "5"}</function>'
LLAMA_JSON = '<|python_tag|>{"type": "function", "name": "trending_songs", "parameters": {"n": "10", "genre": "all"}}'
LLAMA_ZERO_SHOT = "[get_weather(city='San Francisco', metric='celsius'), get_weather(city='Seattle', metric='celsius')]"
MISTRAL = (
    '[TOOL_CALLS] [{"name": "get_current_weather", "arguments": {"location": "Paris, France", "format": "celsius"}, '
    '"id": "VvvODy9mT"}]'
)
MISTRAL_V11 = '[TOOL_CALLS]add[CALL_ID]000000001[ARGS]{"a": 3, "b": 4}[TOOL_CALLS]add[CALL_ID]000000002[ARGS]{"a": 1, "b": 2}'
DEEPSEEK = """<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
```json
{"location": "Hangzhou"}
```<｜tool▁call▁end｜>
<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather
```json
{"location": "Beijing"}
```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"""
DEEPSEEK_V31 = (
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"location": "Hangzhou"}<｜tool▁call▁end｜>'
    '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"location": "Beijing"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
)
DEEPSEEK_V32 = """<｜DSML｜function_calls>
<｜DSML｜invoke name="get_weather">
<｜DSML｜parameter name="location" string="true">Hangzhou</｜DSML｜parameter>
<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜function_calls>"""
GLM = """<tool_call>get_weather
<arg_key>city</arg_key>
<arg_value>北京</arg_value>
<arg_key>date</arg_key>
<arg_value>2024-06-27</arg_value>
</tool_call>"""
KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
    '{"city": "Beijing"}<|tool_call_end|><|tool_calls_section_end|>'
)
FUNCTION_GEMMA = "<start_function_call>call:get_current_temperature{location:<escape>London<escape>}<end_function_call>"
GEMMA4 = '<|tool_call>call:get_current_temperature{location:<|"|>London<|"|>}<tool_call|>'
REACT = """Thought: I need to search Colorado orogeny.
Action: Search
Action Input: Colorado orogeny
"""

DOCUMENTED = [
    # Qwen2.5, "Function Calling" of qwen.readthedocs.io
    ("hermes", HERMES, [("get_current_temperature", {"location": "San Francisco, CA, USA"}), None]),
    # Qwen3-Coder, model card and chat template
    ("qwen3_coder", QWEN3_CODER, [("square_the_number", {"input_num": 1024})]),
    # Llama 3.1, "Model Cards and Prompt formats" of llama.com: built-in tools, code, tags, JSON
    ("llama3", LLAMA_BUILT_IN, [("brave_search", {"query": "current weather in Menlo Park, California"})]),
    ("llama3", LLAMA_CODE, [("python", {"code": "# Import the library\nimport math\n\nprint(math.pi)"})]),
    ("llama3", LLAMA_TAG, [("spotify_trending_songs", {"n": "5"})]),
    ("llama3", LLAMA_JSON, [("trending_songs", {"n": "10", "genre": "all"})]),
    # Llama 3.2 and 4, the same pages: zero-shot function calling
    ("pythonic", LLAMA_ZERO_SHOT, [("get_weather", {"city": "San Francisco", "metric": "celsius"}), None]),
    (
        "pythonic",
        '<|python_start|>[get_weather(location="Vancouver")]<|python_end|>',
        [("get_weather", {"location": "Vancouver"})],
    ),
    # Mistral 7B v0.3, "Chat templates" of Hugging Face; Mistral Small 3.2, its chat template
    ("mistral", MISTRAL, [("get_current_weather", {"location": "Paris, France", "format": "celsius"})]),
    ("mistral_v11", MISTRAL_V11, [("add", {"a": 3, "b": 4}), None]),
    # DeepSeek V3, V3.1 and V3.2, chat templates
    ("deepseek", DEEPSEEK, [("get_weather", {"location": "Hangzhou"}), None]),
    ("deepseek_v31", DEEPSEEK_V31, [("get_weather", {"location": "Hangzhou"}), None]),
    ("deepseek_v32", DEEPSEEK_V32, [("get_weather", {"location": "Hangzhou", "days": 2})]),
    # GLM-4.5, chat template
    ("glm", GLM, [("get_weather", {"city": "北京", "date": "2024-06-27"})]),
    # Kimi K2, "Tool Calling" of its repository
    ("kimi", KIMI, [("get_weather", {"city": "Beijing"})]),
    # Gemma 3, "Function calling with Gemma" of ai.google.dev: Python style, JSON style, code style
    ("gemma", '[get_product_name_by_PID(PID="807ZPKBL9V")]', [("get_product_name_by_PID", {"PID": "807ZPKBL9V"})]),
    (
        "gemma",
        '{"name": "get_product_name_by_PID", "parameters": {"PID": "807ZPKBL9V"}}',
        [("get_product_name_by_PID", {"PID": "807ZPKBL9V"})],
    ),
    (
        "gemma",
        '```tool_code\nconvert(amount=200000, currency="USD")\n```',
        [("convert", {"amount": 200000, "currency": "USD"})],
    ),
    # FunctionGemma, "Formatting and best practices" of ai.google.dev; Gemma 4, "Function calling"
    ("function_gemma", FUNCTION_GEMMA, [("get_current_temperature", {"location": "London"})]),
    ("gemma4", GEMMA4, [("get_current_temperature", {"location": "London"})]),
    # ReAct, the paper (arXiv 2210.03629), and the form that agent libraries made of it
    ("react", REACT, [("Search", {"query": "Colorado orogeny"})]),
    ("react", "Thought 1: I search.\nAction 1: Search[Colorado orogeny]", [("Search", {"query": "Colorado orogeny"})]),
    # CodeAct-like agents, as smolagents and Qwen2.5-Math write code
    ("fenced", "I compute it.\n```python\nprint(2**10)\n```", [("python", {"code": "print(2**10)"})]),
    ("fenced", "```py\nprint(2**10)\n```", [("python", {"code": "print(2**10)"})]),
]


@pytest.mark.parametrize(("form", "text", "calls"), DOCUMENTED, ids=[f"{i}-{case[0]}" for i, case in enumerate(DOCUMENTED)])
def test_published_texts(form, text, calls):
    found = parse_calls(form, text, TOOLS)
    assert found.error == ""
    assert len(found.calls) == len(calls)
    for call, expected in zip(found.calls, calls, strict=True):
        assert expected is None or (call.name, dict(call.arguments)) == expected


def test_ids_that_the_model_gives_are_kept():
    assert [call.id for call in parse_calls("kimi", KIMI).calls] == ["functions.get_weather:0"]
    assert [call.id for call in parse_calls("mistral", MISTRAL).calls] == ["VvvODy9mT"]
    assert [call.id for call in parse_calls("mistral_v11", MISTRAL_V11).calls] == ["000000001", "000000002"]


# gpt-oss: docs/format.md of the harmony repository. The prompt ends in <|start|>assistant; the stop token is dropped.
HARMONY = [
    (
        '<|channel|>analysis<|message|>User asks: "What is 2 + 2?" Simple arithmetic. Provide answer.<|end|>\n'
        "<|start|>assistant<|channel|>final<|message|>2 + 2 = 4.",
        ('User asks: "What is 2 + 2?" Simple arithmetic. Provide answer.', "2 + 2 = 4.", []),
    ),
    (
        "<|channel|>analysis<|message|>Need to use function get_weather.<|end|><|start|>assistant<|channel|>commentary "
        'to=functions.get_weather <|constrain|>json<|message|>{"location":"San Francisco"}',
        ("Need to use function get_weather.", "", [("get_weather", {"location": "San Francisco"})]),
    ),
    (
        ' to=functions.get_weather<|channel|>commentary json<|message|>{"location": "Tokyo"}<|call|>',
        ("", "", [("get_weather", {"location": "Tokyo"})]),
    ),
    (
        "<|channel|>analysis<|message|>long<|end|><|start|>assistant<|channel|>commentary<|message|>**Action plan**:\n"
        "1. Generate an HTML file\n<|end|><|start|>assistant<|channel|>commentary to=functions.generate_file"
        '<|constrain|>json<|message|>{"template": "basic_html", "path": "index.html"}<|call|>',
        (
            "long",
            "**Action plan**:\n1. Generate an HTML file",
            [("generate_file", {"template": "basic_html", "path": "index.html"})],
        ),
    ),
    (
        "<|channel|>analysis to=python code<|message|>print(1 + 1)<|call|>",
        ("", "", [("python", {"code": "print(1 + 1)"})]),
    ),
]


@pytest.mark.parametrize(("raw", "expected"), HARMONY)
def test_messages_of_gpt_oss(raw, expected):
    reasoning, found = parse_turn("harmony", raw, TOOLS)
    assert found.error == ""
    assert (reasoning, found.text, [(call.name, dict(call.arguments)) for call in found.calls]) == expected


def test_kimi_thinks_until_it_calls_and_magistral_in_brackets():
    reasoning, found = parse_turn("kimi", f"<think>I look.{KIMI}", TOOLS)
    assert (reasoning, found.calls[0].name, found.text) == ("I look.", "get_weather", "")
    reasoning, found = parse_turn("mistral_v11", f"[THINK]I add.[/THINK]{MISTRAL_V11}", TOOLS)
    assert (reasoning, len(found.calls), found.text) == ("I add.", 2, "")
