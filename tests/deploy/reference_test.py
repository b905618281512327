"""The committed pages of deploy/docs/reference are what is generated now."""

import unittest

from deploy.docs import generate


class ReferenceTest(unittest.TestCase):

    def test_pages_are_as_generated(self):
        made, findings = generate.pages(".")
        self.assertEqual(findings, [])
        different = list(generate.differences(made))
        self.assertEqual(different, [], "\n".join(
            [*different, "make them anew: deploy/docs/generate.py bazel-bin"]))


if __name__ == "__main__":
    unittest.main()
