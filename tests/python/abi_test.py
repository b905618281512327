"""The package's structs are those of agg_types.h, field by field."""

import ctypes
import pathlib
import re
import subprocess
import tempfile
import unittest

from tests.python.job_case import ROOT
from agg_server import _abi
from agg_server.options import OPTIONS

STRUCTS = {
    "agg_spec": _abi.Spec, "agg_view": _abi.View, "agg_target": _abi.Target,
    "agg_options": _abi.Options, "agg_push_info": _abi.PushInfo,
    "agg_outcome": _abi.OutcomeStruct, "agg_state": _abi.State,
    "agg_job": _abi.JobStruct, "agg_event": _abi.EventStruct,
    "agg_rule_segment": _abi.RuleSegment, "agg_rule_round": _abi.RuleRound,
    "agg_rule_weights": _abi.RuleWeights}


def of_package():
    """The size of each struct, and place and size of each field."""
    lines = []
    for name, struct in STRUCTS.items():
        lines.append(f"{name} {ctypes.sizeof(struct)}")
        for field in (each[0] for each in struct._fields_):
            place = getattr(struct, field)
            lines.append(f"{name}.{field} {place.offset} {place.size}")
    return lines


def of_header():
    """The same, as a C compiler has it."""
    prints = []
    for name, struct in STRUCTS.items():
        prints.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field in (each[0] for each in struct._fields_):
            prints.append(
                f'printf("{name}.{field} %zu %zu\\n", '
                f"offsetof({name}, {field}), sizeof((({name}*)0)->{field}));")
    source = ("#include <stdio.h>\n#include \"worker_client/c/agg_types.h\"\n"
              "int main(void) {\n" + "\n".join(prints) + "\n}\n")
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "sizes")
        subprocess.run(["cc", "-x", "c", "-I", ROOT, "-o", program, "-"],
                       input=source, text=True, check=True)
        return subprocess.run([program], check=True, capture_output=True,
                              text=True).stdout.splitlines()


class AbiTest(unittest.TestCase):

    def test_structs_are_the_headers(self):
        self.assertEqual(of_package(), of_header())

    def test_options_are_all_of_the_headers(self):
        header = (ROOT / "worker_client/c/agg_types.h").read_text()
        code = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
        struct = code.partition("struct agg_options {")[2].partition("}")[0]
        self.assertEqual([name for name, _ in _abi.Options._fields_],
                         [name for name in re.findall(r"(\w+);", struct)
                          if not name.startswith("reserved")])

    def test_defaults_are_the_librarys(self):
        c = _abi.Options()
        _abi.load().agg_options_init(_abi.byref(c), c.size)
        for name, option in OPTIONS.items():
            if option.c_type is None:
                continue
            # The library's word for None, of what is no text.
            value = getattr(c, name)
            self.assertEqual(None if value == -1 else value, option.default,
                             name)


if __name__ == "__main__":
    unittest.main()
