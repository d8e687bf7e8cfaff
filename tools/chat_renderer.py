#!/usr/bin/env python3
"""Renders lines of chat requests by the chat template of a model, for `metro run`, which starts it when it needs it.

Reads messages from standard input and answers each one there, in order. A message is its length (8 bytes, little endian)
and so many bytes; an answer begins with one letter:

    first message   JSON: templates {name: text}, variables {name: value}, now (ISO 8601 or ""), time_limit_s,
                    memory_bytes, text_bytes
    answer          R it can render; M jinja2 is missing, and why; T a template is wrong, and why
    other messages  a line of the input, as it is
    answer          P the prompt; E why the line is refused

Templates come with the model, from anybody: they run in the sandbox of Jinja2, under limits on memory, files and time.
Needs Python 3.7 and jinja2 3.0.
"""

import datetime
import json
import os
import resource
import signal
import sys

REASONING = ("reasoning_content", "thinking", "reasoning")  # names of one thing
MARK = "END_OF_THE_MESSAGE_TO_CONTINUE"
OPEN_FILES = 32
FILE_BYTES = 65536  # of what it may write: words about its own failure


class Refusal(Exception):
    """Why one line has no prompt."""


def set_limits(memory_bytes):
    limits = {resource.RLIMIT_AS: memory_bytes, resource.RLIMIT_FSIZE: FILE_BYTES, resource.RLIMIT_CORE: 0,
              resource.RLIMIT_NOFILE: OPEN_FILES, resource.RLIMIT_NPROC: 0}
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))


def make_environment(now):
    """The environment in which transformers renders chat templates; `now` is the only clock in it, or None."""
    import jinja2
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """{% generation %}...{% endgeneration %} marks what an assistant said; the text is what stands between."""
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("inside"), [], [], body).set_lineno(line)

        @staticmethod
        def inside(caller):
            return caller()

    class Names(jinja2.utils.Namespace):
        """A namespace without names of Python's own."""

        def __init__(*args, **kwargs):
            self, values = args[0], dict(*args[1:], **kwargs)
            for name in values:
                Names.require_plain(name)
            jinja2.utils.Namespace.__init__(self, values)

        def __setitem__(self, name, value):
            Names.require_plain(name)
            jinja2.utils.Namespace.__setitem__(self, name, value)

        @staticmethod
        def require_plain(name):
            if isinstance(name, str) and name.startswith("_"):
                raise jinja2.exceptions.SecurityError(f"a namespace cannot have the name {name!r}")

    class Dictionaries:
        """The function dict without the attributes of the type."""

        def __call__(self, *args, **kwargs):
            return dict(*args, **kwargs)

        def fromkeys(self, *args, **kwargs):
            return dict.fromkeys(*args, **kwargs)

    def raise_exception(message):
        raise Refusal(f"the chat template refuses it: {message}")

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form):
        if now is None:
            raise Refusal("the chat template asks for the date, which must not depend on when a job runs: "
                          "set requests.date")
        return now.strftime(form)

    def refuse_chance(*_args, **_kwargs):
        raise Refusal("the chat template chooses at random: the same line would get another prompt in every run")

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    environment.filters.update(tojson=tojson, random=refuse_chance)
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, lipsum=refuse_chance,
                               dict=Dictionaries(), namespace=Names)
    return environment


def reads_parts(environment, text):
    """Whether a template goes through the parts of a content that is a list: `for part in message.content`."""
    from jinja2 import nodes

    def is_content(node):
        if isinstance(node, nodes.Filter):
            return is_content(node.node)
        if isinstance(node, nodes.Getattr):
            return node.attr == "content"
        return isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == "content"

    tree = environment.parse(text)
    names = {assign.target.name for assign in tree.find_all(nodes.Assign)
             if isinstance(assign.target, nodes.Name) and is_content(assign.node)}
    # A macro is given the content under a name of its own.
    for macro in tree.find_all(nodes.Macro):
        names.update(argument.name for argument in macro.args if "content" in argument.name)
    return any(is_content(loop.iter) or (isinstance(loop.iter, nodes.Name) and loop.iter.name in names)
               for loop in tree.find_all(nodes.For))


class Template:
    def __init__(self, environment, text):
        self.text = text
        self.compiled = environment.from_string(text)
        self.reads_parts = reads_parts(environment, text)


def prepared_message(message, template):
    """A message as a template expects it: no nulls, reasoning under all of its names, parts of text joined."""
    message = {name: value for name, value in message.items() if value is not None}
    reasoning = next((message[name] for name in REASONING if name in message), None)
    if reasoning is not None:
        message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
    if isinstance(message.get("content"), list) and not template.reads_parts:
        message["content"] = "\n".join(part["text"] for part in message["content"])
    return message


def mark_end(message):
    """Puts the mark, and a space to see whether the template cuts those, behind the content. Returns the content."""
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = content = [dict(part) for part in content]
        if not content:
            raise Refusal("continue_final_message: the last message has no text to continue")
        text = content[-1]["text"]
        content[-1]["text"] = f"{text}{MARK} "
        return text
    if content is None:
        raise Refusal("continue_final_message: the last message has no content to continue")
    message["content"] = f"{content}{MARK} "
    return content


def cut_at_mark(text, content):
    at = text.rfind(MARK)
    if at < 0 or content.strip() not in text:
        raise Refusal("continue_final_message: the chat template does not show the last message as it is")
    keeps_spaces = text.startswith(" ", at + len(MARK))
    return text[:at] if keeps_spaces else text[:at].rstrip()


class Renderer:
    def __init__(self, setup):
        now = datetime.datetime.fromisoformat(setup["now"]) if setup["now"] else None
        self.variables = setup["variables"]
        self.time_limit_s = setup["time_limit_s"]
        self.text_bytes = setup["text_bytes"]
        environment = make_environment(now)
        self.templates = {}
        for name, text in setup["templates"].items():
            self.template_name = name
            self.templates[name] = Template(environment, text)

    def template_for(self, tools):
        if tools is not None and "tool_use" in self.templates:
            return self.templates["tool_use"]
        if "default" not in self.templates:
            raise Refusal(f"the checkpoint has no chat template named default, only {', '.join(self.templates)}")
        return self.templates["default"]

    def prompt_of(self, line):
        request = json.loads(line)
        request = request["body"] if request.get("body") is not None else request
        given = {name: value for name, value in request.items() if value is not None}
        tools = given.get("tools") if given.get("tool_choice") != "none" else None
        template = self.template_for(tools)
        messages = [prepared_message(message, template) for message in given["messages"]]
        continues = given.get("continue_final_message", False)
        content = mark_end(messages[-1]) if continues else ""
        variables = dict(self.variables)
        if "reasoning_effort" in given:
            variables["reasoning_effort"] = given["reasoning_effort"]
        variables.update(given.get("chat_template_kwargs", {}))
        variables.update(messages=messages, tools=tools, documents=None,
                         add_generation_prompt=given.get("add_generation_prompt", not continues))
        text = template.compiled.render(variables)
        return cut_at_mark(text, content) if continues else text

    def answer(self, line):
        try:
            prompt = self.prompt_of(line).encode("utf-8")
        except Refusal as refusal:
            return b"E", str(refusal).encode("utf-8", "replace")
        except MemoryError:
            return b"E", b"the chat template needs more memory than it may have"
        except Exception as error:  # whatever a template does wrong costs its line only
            text = f"the chat template cannot render it: {type(error).__name__}: {error}"
            return b"E", text.encode("utf-8", "replace")
        if len(prompt) > self.text_bytes:
            return b"E", f"the chat template makes more than {self.text_bytes} bytes of it".encode()
        return b"P", prompt


class Channel:
    """Messages over the socket that is standard input, which nothing else may use by mistake."""

    def __init__(self):
        descriptor = os.dup(0)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self.stream = os.fdopen(descriptor, "rb")
        self.out = os.fdopen(os.dup(descriptor), "wb")

    def read(self):
        """The next message; None at the end."""
        head = self.stream.read(8)
        if len(head) < 8:
            return None
        size = int.from_bytes(head, "little")
        body = self.stream.read(size)
        return body if len(body) == size else None

    def write(self, letter, body):
        self.out.write((len(body) + 1).to_bytes(8, "little") + letter + body)
        self.out.flush()


def start(channel, setup):
    """The renderer, once its templates are compiled; None, with the answer given, if that is not possible."""
    try:
        import jinja2
        import jinja2.sandbox
    except ImportError as error:
        channel.write(b"M", str(error).encode())
        return None
    if not hasattr(jinja2, "pass_context"):  # came with 3.0; older ones are not maintained
        channel.write(b"M", f"jinja2 {jinja2.__version__} is too old".encode())
        return None
    set_limits(setup["memory_bytes"])
    try:
        return Renderer(setup)
    except jinja2.exceptions.TemplateSyntaxError as error:
        channel.write(b"T", f"line {error.lineno}: {error.message}".encode("utf-8", "replace"))
    except Exception as error:
        channel.write(b"T", f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
    return None


def main():
    channel = Channel()
    message = channel.read()
    if message is None:
        return
    setup = json.loads(message)
    # Nobody may be there any more to see that it takes too long. In CPU time: a job may be suspended.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, setup["time_limit_s"])
    renderer = start(channel, setup)
    if renderer is None:
        return
    channel.write(b"R", b"")
    while True:
        signal.setitimer(signal.ITIMER_PROF, 0)
        line = channel.read()
        if line is None:
            return
        signal.setitimer(signal.ITIMER_PROF, setup["time_limit_s"])
        channel.write(*renderer.answer(line))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(1)
