"""Client and Observer against real shards; numpy alone."""

import inspect
import pathlib
import tempfile
import threading
import typing
import unittest
import warnings
from unittest import mock

import numpy as np

from tests.python.job_case import WAIT, JobCase, agg
from agg_server.options import ClientOptions


def arrays(value=0.0):
    return {"w": np.full((2, 3), value, np.float32),
            "b": np.full((), value, np.float32)}


class ClientTest(JobCase):

    def two_clients(self):
        server = self.serve(workers=2, lr=1.0)
        clients = [agg.Client(arrays(), server.address, rank)
                   for rank in (0, 1)]
        for client in clients:
            self.addCleanup(client.close)
        return clients

    def test_two_workers_two_shards(self):
        server = self.serve(shards=2, workers=2, lr=0.5)

        def work(rank):
            x = arrays(7.0 if rank else 1.0)
            with agg.Client(x, server.address, rank) as client:
                start = x["b"].item()
                self.assertEqual(client.job.optimizer, "sgd")
                self.assertEqual(client.job.workers, 2)
                outcome = client.step(
                    {"w": np.full((2, 3), rank, np.float64),
                     "b": np.float32(2)}, loss=float(rank), examples=1 + rank)
                self.assertTrue(outcome.applied and outcome.included)
                self.assertEqual(outcome, client.last)
                self.assertEqual(client.wait(1).version, 1)
                self.assertEqual(client.version, 1)
                return start, x, outcome

        results = self.team(2, work)
        start = results[0][0]
        self.assertIn(start, (1.0, 7.0))  # whoever joined first
        for found, x, outcome in results:
            self.assertEqual(found, start)
            np.testing.assert_array_equal(
                x["w"], np.full((2, 3), start - 0.5 * 0.5, np.float32))
            self.assertEqual(x["b"].item(), start - 0.5 * 2)
            self.assertEqual(outcome.ranks, (0, 1))
            self.assertEqual(outcome.learning_rate, 0.5)
            self.assertAlmostEqual(outcome.loss, 2 / 3)  # by examples
            self.assertEqual((outcome.rule, outcome.finished),
                             ("mean", False))
            self.assertEqual(outcome.as_dict()["version"], 1)

    def test_a_job_of_int8_rows(self):
        x = arrays()
        client = self.lone_client(x, lr=1.0, config={"push_dtype": "int8"})
        self.assertEqual(client.job.push_dtype, "int8")
        client.step(arrays(1.0))
        np.testing.assert_allclose(x["w"], -np.ones((2, 3)), atol=0.01)

    def test_error_feedback_may_be_switched(self):
        gradient = arrays()
        gradient["w"][:] = 0.001
        gradient["w"][0, 0] = 1.0
        moved = {}
        for wanted in (None, True, False):
            x = arrays()
            client = self.lone_client(x, lr=1.0, config={"push_dtype": "int8"},
                                      error_feedback=wanted)
            for _ in range(8):
                client.step(gradient)
            moved[wanted] = x["w"][1, 2].item()
        # A step of int8 is 1 / 127 here, and half of it is above 0.001.
        self.assertEqual(moved[False], 0)
        self.assertAlmostEqual(moved[True], -1 / 127, places=5)
        self.assertEqual(moved[None], moved[True])

    def test_options_are_named(self):
        for options, said in (
                ({"conect_timeout": 1.0}, "conect_timeout is no option of a "
                 "client; allowed: .*connect_timeout, .*tls"),
                ({"connect_timeout": "2"}, "connect_timeout is '2'; allowed: "
                 "a number"),
                ({"client_name": 2}, "client_name is 2; allowed: a str"),
                ({"copy_threads": 2**32 + 1}, "copy_threads is 4294967297; "
                 "allowed: a whole number of 32 bits"),
                ({"copy_threads": 1.5}, "copy_threads is 1.5; allowed: a whole"),
                ({"size": 8}, "size is no option"),
                ({"reserved": 1}, "reserved is no option"),
                ({"reserved3": 1}, "reserved3 is no option.*; allowed: "
                 "client_name, .*, tls$"),
                ({"reserved3": None}, "reserved3 is no option")):
            with self.assertRaisesRegex(TypeError, said):
                agg.Client(arrays(), "127.0.0.1:1", 0, **options)

    def test_help_has_every_option(self):
        for call in (agg.Client, agg.Observer):
            parameters = inspect.signature(call).parameters
            self.assertNotIn("options", parameters)
            for name, hint in typing.get_type_hints(ClientOptions).items():
                self.assertIs(parameters[name].kind,
                              inspect.Parameter.KEYWORD_ONLY)
                self.assertEqual(parameters[name].annotation, hint)
                self.assertRegex(call.__init__.__doc__, rf"\n +{name}: \w+")
            self.assertEqual(parameters["connect_timeout"].default, 30.0)
            self.assertIs(parameters["shared_memory"].default, True)
            self.assertEqual(typing.get_type_hints(call.__init__)["job"],
                             typing.Optional[str])

    def test_paths_may_be_paths(self):
        server = self.serve(workers=1, lr=1.0)
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder, "audit")
            with agg.Client(arrays(), server.address, 0,
                            audit_log=log) as client:
                client.step(arrays(1.0))
            self.assertTrue(log.read_text())

    def test_shared_memory_may_be_switched_off(self):
        for shares, expected in ((True, "shm"), (False, "unix")):
            client = self.lone_client(arrays(), lr=1.0, shared_memory=shares)
            self.assertEqual(client.job.transports, (expected,))

    def test_all_reduce_divides_the_loss_scale_out(self):
        server = self.serve(workers=2, optimizer="none")

        def work(rank):
            x = arrays()
            scale = 8.0 if rank else 2.0
            with agg.Client(x, server.address, rank) as client:
                result = client.all_reduce(
                    {"w": scale * np.full((2, 3), rank + 1.0),
                     "b": scale * np.ones(())}, loss_scale=scale)
                self.assertEqual(x["w"][0, 0], 0)  # not touched
                return result

        for result in self.team(2, work):
            np.testing.assert_array_equal(
                result["w"], np.full((2, 3), 1.5, np.float32))
            self.assertEqual(result["b"], 1)

    def test_parameters_that_differ_are_named(self):
        server = self.serve(workers=3, optimizer="none")

        def work(rank):
            x = arrays(1.0 + rank)
            with agg.Client(x, server.address, rank) as client:
                told = []
                for i in range(4):
                    client.all_reduce(arrays(1.0), parameters=list(x.values())
                                      if i < 3 or rank else None)
                    told.append(client.last.differing_ranks)
                    if i == 0 and rank == 1:
                        x["w"][1, 2] += 1.0  # another replica from here on
                    if i == 1:
                        x["w"] = np.asfortranarray(x["w"])  # the same numbers
                return told, x["b"].item()

        results = self.team(3, work)
        # Without rank 0's word nobody knows which of two is right.
        self.assertEqual([told for told, _ in results],
                         [[(), (1,), (1,), (1, 2)]] * 3)
        # They began with those of one.
        self.assertEqual(len({start for _, start in results}), 1)

    def test_who_joins_later_keeps_its_parameters(self):
        """The server has a gradient in place of them."""
        server = self.serve(workers=1, optimizer="none",
                            config={"max_workers": 2})
        with agg.Client(arrays(), server.address, 0) as first:
            first.all_reduce(arrays(5.0))
            joined = threading.Event()
            rounds = threading.Thread(target=lambda: [
                first.all_reduce(arrays(5.0)) for _ in iter(joined.is_set, True)
            ], daemon=True)
            rounds.start()
            x = arrays(3.0)
            with self.assertLogs("agg_server", "WARNING") as logs:
                second = agg.Client(x, server.address, 1)
            joined.set()
            second.close()  # else the last round waits for it
            rounds.join(WAIT)
        self.assertIn("has joined at version", "".join(logs.output))
        self.assertEqual(x["b"].item(), 3.0)

    def test_a_row_that_is_not_finite_is_left_out(self):
        server = self.serve(workers=2, optimizer="none")

        def work(rank):
            x = {"w": np.zeros(2, np.float32)}
            with agg.Client(x, server.address, rank) as client:
                result = client.all_reduce(
                    {"w": np.array([np.inf if rank else 1.0, 3.0])})
                skipped = client.all_reduce({"w": np.full(2, np.nan)})
                return result, skipped, client.last

        for rank, (result, skipped, last) in enumerate(self.team(2, work)):
            np.testing.assert_array_equal(result["w"], [1, 3], str(rank))
            self.assertIsNone(skipped)
            self.assertEqual(last.kind, "skipped")
            self.assertEqual(last.excluded_ranks, (0, 1))

    def test_optional_tensors_count_as_zero(self):
        x = arrays()
        client = self.lone_client(x, lr=1.0, optional=("b",))
        client.step({"w": np.ones((2, 3))})
        self.assertEqual((x["w"][0, 0], x["b"]), (-1, 0))
        with self.assertRaisesRegex(agg.ManifestError, '"w"'):
            client.step({"b": np.ones(())})

    def test_a_worker_without_a_batch_sits_out(self):
        server = self.serve(workers=2, lr=1.0)

        def work(rank):
            x = arrays()
            with agg.Client(x, server.address, rank) as client:
                outcome = client.sit_out() if rank else client.step(
                    {"w": np.full((2, 3), 2, np.float32), "b": np.float32(2)})
                return x["b"].item(), outcome.ranks

        self.assertEqual(self.team(2, work), [(-2.0, (0,))] * 2)

    def test_no_worker_sits_out_that_would_lose_what_it_has_changed(self):
        x = arrays()
        client = self.lone_client(x, lr=1.0, optimizer="add")
        x["b"] += 5  # its own change, which it has not sent yet
        with self.assertRaisesRegex(agg.ManifestError, '"add"; allowed'):
            client.sit_out()
        self.assertEqual(x["b"].item(), 5)

    def test_rows_that_are_left_out_are_said_once_by_rank(self):
        server = self.serve(workers=2, optimizer="none")

        def work(rank):
            x = {"w": np.zeros(2, np.float32)}
            with agg.Client(x, server.address, rank) as client:
                for i in range(4):
                    client.all_reduce({"w": np.full(
                        2, np.nan if rank and i else 1, np.float32)})

        with self.assertLogs("agg_server", "WARNING") as logs:
            self.team(2, work)
        heard = [line for line in logs.output if "left out" in line]
        self.assertEqual(len([line for line in heard if "round 1 has left out "
                              "the row of rank 1" in line]), 2, heard)
        self.assertEqual(len([line for line in heard if "3 of 4 rounds have "
                              "left out the row of rank 1" in line]), 2, heard)
        self.assertEqual(len(heard), 4)

    def test_an_observer_pulls(self):
        server = self.serve(workers=1, lr=1.0, shards=2)
        with self.assertRaises(agg.NotNow):
            agg.Observer(server.address)
        x = arrays(3.0)
        with agg.Client(x, server.address, 0) as client:
            with agg.Observer(server.address) as observer:
                self.assertEqual([s.name for s in observer.manifest],
                                 ["w", "b"])
                version, found = observer.pull()
                self.assertEqual(version, 0)
                np.testing.assert_array_equal(found["w"], x["w"])
                client.step(arrays(1.0))
                version, found = observer.pull(1)
                self.assertEqual((version, found["b"]), (1, 2))
                self.assertEqual(observer.latest_version(), 1)
                with self.assertRaises(agg.Error):
                    observer.pull(9)

    def test_mistakes_name_what_is_allowed(self):
        server = self.serve(workers=1, lr=1.0)
        x = arrays()
        for parameters in ({"w": np.zeros(3)}, {"w": x["w"].T},
                           {"w": [1.0]}):
            with self.assertRaisesRegex(agg.ManifestError, "float32"):
                agg.Client(parameters, server.address, 0)
        with self.assertRaisesRegex(agg.ManifestError, "manifest"):
            agg.Client({}, server.address, 0)
        with self.assertRaisesRegex(agg.ManifestError, "coordinator is None"):
            agg.Client(x, rank=0)
        with self.assertRaisesRegex(agg.ManifestError, "rank"):
            agg.Client(x, server.address)
        with self.assertRaisesRegex(agg.ManifestError, "host:port"):
            agg.Client(x, "nohost", 0)
        with self.assertRaisesRegex(TypeError, "patience"):
            agg.Client(x, server.address, 0, patience=3)
        with agg.Client(x, server.address, 0) as client:
            with self.assertRaisesRegex(agg.ManifestError, "shape"):
                client.step({"w": np.ones(6), "b": np.ones(())})
            with self.assertRaisesRegex(agg.ManifestError, '"v"'):
                client.step({"v": np.ones(6)})
            with self.assertRaisesRegex(agg.ManifestError, "loss is 'x'"):
                client.step(arrays(), loss="x")
            with self.assertRaisesRegex(ValueError, "examples is 0"):
                client.step(arrays(), examples=0)
            with self.assertRaisesRegex(agg.ManifestError, "all_reduce"):
                client.all_reduce(arrays())
            self.assertEqual(client.version, 0)
        with self.assertRaises(agg.Cancelled):
            client.step(arrays())

    def test_gradients_that_cannot_be_sent(self):
        x = arrays()
        client = self.lone_client(x, lr=1.0)
        for row, said in (
                (np.ones((2, 3), np.complex64), "complex64"),
                (np.ones((2, 3), np.int64), "int64"),
                (np.ones((2, 3), np.uint8), "uint8"),
                (np.ones((2, 3), bool), "bool"),
                (np.ones((2, 3), object), "object"),
                (np.full((2, 3), "1"), "<U1"),
                (np.ones(3), r"shape \(3,\)"), (1.0, r"shape \(\)"),
                (np.ones((3, 2)), r"shape \(3, 2\)"),
                (np.full((2, 3), 1e60), "float64.*1e.60.*loss_scale")):
            with self.assertRaisesRegex(agg.ManifestError, '"w".*' + said):
                client.step({"w": row, "b": np.float32(1)})
        self.assertEqual(client.version, 0)
        for row in (np.ones((2, 3), ">f4"), np.ones((3, 2), "f2").T,
                    np.ones((2, 6), np.float32)[:, ::2]):
            client.step({"w": row, "b": np.float32(1)})
        np.testing.assert_array_equal(x["w"], np.full((2, 3), -3))

    def test_wide_gradients_are_said_once(self):
        client = self.lone_client(arrays(), lr=1.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                client.step({"w": np.ones((2, 3)), "b": np.float32(1)})
        self.assertEqual([str(each.message) for each in caught], [
            'gradient "w" is float64, and is sent as float32'])
        self.assertEqual(caught[0].filename, __file__)

    def test_names_of_groups_and_of_optional_tensors(self):
        for options, said in (
                ({"groups": {"v": "g"}}, 'groups has "v".*allowed: w, b'),
                ({"optional": ("w", "v")}, 'optional has "v".*allowed: w, b'),
                ({"optional": "w"}, r'optional is "w"; allowed: .*\["w"\]'),
                ({"groups": "w"}, 'groups is "w"')):
            with self.assertRaisesRegex(agg.ManifestError, said):
                agg.Client(arrays(), "127.0.0.1:1", 0, **options)

    def test_a_client_leaves_where_no_thread_starts_any_more(self):
        """As in Python 3.12's atexit functions."""
        client, other = self.two_clients()
        with mock.patch.object(
                threading.Thread, "start", side_effect=RuntimeError(
                    "can't create new thread at interpreter shutdown")):
            client.close()
        # Who has left is not waited for.
        self.assertEqual(other.step(arrays(1.0)).ranks, (1,))

    def test_close_ends_a_call_of_another_thread(self):
        client, other = self.two_clients()
        waits, ended = threading.Event(), []
        drain = client._session._drain_events

        def told_drain():
            waits.set()  # it looks up from its wait
            drain()

        def wait():
            try:
                ended.append(client.step(arrays(1.0)))
            except agg.Cancelled as error:
                ended.append(error)

        with mock.patch.object(client._session, "_drain_events", told_drain):
            thread = threading.Thread(target=wait, daemon=True)
            thread.start()
            self.assertTrue(waits.wait(WAIT))
            client.close()
            thread.join(WAIT)
        # Worker 1 pushes nothing: nothing else can have ended the call.
        self.assertEqual([type(end) for end in ended], [agg.Cancelled])
        self.assertEqual(other.latest_version(), 0)

    def test_threads_push_rows_of_their_own(self):
        x = arrays()
        client = self.lone_client(x, lr=1.0)
        makes_round = client._session.round
        second_came, first_over = threading.Event(), threading.Event()
        thread = threading.Thread(
            target=lambda: client.step(arrays(10.0)), daemon=True)

        def round_after_the_other_came(*arguments):
            if threading.current_thread() is thread:
                second_came.set()
                first_over.wait(WAIT)
            else:
                thread.start()
                self.assertTrue(second_came.wait(WAIT))
            return makes_round(*arguments)

        with mock.patch.object(client._session, "round",
                               round_after_the_other_came):
            client.step(arrays(1.0))
            self.assertEqual(x["b"], -1)
            first_over.set()
            thread.join(WAIT)
        self.assertEqual(x["b"], -11)

    def test_numbers_beside_the_model(self):
        clients = self.two_clients()
        found = self.team(2, lambda rank: clients[rank].reduce(
            {"accuracy": 0.5 + rank, "rows": np.full((2, 2), float(rank))},
            examples=[1, 3][rank]))
        for each in found:
            self.assertEqual(each["accuracy"], 1.25)
            self.assertIs(type(each["accuracy"]), float)
            self.assertEqual(each["rows"].tolist(), [[0.75] * 2] * 2)
        for each in self.team(2, lambda rank: clients[rank].reduce(
                {"n": np.array([rank, 2])}, op="sum")):
            self.assertEqual((each["n"].dtype, each["n"].tolist()),
                             (np.int64, [1, 4]))
        self.assertEqual(clients[0].reduced_ranks, (0, 1))
        self.assertEqual(clients[0].version, 0)
        with self.assertRaisesRegex(agg.ManifestError, '"n".*integers'):
            clients[0].reduce({"n": np.array([1])})

    def test_another_manifest_is_refused(self):
        server = self.serve(workers=2, lr=1.0)
        with agg.Client(arrays(), server.address, 0):
            with self.assertRaisesRegex(agg.ManifestError, "INVALID|tensor"):
                agg.Client({"w": np.zeros(3, np.float32)}, server.address, 1)

    def test_a_second_client_of_the_rank_ends_the_first(self):
        server = self.serve(workers=1, lr=1.0)
        first = agg.Client(arrays(), server.address, 0)
        self.addCleanup(first.close)
        with agg.Client(arrays(), server.address, 0) as second:
            with self.assertRaises(agg.Superseded) as caught:
                while True:  # until the event is there
                    first.step(arrays(1.0))
            self.assertEqual(caught.exception.code, "ABORTED")
            self.assertFalse(caught.exception.retryable)
            self.assertTrue(second.step(arrays(1.0)).applied)

    def test_a_finished_job_has_no_next_round(self):
        server = self.serve(workers=1, lr=1.0, config={"max_rounds": 2})
        with agg.Client(arrays(), server.address, 0) as client:
            rounds = 0
            while not client.finished:
                outcome = client.step(arrays(1.0))
                rounds += 1
            self.assertEqual((rounds, outcome.finished), (2, True))
            with self.assertRaises(agg.JobFinished):
                client.step(arrays(1.0))
            self.assertEqual(client.pull(), 2)
        with self.assertRaises(agg.JobFinished):
            agg.Client(arrays(), server.address, 0).step(arrays(1.0))


if __name__ == "__main__":
    unittest.main()
