"""Prometheus' rules and Alertmanager's configuration in a shorter time.

Nothing is copied: the files of deploy/prometheus are read, and every time in
them is divided by one factor.
"""

import re

# Numbers of an expression that are seconds and have no unit, by the rule's
# name. drill_test.py finds the ones that somebody adds.
SECONDS = {"aggserver:stall_seconds": ("60", "600"),
           "AggCheckpointOld": ("60",)}
UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000,
         "w": 604_800_000}
_TIME = r"(?:\d+(?:ms|[smhdw]))+"
_RULE = re.compile(r"^ *- (?:alert|record): *(\S+)$", re.MULTILINE)


def shorter(duration, factor):
    """"15m" with 60: "15s"; "0s" stays."""
    parts = re.findall(r"(\d+)(ms|[smhdw])", duration)
    total = sum(int(number) * UNITS[unit] for number, unit in parts)
    if not total:
        return "0s"
    whole = max(1, round(total / factor))
    return f"{whole // 1000}s" if whole % 1000 == 0 else f"{whole}ms"


def rules(text):
    """Finds the rules of rules.yml: [(name, its text's begin, its end)]."""
    heads = list(_RULE.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [(head[1], head.start(), end) for head, end in zip(heads, ends)]


def scaled_rules(text, factor, seconds=None):
    """rules.yml with each time divided by `factor`: `for` and
    `keep_firing_for`, ranges, subqueries and offsets, and the plain numbers of
    `seconds` (default: SECONDS). ValueError: one of those is not there."""
    def time(match):
        return match[1] + shorter(match[2], factor) + match[3]

    text = re.sub(rf"^( +(?:keep_firing_)?for: *)({_TIME})()$", time, text,
                  flags=re.MULTILINE)
    text = re.sub(rf"(\[)({_TIME})(?=[\]:])()", time, text)
    text = re.sub(rf"(?<=[\ds])(:)({_TIME})(\])", time, text)
    text = re.sub(rf"(\boffset +)({_TIME})()", time, text)
    for name, numbers in (SECONDS if seconds is None else seconds).items():
        found = [rule for rule in rules(text) if rule[0] == name]
        if len(found) != 1:
            raise ValueError(f"SECONDS has the rule {name}; allowed: one of "
                             "rules.yml")
        _, begin, end = found[0]
        for number in numbers:
            rule, count = re.subn(rf"(?<![\w.:\"]){number}(?![\w.:\"])",
                                  f"{float(number) / factor:g}",
                                  text[begin:end])
            if not count:
                raise ValueError(f"SECONDS has {number} of the rule {name}; "
                                 "allowed: a number in its expression")
            text = text[:begin] + rule + text[end:]
            end = begin + len(rule)
    return text


def scaled_times(text, factor):
    """Divides each wait, interval and timeout of alertmanager.yml."""
    return re.sub(
        rf"^([ -]*\w+_(?:wait|interval|timeout): *)({_TIME})$",
        lambda match: match[1] + shorter(match[2], factor), text,
        flags=re.MULTILINE)


def alerts(text):
    """The alerts of rules.yml: name -> severity."""
    found = {}
    for name, begin, end in rules(text):
        if text[begin:end].lstrip().startswith("- alert:"):
            found[name] = re.search(r"severity: *(\w+)", text[begin:end])[1]
    return found


def expressions(text):
    """The expressions of rules.yml: [(name, expression)]."""
    found = []
    for name, begin, end in rules(text):
        match = re.search(r"^( +)expr:(.*\n(?:\1 +.*\n|\n)*)", text[begin:end],
                          re.MULTILINE)
        found.append((name, match[2].replace(">-", "")))
    return found
