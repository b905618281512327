"""The page of the configuration's fields.

What a field means stands in the comments of proto/config.proto. Its default and
what it may be are asked of agg_server itself: `--print_config` shows what is left
out, and `--validate` says of a value that is wrong what is allowed. So the page
cannot say what the program does not do.
"""

import dataclasses
import os
import re
import subprocess
import tempfile

_MESSAGE = re.compile(r"message (\w+) \{")
_FIELD = re.compile(r"(?:(repeated|optional) )?([\w.]+) (\w+) = \d+;")
_NUMBERS = {"double", "int32", "int64", "uint64"}
_INTRODUCTION = """# Configuration

All fields of a job's configuration: one message `JobConfig` in protobuf's text
format, in a file that each shard reads (`agg_server --config`).
`agg_server --validate` checks a file, and `agg_server --print_config` prints it with
all defaults. Where no default stands here, the text says it, or the field may be
left out, or it depends on others.

This page is made of proto/config.proto and of what agg_server answers, by
`deploy/docs/generate.py`.
"""


@dataclasses.dataclass
class Field:
    """A field of a message, with its comment as paragraphs of one line."""

    label: str  # "", "repeated", "optional"
    type: str
    name: str
    comment: str


@dataclasses.dataclass
class Message:
    """A message, with the comment above it."""

    comment: str
    fields: list = dataclasses.field(default_factory=list)


def _joined(lines):
    return " ".join(" ".join(lines).split())


def parse(lines):
    """{name: Message} of a .proto file laid out as proto/config.proto is.

    A comment stands above its field, or behind it; then lines that go on with it
    are indented deeper than fields are. A nested message has the name by which
    the fields of its own message call it.
    """
    messages, stack, above, last = {}, [], [], None
    for line in lines:
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text.startswith("//"):
            if last and indent > 2 * len(stack):
                last.comment = _joined([last.comment, text[2:]])
            else:
                above.append(text[2:])
                last = None
            continue
        message, field = _MESSAGE.match(text), _FIELD.match(text)
        if message:
            stack.append(messages.setdefault(message.group(1),
                                             Message(_joined(above))))
        elif field:
            behind = text[field.end():].strip().lstrip("/")
            last = Field(field.group(1) or "", *field.group(2, 3),
                         _joined([*above, behind]))
            stack[-1].fields.append(last)
        elif text == "}":
            stack.pop()
        if not field:
            last = None
        above = []
    return messages


def paths(messages, name="JobConfig", prefix="", seen=None):
    """(path, Field, where its message stands already or None) of all fields."""
    seen = {} if seen is None else seen
    for field in messages[name].fields:
        path = prefix + field.name
        yield path, field, seen.get(field.type)
        if field.type in messages and field.type not in seen:
            seen[field.type] = path
            yield from paths(messages, field.type, path + ".", seen)


def text_of(values):
    """Text format of {path: value as text}; "{}" is a message with no fields."""
    lines, open_names = [], []
    for path in sorted(values):
        *names, name = path.split(".")
        while open_names != names[:len(open_names)]:
            open_names.pop()
            lines.append("}")
        for outer in names[len(open_names):]:
            open_names.append(outer)
            lines.append(outer + " {")
        if values[path] != "{}":
            lines.append("%s: %s" % (name, values[path]))
        elif not any(other.startswith(path + ".") for other in values):
            lines.append(name + " {}")
    return "\n".join(lines + ["}"] * len(open_names))


def values_of(text):
    """{path: value as text} of text format with a field or a brace a line."""
    values, names = {}, []
    for line in text.splitlines():
        line = line.strip()
        if line.endswith("{"):
            names.append(line.split()[0])
        elif line == "}":
            names.pop()
        elif line:
            name, _, value = line.partition(": ")
            values[".".join([*names, name])] = value
    return values


def jobs(folder):
    """Configurations that together have every field.

    The first two are the smallest, with other numbers of workers and shards: what
    differs between them is no default.
    """
    least = {"workers": "5", "learning_rate.rate": "0.5"}
    return [
        least,
        {**least, "workers": "7", "shards": '["a:1", "b:1"]'},
        {**least, "workers": "7", "floor_policy": '"fail"',
         "combination.rule": '"multi_krum"', "combination.krum": "{}",
         "shadow_rules.rule": '"adacons"', "shadow_rules.adacons": "{}",
         "learning_rate.schedule": '"polynomial"',
         "learning_rate.decay_steps": "9", "optimizer.kind": '"adam"',
         "groups.name": '"g"', "outliers": "{}",
         "checkpoint.path": '"%s"' % folder,
         "round_log.path": '"%s/log"' % folder,
         "security.tls.certificate": '"c"', "security.tls.key": '"k"',
         "security.tls.ca": '"a"', "security.shard_token_file": '"t"',
         "security.identities.name": '"x"',
         "security.identities.roles": '"worker"',
         "security.identities.token_file": '"t"',
         "security.identities.limits": "{}", "security.limits": "{}"},
        {**least, "combination.rule": '"adacons"', "combination.adacons": "{}",
         "learning_rate.schedule": '"exponential"',
         "learning_rate.decay_steps": "9", "optimizer.kind": '"lars"',
         "step_scale.kind": '"adascale"', "step_scale.force": "true"},
        {**least, "combination.rule": '"geometric_median"',
         "combination.geometric_median": "{}", "backend": '"cuda"',
         "learning_rate.schedule": '"multistep"',
         "learning_rate.boundaries": "[3]", "optimizer.kind": '"adagrad"'},
        {**least, "combination.rule": '"external"',
         "combination.external": "{}"},
    ]


class _Server:
    """Asks agg_server about configurations."""

    def __init__(self, program, folder):
        self._program = program
        self._path = os.path.join(folder, "job.textproto")

    def _run(self, values, flag):
        with open(self._path, "w", encoding="utf-8") as file:
            file.write(text_of(values))
        return subprocess.run(
            [self._program, "--config", self._path, flag],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False)

    def completed(self, values):
        """{path: value}, with all defaults."""
        process = self._run(values, "--print_config")
        if process.returncode:
            raise RuntimeError("agg_server: " + process.stderr)
        return values_of(process.stdout)

    def allowed(self, values, path, wrong):
        """What is allowed in place of `wrong`, or None: nothing else is said."""
        errors = self._run({**values, path: wrong}, "--validate").stderr
        found = re.search(r"(?m)^.*: %s(?:\[0\])? is .*?; allowed: (.+)$" %
                          re.escape(path).replace(r"\.", r"(?:\[0\])?\."), errors)
        return found and found.group(1)


# What is said of a field whose time has not come, and of no value.
_NOT_HERE = ("only with", "to be left out", "with ")


def _default(path, completed, given):
    values = {shown[path] for shown, job in zip(completed, given)
              if path in shown and path not in job}
    return values.pop() if len(values) == 1 else None


def _allowed(server, path, field, given):
    wrong = '"?"' if field.type == "string" else \
        "-7" if field.type in _NUMBERS - {"uint64"} else None
    if wrong is None:
        return None
    for job in given:
        text = server.allowed(job, path, wrong)
        if text and not text.startswith(_NOT_HERE):
            # A number that depends on those of the job is no part of the answer.
            return re.sub(r" \(\d+\)", "", text)
    return None


_SAID = re.compile(
    r'[Dd]efault:? ("\w*"|-?\d[\d.e-]*(?![\w%]| MiB| GiB| \+| max_workers))')
# 0 stands for the default there, which depends on the job's size.
_LIMITS = "security.identities.limits."
# What the line of facts says already.
_REPEATED = re.compile(r'default \S+|("\w+"( \(default\))?(,| or)? ?)+')


def _contradiction(path, comment, default):
    """What the comment says of the default, if the program says otherwise."""
    said = _SAID.search(comment)
    if not said or default is None or path.startswith(_LIMITS):
        return None
    text = said.group(1).rstrip(".")
    same = text == default if text[0] == '"' or default[0] == '"' else \
        float(text) == float(default)
    return None if same else "%s: proto/config.proto says default %s, " \
        "agg_server %s" % (path, text, default)


def _markdown(comment):
    """A comment as a paragraph, whose sentences begin with capitals: behind a
    field they do not."""
    text = comment[0].upper() + comment[1:].replace(". default", ". Default")
    return re.sub(r"([*<])", r"\\\1", text)


def _code(text):
    return "`` %s ``" % text if "`" in text else "`%s`" % text


def _facts(messages, field, default, allowed, elsewhere):
    if field.type in messages:
        kind = "a message" if field.label != "repeated" else "repeated messages"
        return kind + (", with the fields of [%s](#%s)" % (
            elsewhere, elsewhere.replace(".", "")) if elsewhere else "")
    facts = ["repeated " + field.type if field.label == "repeated"
             else field.type]
    if default is not None and field.label != "repeated":
        facts.append("default " + _code(default))
    if allowed:
        facts.append("allowed: " + _code(allowed))
    return ", ".join(facts)


def page(proto_lines, program):
    """The page, and what is wrong with the comments."""
    messages = parse(proto_lines)
    parts, findings = [_INTRODUCTION], []
    with tempfile.TemporaryDirectory() as folder:
        server = _Server(program, folder)
        given = jobs(folder)
        completed = [server.completed(job) for job in given]
        for path, field, elsewhere in paths(messages):
            is_message = field.type in messages
            default = allowed = None
            if not is_message:
                default = _default(path, completed, given)
                allowed = _allowed(server, path, field, given)
                wrong = _contradiction(path, field.comment, default)
                if wrong:
                    findings.append(wrong)
            parts.append("%s %s\n\n*%s.*\n" % (
                "###" if "." in path else "##", path,
                _facts(messages, field, default, allowed, elsewhere)))
            comments = [field.comment]
            if is_message and not elsewhere:
                comments.insert(0, messages[field.type].comment)
            parts += [_markdown(comment) + "\n" for comment in comments
                      if comment and not _REPEATED.fullmatch(comment)]
    return "\n".join(parts), findings
