"""Servers with identities that do not start (P45)."""

from foreign_test_case import REDUCE, ForeignTestCase


class StartTest(ForeignTestCase):

    def test_tokens_are_refused_where_a_network_would_have_them(self):
        security = ('workers: 1\n' + REDUCE + 'security { identities { '
                    'name: "a" token_file: "/nowhere" roles: "worker" } ')
        with self.assertRaisesRegex(AssertionError,
                                    r'--bind is "0.0.0.0"; allowed: loopback'):
            self.start(security + 'shard_token_file: "/nowhere" }',
                       flags=["--bind=0.0.0.0"])
        with self.assertRaisesRegex(AssertionError, r'shards\[0\] is "10\.0\.'
                                    r'0\.2:1"; allowed: .*clear text'):
            self.start('shards: "10.0.0.2:1"\n' + security +
                       'shard_token_file: "/nowhere" }')

    def test_a_token_file_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(AssertionError,
                                    r"identities\[0\].token_file is \"/nowh"):
            self.start('workers: 1\n' + REDUCE + 'security { identities { '
                       'name: "a" token_file: "/nowhere" roles: "worker" } '
                       'shard_token_file: "/nowhere" }')

    def test_one_shard_has_to_say_who_it_is(self):
        with self.assertRaisesRegex(AssertionError,
                                    r'shard_token_file is ""; allowed: '):
            self.start('workers: 1\n' + REDUCE + 'security { identities { '
                       'name: "a" token_file: "/nowhere" roles: "worker" } }')
