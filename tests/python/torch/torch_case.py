"""What the tests of workers with torch share: a small model, workers that are alone
or several in a job, comparisons bit by bit, and calls that Ctrl-C has ended."""

import contextlib
import copy
import warnings

import torch

from tests.python.job_case import JobCase, agg, split_fields

torch.manual_seed(0)
_MODEL = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(),
                             torch.nn.Linear(4, 1))


def model():
    """The same in every thread."""
    return copy.deepcopy(_MODEL)


def batch(rank, i, size=8):
    generator = torch.Generator().manual_seed(1000 * rank + i)
    return torch.randn(size, 5, generator=generator)


def loss_of(net, x):
    return net(x).pow(2).mean()


def copies(net):
    return [p.detach().clone() for p in net.parameters()]


@contextlib.contextmanager
def heard():
    """The texts of all warnings."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
        texts += [str(each.message) for each in caught]


def interrupt(worker, error=KeyboardInterrupt):
    """The next wait for a round raises it; the round goes on."""
    session = worker._session

    def interrupted(*_):
        del session._round_here, session._await_operation
        raise error

    session._round_here = session._await_operation = interrupted


class TorchCase(JobCase):
    """A JobCase whose clients are Workers. The fields of a job and the options of
    its workers are given together; of mode "combine" the job's optimizer is
    "none" unless another one is given."""

    def lone_worker(self, tensors, **fields):
        """A worker alone in its job, until the test ends."""
        job, options = self._fields(fields)
        worker = agg.Worker(tensors, self.serve(**job).address, 0, **options)
        self.addCleanup(worker.close)
        return worker

    def job_of(self, number, work, make=lambda rank: model(), **fields):
        """work(worker, net, rank) in a thread for each rank, where net is
        make(rank); their results, by rank."""
        job, options = self._fields(fields)
        server = self.serve(workers=number, **job)

        def run(rank):
            net = make(rank)
            with agg.Worker(net, server.address, rank, **options) as worker:
                return work(worker, net, rank)

        return self.team(number, run)

    @staticmethod
    def _fields(fields):
        if fields.get("mode") == "combine":
            fields = {"optimizer": "none", **fields}
        return split_fields(fields)

    def assert_equal(self, found, expected):
        """Tensors, bit by bit."""
        for a, b in zip(found, expected, strict=True):
            self.assertTrue(torch.equal(a, b))

    @staticmethod
    def assert_near(found, expected, rtol, atol):
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=rtol, atol=atol)
