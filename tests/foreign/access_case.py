"""Jobs with identities, and those who hold their tokens."""

import pathlib
import tempfile

import grpc

from client import Worker
from foreign_test_case import REDUCE, TENSORS, ForeignTestCase, values
from server_process import WAIT, Job
from stubs import admin

TOKENS = {
    "alice": "alice-token-0123456",
    "bob": "bob-token-012345678",
    "seer": "seer-token-01234567",
    "root": "root-token-01234567",
    "boss": "boss-token-01234567",
    "shard": "shard-token-0123456",
}
ROLES = {"alice": ["worker"], "bob": ["worker"], "seer": ["observer"],
         "root": ["admin"], "boss": ["worker", "admin"]}


class Bearer(grpc.UnaryUnaryClientInterceptor,
             grpc.UnaryStreamClientInterceptor,
             grpc.StreamUnaryClientInterceptor,
             grpc.StreamStreamClientInterceptor):
    """Presents a token with each call."""

    def __init__(self, token):
        self.token = token

    def _with_token(self, details):
        metadata = list(details.metadata or [])
        metadata.append(("authorization", f"Bearer {self.token}"))
        return details._replace(metadata=metadata)

    def intercept_unary_unary(self, call, details, request):
        return call(self._with_token(details), request)

    def intercept_unary_stream(self, call, details, request):
        return call(self._with_token(details), request)

    def intercept_stream_unary(self, call, details, requests):
        return call(self._with_token(details), requests)

    def intercept_stream_stream(self, call, details, requests):
        return call(self._with_token(details), requests)


class AccessJob(Job):
    """A job whose own questions are those of `root`."""

    def peer(self, ordinal=0, options=()):
        peer = super().peer(ordinal, options)
        peer.use(grpc.intercept_channel(peer.channel, Bearer(TOKENS["root"])))
        return peer

    def bare(self, ordinal=0):
        return super().peer(ordinal)


class Holder:
    """A job as the holder of one token sees it; None: of no token."""

    def __init__(self, job, token=None):
        self.job = job
        self.token = token

    @property
    def addresses(self):
        return self.job.addresses

    def peer(self, ordinal=0, options=()):
        peer = self.job.bare(ordinal)
        if self.token is not None:
            peer.use(grpc.intercept_channel(peer.channel, Bearer(self.token)))
        return peer


class AccessCase(ForeignTestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, token in TOKENS.items():
            self.write_tokens(name, token)

    def write_tokens(self, name, *tokens):
        """The complete file at once, as a mounted secret is replaced."""
        part = self.folder / f"{name}.part"
        part.touch(mode=0o600)
        part.write_text("\n".join(tokens) + "\n")
        part.rename(self.folder / name)

    def job(self, num_shards=1, workers=1, extra="", limits=None, more="",
            flags=()):
        """extra: of `security`; limits: by identity; more: of the rest."""
        identities = "".join(
            f'  identities {{ name: "{name}" '
            f'token_file: "{self.folder}/{name}" '
            + "".join(f'roles: "{role}" ' for role in roles)
            + f'limits {{ {(limits or {}).get(name, "")} }} }}\n'
            for name, roles in ROLES.items())
        config = (f"workers: {workers}\n{REDUCE}{more}"
                  f"security {{\n{identities}"
                  f'  shard_token_file: "{self.folder}/shard"\n{extra}}}\n')
        job = AccessJob(config, num_shards, flags)
        self.addCleanup(job.stop)
        return job

    def as_(self, job, name):
        return Holder(job, TOKENS[name])

    def seeded_by_alice(self, **kwargs):
        job = self.job(**kwargs)
        worker = Worker(self.as_(job, "alice"), 0, TENSORS)
        worker.seed(values(0))
        return job, worker

    def audit(self, job):
        return job.peer().admin.ListAudit(admin.ListAuditRequest(),
                                          timeout=WAIT).records
