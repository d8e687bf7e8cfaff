#!/usr/bin/env python3
"""Writes golden.json: what Hugging Face transformers makes of chat requests with the templates beside this file.

    pip install transformers jinja2 && python3 make_golden.py    (5.24 and 3.1.6 were used)

A case has a name, the template, the variables that stand for special tokens, the date, a request as a line of the input
has it, and the prompt, or no prompt where transformers gives up.
"""

import datetime
import json
import pathlib

from transformers.utils import chat_template_utils

HERE = pathlib.Path(__file__).resolve().parent
NOW = "2026-11-30 09:05:00"
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class FixedDatetime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromisoformat(NOW)


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **others):
    return {"role": "assistant", "content": text, **others}


def system(text):
    return {"role": "system", "content": text}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


def call(name, arguments):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "Weather of a place: <now> & \"later\", auch auf Österreichisch",
    "parameters": {"type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "where"}, "days": {"type": "array", "items": {"type": "integer"}},
        "unit": {"enum": ["°C", "°F"]}, "at": {"type": "object", "properties": {"hour": {"type": "number"}}}}}}}
ZEBRA = {"type": "function", "function": {"parameters": {"type": "object", "properties": {}}, "name": "zebra",
                                          "strict": True, "weight": 1.0, "large": 1e22, "nothing": None}}
TALK = [system("Be brief."), user("Hello"), assistant("Good morning."), user("Why?")]
CALLED = [user("Weather?"), assistant("", tool_calls=[call("weather", {"place": "Graz", "days": [1, 2]})]),
          {"role": "tool", "tool_call_id": "call_1", "content": "{\"t\": 21}"},
          {"role": "tool", "content": "sunny", "name": "weather"}]


def requests():
    """(name, template, request)"""
    for template in ("turns", "inst", "dated", "loops", "parts", "trimmed"):
        yield f"{template}: one turn", template, {"messages": [user("Hi")]}
        yield f"{template}: several turns and a system", template, {"messages": TALK}
        yield f"{template}: no generation prompt", template, {"messages": TALK[:3], "add_generation_prompt": False}
        yield (f"{template}: goes on", template,
               {"messages": [user("Count"), assistant("one, two, ")], "continue_final_message": True})
        yield f"{template}: text of all kinds", template, {"messages": [user("é 日本 \U0001f600 <b>&'\"{{ x }}\n\t\\ ")]}
        yield f"{template}: tools", template, {"messages": TALK, "tools": [WEATHER, ZEBRA]}
    yield "turns: calls with objects", "turns", {"messages": CALLED, "tools": [WEATHER]}
    text_call = [user("Weather?"), assistant("", tool_calls=[call("weather", "{\"place\":\"Graz\"}")])]
    yield "turns: calls with text", "turns", {"messages": text_call, "add_generation_prompt": False}
    yield "turns: null counts as absent", "turns", {
        "messages": [user("Hi"), assistant("Yes", tool_calls=None, reasoning_content=None), user("So")]}
    for name in ("reasoning_content", "reasoning", "thinking"):
        for template in ("turns", "dated"):
            yield f"{template}: {name}", template, {"messages": [user("Hi"), assistant("Yes", **{name: "\nhm\n"})],
                                                    "add_generation_prompt": False}
    yield "turns: no thinking", "turns", {"messages": [user("Hi")], "chat_template_kwargs": {"enable_thinking": False}}
    yield "turns: thinking", "turns", {"messages": [user("Hi")], "chat_template_kwargs": {"enable_thinking": True}}
    yield "turns: a developer", "turns", {"messages": [{"role": "developer", "content": "Terse."}, user("Hi")]}
    yield "dated: an effort", "dated", {"messages": [user("Hi")], "chat_template_kwargs": {"reasoning_effort": "high"}}
    yield "inst: a token of its own", "inst", {"messages": [user("Hi")], "chat_template_kwargs": {"bos_token": "<B>"}}
    yield "inst: out of turn", "inst", {"messages": [user("a"), user("b")]}
    yield "loops: skip and stop", "loops", {"messages": [user("a"), user("skip"), user("b"), user("stop"), user("c")]}
    yield "parts: a list", "parts", {"messages": [{"role": "user", "content": parts("a", "b")}]}
    yield "parts: a list goes on", "parts", {
        "messages": [user("x"), {"role": "assistant", "content": parts("a", "b ")}], "continue_final_message": True}
    yield "trimmed: goes on without its spaces", "trimmed", {
        "messages": [user("x"), assistant("  y \n")], "continue_final_message": True}


def prompt_of(template, request):
    """As apply_chat_template does before it tokenises."""
    chat = chat_template_utils._normalize_chat_messages(request["messages"])
    goes_on = request.get("continue_final_message", False)
    variables = {**TOKENS, **request.get("chat_template_kwargs", {})}
    rendered, _ = chat_template_utils.render_jinja_template(
        [chat], tools=request.get("tools"), chat_template=template, continue_final_message=goes_on,
        add_generation_prompt=request.get("add_generation_prompt", not goes_on), **variables)
    return rendered[0]


def main():
    chat_template_utils.datetime = FixedDatetime
    cases = []
    for name, template, request in requests():
        try:
            prompt = prompt_of((HERE / f"templates/{template}.jinja").read_text(encoding="utf-8"), request)
        except Exception as error:
            print(f"{name}: {error}")
            prompt = None
        cases.append({"name": name, "template": template, "line": json.dumps(request, ensure_ascii=False),
                      "prompt": prompt})
    text = json.dumps({"variables": TOKENS, "date": NOW, "cases": cases}, ensure_ascii=False, indent=1)
    (HERE / "golden.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
