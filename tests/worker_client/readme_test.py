"""worker_client/README.md and its example are the same program."""

import pathlib
import re
import unittest


class ReadmeTest(unittest.TestCase):

    def test_the_readme_shows_the_example_that_is_built(self):
        readme = pathlib.Path("worker_client/README.md").read_text()
        shown = re.search(r"```cpp\n(.*?)```", readme, re.S).group(1)
        built = pathlib.Path(
            "worker_client/examples/minimal_worker.cc").read_text()
        self.assertEqual(built.split("\n", 1)[0][:2], "//")
        self.assertEqual(shown, built.split("\n", 1)[1])


if __name__ == "__main__":
    unittest.main()
