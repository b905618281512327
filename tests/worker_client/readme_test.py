"""The README and the example that is built are the same program."""

import pathlib
import re
import unittest


class ReadmeTest(unittest.TestCase):

    def test_it_shows_the_program_without_its_first_comment(self):
        built = pathlib.Path(
            "worker_client/examples/minimal_worker.cc").read_text()
        text = pathlib.Path("worker_client/README.md").read_text()
        first, rest = built.split("\n", 1)
        self.assertEqual(first[:2], "//")
        self.assertEqual(re.search(r"```cpp\n(.*?)```", text, re.S).group(1),
                         rest)


if __name__ == "__main__":
    unittest.main()
