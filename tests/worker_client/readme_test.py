"""The READMEs and the example that is built are the same program."""

import pathlib
import re
import unittest


def shown_program(readme):
    text = pathlib.Path(readme).read_text()
    return re.search(r"```cpp\n(.*?)```", text, re.S).group(1)


class ReadmeTest(unittest.TestCase):

    def setUp(self):
        self.built = pathlib.Path(
            "worker_client/examples/minimal_worker.cc").read_text()

    def test_the_root_readme_shows_the_whole_file(self):
        self.assertEqual(shown_program("README.md"), self.built)

    def test_the_client_readme_shows_it_without_its_first_comment(self):
        first, rest = self.built.split("\n", 1)
        self.assertEqual(first[:2], "//")
        self.assertEqual(shown_program("worker_client/README.md"), rest)


if __name__ == "__main__":
    unittest.main()
