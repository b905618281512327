"""Jobs with identities, and the package's workers and observers."""

import os
import unittest
from unittest import mock

from tests.python.job_case import JobCase, agg

TOKENS = {"alice": "alice-token-0123456", "root": "root-token-01234567",
          "shard": "shard-token-0123456"}


class AccessTest(JobCase):

    def setUp(self):
        self.folder = self.temporary_folder()
        for name, token in TOKENS.items():
            (self.folder / name).write_text(token + "\n")
            (self.folder / name).chmod(0o600)
        self.server = self.serve(lr=0.5, config={"security": {
            "identities": [
                {"name": name, "token_file": str(self.folder / name),
                 "roles": role}
                for name, role in (("alice", "worker"), ("root", "admin"))],
            "shard_token_file": str(self.folder / "shard")}})

    def train(self, **options):
        self.train_once(self.server, **options)

    def test_who_has_a_token_gets_in(self):
        self.train(token_file=self.folder / "alice")

    def test_from_the_environment(self):
        with mock.patch.dict(os.environ,
                             AGG_TOKEN_FILE=str(self.folder / "alice")):
            self.train()

    def test_who_has_none_does_not(self):
        with self.assertRaises(agg.NotAllowed) as caught:
            self.train()
        self.assertEqual(caught.exception.code, "UNAUTHENTICATED")
        with self.assertRaises(agg.NotAllowed):
            agg.Observer(self.server.address)

    def test_a_token_that_cannot_be_read(self):
        (self.folder / "empty").write_text("\n")
        for name, said in (("missing", "No such file"),
                           (".", "not a regular file"),
                           ("empty", "no token")):
            with self.subTest(name), self.assertRaisesRegex(
                    agg.ManifestError, f"^token_file is .*{said}.*; allowed: "):
                self.train(token_file=self.folder / name)

    def test_who_may_not_do_this(self):
        with self.assertRaises(agg.NotAllowed) as caught:
            self.train(token_file=str(self.folder / "root"))
        self.assertEqual(caught.exception.code, "PERMISSION_DENIED")


if __name__ == "__main__":
    unittest.main()
