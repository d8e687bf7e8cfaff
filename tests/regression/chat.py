#!/usr/bin/env python3
"""Lines of chat through the whole program: the completions of the prompts that they stand for, on any number of ranks, in
shards and after a stop; and what ends a run or refuses a line when Python, jinja2, the template or the renderer fails."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from metro_runs import ENVIRONMENT, SOURCE, Metro

TEMPLATE = """{%- for m in messages -%}
{%- if m.role == 'tool' -%}{{- raise_exception('tools say nothing here') -}}{%- endif -%}
{%- if m.role == 'developer' -%}{{- 'Today is ' + strftime_now('%d %B %Y') + '. ' -}}{%- endif -%}
{{- m.role | upper + ': ' + m.content + eos_token + '\\n' -}}
{%- endfor -%}
{%- for tool in tools or [] -%}{{- tool.function | tojson + '\\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'ASSISTANT: Once upon a time' -}}{%- endif -%}"""
END = "<|endoftext|>"
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


def message(role, content):
    return {"role": role, "content": content}


def cases():
    """(custom_id, fields of a chat body, the prompt that it stands for)"""
    tool = {"type": "function", "function": {"name": "look", "description": "é <b>", "args": {"z": 1, "a": [1.0]}}}
    shown = '{"name": "look", "description": "é <b>", "args": {"z": 1, "a": [1.0]}}\n'
    start = "ASSISTANT: Once upon a time"
    hello = f"USER: The dog{END}\n"
    yield "turn", {"messages": [message("user", "The dog")]}, hello + start
    yield ("turns", {"messages": [message("system", "Be kind."), message("user", "The dog"),
                                  message("assistant", "was big."), message("user", "Why?")]},
           f"SYSTEM: Be kind.{END}\n{hello}ASSISTANT: was big.{END}\nUSER: Why?{END}\n{start}")
    yield "tools", {"messages": [message("user", "The dog")], "tools": [tool]}, hello + shown + start
    yield ("no tools", {"messages": [message("user", "The dog")], "tools": [tool], "tool_choice": "none"}, hello + start)
    yield ("continued", {"messages": [message("user", "The dog"), message("assistant", "The cat sat ")],
                         "continue_final_message": True}, f"{hello}ASSISTANT: The cat sat ")
    yield ("parts", {"messages": [{"role": "user", "content": [{"type": "text", "text": "The"},
                                                               {"type": "text", "text": "dog"}]}]},
           f"USER: The\ndog{END}\n{start}")
    yield ("dated", {"messages": [message("developer", "Hm")]},
           f"Today is 30 November 2026. DEVELOPER: Hm{END}\n{start}")
    yield ("three", {"messages": [message("user", "The dog")], "n": 3, "temperature": 1, "seed": 5}, hello + start)


def as_chat(name, fields, number):
    body = {**fields, "max_tokens": 20, "return_token_ids": True, "logprobs": True, "top_logprobs": 3}
    batch = {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body}
    return batch if number % 2 else {"custom_id": name, **body}


def as_completion(name, fields, prompt):
    sampling = {key: fields[key] for key in ("n", "temperature", "seed") if key in fields}
    return {"custom_id": name, "prompt": prompt, "max_tokens": 20, "return_token_ids": True, "logprobs": 3, **sampling}


def answers(lines):
    """Of each custom_id what both forms of answers say: texts, ids, log-probabilities, why it ended."""
    found = {}
    for line in map(json.loads, lines):
        body = line["response"]["body"]
        is_chat = body["object"] == "chat.completion"
        found[line["custom_id"]] = [
            (choice["message"]["content"] if is_chat else choice["text"], choice["prompt_token_ids"], choice["token_ids"],
             choice["finish_reason"], body["usage"],
             [one["logprob"] for one in choice["logprobs"]["content"]] if is_chat else
             choice["logprobs"]["token_logprobs"]) for choice in body["choices"]]
    return found


class Checks:
    def __init__(self):
        self.num_wrong = 0

    def expect(self, name, holds, otherwise=""):
        self.num_wrong += not holds
        print(f"ok    {name}" if holds else f"WRONG {name}\n{otherwise}")


def convert_with(metro, template, name="chat"):
    """The embedded model with this template, as a checkpoint."""
    folder = metro.folder / name
    folder.mkdir()
    for path in (SOURCE / "inputs/models/tiny").iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "chat_template.jinja").unlink()
    (folder / "chat_template.jinja").write_text(template)
    metro.must(["convert", folder, metro.folder / f"{name}.h5"])
    return metro.folder / f"{name}.h5"


def same_as_prompts(metro, checks, deck):
    """The completions are those of the prompts, the same bytes on 1 and 3 ranks and in shards; bad lines cost themselves."""
    lines = [as_chat(name, fields, number) for number, (name, fields, _) in enumerate(cases())]
    lines.insert(3, {"custom_id": "refused", "messages": [message("tool", "x")]})
    lines.insert(5, {"custom_id": "image", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]})
    metro.write_requests("chat.jsonl", lines)
    metro.write_requests("prompts.jsonl", [as_completion(*case) for case in cases()])
    metro.must(["run", deck, "requests.input=prompts.jsonl", "output.directory=prompts"])
    for ranks in (1, 3):
        metro.must(["run", deck, f"output.directory=chat{ranks}"], ranks=ranks)
    first = metro.completions("chat1")

    expected, got = answers(metro.completions("prompts")), answers(first)
    checks.expect("every line of chat has an answer", len(got) == len(list(cases())), got.keys())
    for name in expected:
        checks.expect(f"{name}: the completions of its prompt", got.get(name) == expected[name],
                      f"{got.get(name)}\n{expected[name]}")
    checks.expect("the same bytes on 3 ranks", metro.completions("chat3") == first)
    errors = {error["custom_id"]: error["response"]["body"]["error"]["message"] for error in metro.errors("chat3")}
    checks.expect("lines that are refused say why", errors == {
        "refused": "messages: the chat template refuses it: tools say nothing here",
        "image": 'messages[0].content[0]: type "image_url": only "text" is supported'}, errors)
    for shard in range(2):
        metro.must(["run", deck, f"requests.shard={shard}/2", f"output.directory=shard{shard}"], ranks=2)
    checks.expect("two shards together answer as one run does",
                  sorted(metro.completions("shard0") + metro.completions("shard1")) == first)


def stopped(metro, checks, deck):
    """A run of chat that is stopped goes on to the same bytes."""
    lines = [{"custom_id": f"{name}-{copy}", **fields, "max_tokens": 40, "ignore_eos": True}
             for copy in range(5) for name, fields, _ in cases()]
    metro.write_requests("many.jsonl", lines)
    arguments = ["run", deck, "requests.input=many.jsonl", "batch.max_sequences_per_rank=4"]
    metro.must(arguments + ["output.directory=whole"])
    run = subprocess.Popen(metro.command(arguments + ["output.directory=stopped"]), cwd=metro.folder, env=ENVIRONMENT,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    completions = metro.folder / "stopped/completions.jsonl"
    wait_for(lambda: run.poll() is not None or (completions.exists() and completions.stat().st_size > 0))
    run.send_signal(signal.SIGUSR1)
    code = run.wait(60)
    checks.expect("a run of chat stops when it is asked to", code == 75, code)
    checks.expect("no renderer is left", not renderers_of(run.pid))
    metro.must(arguments + ["output.directory=stopped"], ranks=2)
    checks.expect("and goes on to the same bytes", metro.completions("stopped") == metro.completions("whole"))


def wait_for(condition, patience_s=60.0):
    begin = time.monotonic()
    while not (result := condition()):
        if time.monotonic() - begin > patience_s:
            sys.exit("what was waited for did not come")
        time.sleep(0.02)
    return result


def renderers_of(parent):
    """Ids of the renderers whose parent this process is."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            status, command = (folder / "status").read_text(), (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if f"\nPPid:\t{parent}\n" in status and b"chat_renderer.py" in command:
            found.append(int(folder.name))
    return found


def killed_renderer(metro, checks, deck):
    """A renderer that is killed while a run waits for input: the next line of chat ends the run."""
    run = subprocess.Popen(metro.command(["run", deck, "requests.input=-", "output.directory=killed"]), cwd=metro.folder,
                           env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = json.dumps({"messages": [message("user", "The dog")], "max_tokens": 3}) + "\n"
    run.stdin.write(line)
    run.stdin.flush()
    completions = metro.folder / "killed/completions.jsonl"
    wait_for(lambda: run.poll() is not None or (completions.exists() and completions.stat().st_size > 0))
    found = renderers_of(run.pid)
    checks.expect("one renderer runs", len(found) == 1, found)
    inherited = sorted(os.readlink(f"/proc/{found[0]}/fd/{number}").split(":")[0]
                       for number in os.listdir(f"/proc/{found[0]}/fd"))
    expected = sorted(["/dev/null", "/memfd", "/memfd", "socket", "socket"])
    checks.expect("it has no descriptor of the run", inherited == expected, inherited)
    os.kill(found[0], signal.SIGKILL)
    run.stdin.write(line)
    run.stdin.close()
    errors = run.stderr.read()
    code = run.wait(60)
    checks.expect("a renderer that is killed ends the run", code == 5 and "killed by signal 9" in errors, f"{code} {errors}")


def without(metro, checks, deck, name, environment, code, words, *overrides):
    run = subprocess.run(metro.command(["run", deck, f"output.directory={name}", *overrides]), cwd=metro.folder,
                         env=ENVIRONMENT | environment, capture_output=True, text=True, timeout=100)
    checks.expect(name, run.returncode == code and words in run.stderr, f"{run.returncode}: {run.stderr}")


def failures(metro, checks, deck):
    (metro.folder / "no_jinja").mkdir()
    (metro.folder / "no_jinja/jinja2.py").write_text("raise ImportError('No module named jinja2')\n")
    (metro.folder / "no_python").mkdir()
    daemon = shutil.which("orted")  # of Open MPI, which starts it for a program without mpiexec
    if daemon:
        (metro.folder / "no_python/orted").symlink_to(daemon)
    no_python = {"PATH": str(metro.folder / "no_python"), "OMPI_MCA_plm": "isolated"}  # nor ssh, which it looks for
    without(metro, checks, deck, "no jinja2", {"PYTHONPATH": str(metro.folder / "no_jinja")}, 2,
            "chat lines need the package jinja2 of the python3 in PATH: No module named jinja2")
    without(metro, checks, deck, "no python3", no_python, 2,
            "chat lines need python3 and its package jinja2")
    without(metro, checks, deck, "prompts need no python3", no_python, 0, "",
            "requests.input=prompts.jsonl")
    endless, malformed = convert_with(metro, ENDLESS, "endless"), convert_with(metro, "{% if %}", "malformed")
    without(metro, checks, deck, "an endless template", {}, 4, "does not come to an end within 2 s",
            f"model.checkpoint={endless}", "run.timeout_s=4")
    without(metro, checks, deck, "a malformed template", {}, 4, "its chat template cannot be used: line 1",
            f"model.checkpoint={malformed}")
    metro.must(["run", deck, "requests.date=''", "output.directory=undated"])
    undated = {error["custom_id"]: error["response"]["body"]["error"]["message"] for error in metro.errors("undated")}
    checks.expect("without a date only lines that ask for it are refused",
                  len(undated) == 3 and "set requests.date" in undated.get("dated", ""), undated)


def example(metro, checks):
    """inputs/chat.toml with the embedded model."""
    prompts = SOURCE / "inputs/prompts/chat.jsonl"
    metro.must(["run", SOURCE / "inputs/chat.toml", f"model.checkpoint={metro.convert_tiny()}",
                f"requests.input={prompts}", "output.directory=example"], ranks=2)
    num_lines = len(prompts.read_text().splitlines())
    checks.expect("the lines of the example are all answered", len(metro.completions("example")) == num_lines,
                  metro.errors("example"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--metro", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()
    checks = Checks()
    with tempfile.TemporaryDirectory(prefix="metro-chat-") as folder:
        metro = Metro(arguments.metro, arguments.mpiexec, folder)
        deck = metro.folder / "deck.toml"
        deck.write_text(f'model.checkpoint = "{convert_with(metro, TEMPLATE)}"\nmodel.max_context = 512\n'
                        'requests.input = "chat.jsonl"\nrequests.date = "2026-11-30"\noutput.directory = "output"\n')
        same_as_prompts(metro, checks, deck)
        stopped(metro, checks, deck)
        killed_renderer(metro, checks, deck)
        failures(metro, checks, deck)
        example(metro, checks)
    sys.exit(1 if checks.num_wrong else 0)


if __name__ == "__main__":
    main()
