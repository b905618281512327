"""Tests of what generate.py puts its pages together from."""

import unittest

from deploy.docs import generate  # Makes its neighbours importable.
from deploy.docs import config_reference as config
from deploy.docs import flags_reference as flags
from deploy.docs import python_reference as python

_PROTO = """syntax = "proto3";
message JobConfig {
  // A label.
  // Of metrics.
  string job = 1;
  int32 workers = 2;  // how many, "a":
                      // at least 1
  // Above both.
  double seconds = 3;      // default 5
  Part part = 4;
  repeated Part parts = 5;
}

// What a part is.
message Part {
  message Inner {
    optional double beta = 1;  // default 0.5
  }
  Inner inner = 1;  // of a part
}
""".splitlines()


class ConfigTest(unittest.TestCase):

    def test_comments_of_fields(self):
        messages = config.parse(_PROTO)
        self.assertEqual(
            [(f.label, f.type, f.name, f.comment)
             for f in messages["JobConfig"].fields],
            [("", "string", "job", "A label. Of metrics."),
             ("", "int32", "workers", 'how many, "a": at least 1'),
             ("", "double", "seconds", "Above both. default 5"),
             ("", "Part", "part", ""), ("repeated", "Part", "parts", "")])
        self.assertEqual(messages["Part"].comment, "What a part is.")

    def test_a_message_is_shown_where_it_is_first(self):
        self.assertEqual(
            [(path, elsewhere) for path, _, elsewhere in
             config.paths(config.parse(_PROTO))],
            [("job", None), ("workers", None), ("seconds", None),
             ("part", None), ("part.inner", None), ("part.inner.beta", None),
             ("parts", "part")])

    def test_text_format_and_back(self):
        values = {"a": "1", "b.c.d": '"x"', "b.c.e": "2", "b.f": "{}", "g": "3"}
        text = config.text_of(values)
        self.assertEqual(text.splitlines(), [
            "a: 1", "b {", "c {", 'd: "x"', "e: 2", "}", "f {}", "}", "g: 3"])
        self.assertEqual(config.values_of("a: 1\nb {\n  c: 2\n}\nd {\n}\ne: 3"),
                         {"a": "1", "b.c": "2", "e": "3"})

    def test_a_default_is_one_that_no_job_has_otherwise(self):
        completed = [{"a": "1", "b": "1"}, {"a": "1", "b": "2", "c": "3"}]
        given = [{}, {"c": "3"}]
        self.assertEqual([config._default(path, completed, given)
                          for path in ("a", "b", "c", "d")],
                         ["1", None, None, None])

    def test_comments_that_say_another_default(self):
        for comment, default in (("Default 5.", "6"), ("default 1e10", "1"),
                                 ('Default "off"', '"on"')):
            self.assertIn("says", config._contradiction("a", comment, default))
        for comment, default in (
                ("Default 5: off", "5"), ("default 1e-6", "1e-06"),
                ('Default "off".', '"off"'), ("default 1 GiB", "1073741824"),
                ("default 80% of it", "0"), ("default 10 max_workers", "0"),
                ("no word of it", "4"), ("default 3", None)):
            self.assertIsNone(config._contradiction("a", comment, default),
                              comment)


class FlagsTest(unittest.TestCase):

    def test_tables_of_a_help_text(self):
        wide = "--as_wide_as_its_column_is WORD"
        before, found = flags.tables(
            "a: does b.\nRules:\n  c: d\nUsage: a [FLAGS]\n\nFlags:\n"
            "  -h,--help                       print this\n"
            "  --longer_than_the_column is|or|was\n"
            "                                  what it is\n"
            "  %s as it says\n"
            "  --silent\n"
            "\nCommands:\n  run                             begin\n" % wide)
        self.assertEqual(before,
                         "a: does b.\nRules:\n  c: d\nUsage: a [FLAGS]")
        self.assertEqual(found, [
            ("Flags", [("-h,--help", "print this"),
                       ("--longer_than_the_column is|or|was", "what it is"),
                       (wide, "as it says"), ("--silent", "")]),
            ("Commands", [("run", "begin")])])

    def test_unknown_lines_are_not_lost(self):
        with self.assertRaises(ValueError):
            flags.tables("Flags:\nsomething else")


def _package(name, source):
    """A Package of one module, and __init__, which has its names."""
    package = python.Package("none")
    package._modules[name] = python.ast.parse(source), {}
    return package


class PythonTest(unittest.TestCase):

    def test_docstrings(self):
        self.assertEqual(python.markdown(
            "First a*b,\nand `c*d`.\n\n    code = 1\n\n    more = 2\n\n"
            "Args:\n  x: one,\n    and more\n  y, z: two\n\n"
            "Raises: nothing.\n"),
            "First a\\*b, and `c*d`.\n\n```python\ncode = 1\n\nmore = 2\n```\n\n"
            "Arguments:\n\n- `x`: one, and more\n- `y, z`: two\n\n"
            "Raises: nothing.\n")

    def test_lists_without_a_heading(self):
        self.assertEqual(
            python.markdown("A pair.\n\nleft: one,\n  and more\nright: two"),
            "A pair.\n\n- `left`: one, and more\n- `right`: two\n")
        for text in ("left: one of\nthe two: no list", "A word: more", "left: one"):
            self.assertEqual(python.markdown(text).split(), text.split())

    def test_classes_with_what_they_inherit(self):
        package = _package("m", '''
class _Base:
    def close(self) -> None:
        """Ends it."""
    def silent(self): pass

class Thing(_Base):
    """A thing.

        with Thing(1) as t:
            t.size
    """
    def __init__(self, size: int, *, job: str = "a", **more) -> None:
        """Args:
          size: in rows.
        """
    @property
    def size(self) -> int:
        """As given."""
    def hidden(self):
        """Of Other: what it needs."""
    def _private(self):
        """Not shown."""
''')
        text = "\n".join(python._class(package, "Thing", "m",
                                       {"Thing", "Other"}))
        self.assertEqual(text, """## Thing

```python
Thing(size: int, *, job: str = 'a', **more)
```

A thing.

```python
with Thing(1) as t:
    t.size
```

Arguments:

- `size`: in rows.

### Thing.close

```python
close() -> None
```

Ends it.

### Thing.size

A property: `int`.

As given.
""")

    def test_long_signatures_have_a_line_for_each_argument(self):
        function = python.ast.parse(
            "def f(a: int, %s: int = 1, *b) -> str: pass" % ("x" * 70)).body[0]
        self.assertEqual(
            python._signature("f", python._arguments(function, False),
                              function.returns).splitlines()[1:-1],
            ["f(", "    a: int,", "    %s: int = 1," % ("x" * 70), "    *b",
             ") -> str"])


class GenerateTest(unittest.TestCase):

    def test_differences(self):
        self.assertEqual(list(generate.differences({})), [])
        found = list(generate.differences({"none": "a line\n"}))
        self.assertEqual(found[-1], "+a line")


if __name__ == "__main__":
    unittest.main()
