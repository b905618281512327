"""Results of rounds, to the bit, against fractions."""

import re

import numpy

import arithmetic
from client import round_of
from foreign_test_case import ForeignTestCase
from server_process import WAIT

SHAPES = {"w": [5, 3], "b": [5], "c": [2, 2], "s": []}
NO_OPTIMIZER = 'optimizer { kind: "none" }\n'


def random_rows(num_workers, seed):
    """Per worker a flat array for each tensor, of few bits."""
    generator = numpy.random.default_rng(seed)
    return [[numpy.float32(generator.integers(-64, 64, size) / 8)
             for size in (15, 5, 4, 1)] for _ in range(num_workers)]


class ResultsTest(ForeignTestCase):

    def assert_rounded(self, got, wanted):
        """Equal but for what doubles lose where terms of up to 8 cancel."""
        for one, other in zip(got, wanted):
            numpy.testing.assert_allclose(one, other, rtol=2 ** -24,
                                          atol=8 * 3 * 2 ** -52)

    def check_rule(self, rule, combine, num_workers, num_shards):
        config = f'combination {{ rule: "{rule}" }}\n' + NO_OPTIMIZER
        _, workers = self.seeded(num_workers, config, num_shards, SHAPES)
        for round in range(2):
            rows = random_rows(num_workers, 7 * num_shards + round)
            # From the last rank to the first: arrival does not matter.
            outcomes = round_of(workers[::-1], rows[::-1], round)
            self.assertEqual(list(outcomes[0].ranks), list(range(num_workers)))
            wanted = [combine([row[tensor] for row in rows])
                      for tensor in range(len(SHAPES))]
            got = workers[round].pull(round + 1)
            if rule == "mean" and num_workers == 3:
                self.assert_rounded(got, wanted)  # 1/3 is no double.
            else:
                self.assert_tensors(got, wanted)
            norm = numpy.sqrt(sum(float(x) ** 2 for t in wanted for x in t))
            self.assertAlmostEqual(outcomes[0].combined_norm / norm, 1, 6)

    def check_step(self, num_shards):
        """sgd: x -= rate * combined; small binary fractions stay exact."""
        config = ('combination { rule: "mean" } optimizer { kind: "sgd" }\n'
                  "learning_rate { rate: 0.25 }\n")
        seed = random_rows(1, 99)[0]
        _, workers = self.seeded(2, config, num_shards, SHAPES, seed)
        parameters = seed
        for round in range(3):
            rows = random_rows(2, round)
            outcome = round_of(workers, rows, round)[1]
            self.assertEqual(outcome.learning_rate, 0.25)
            parameters = [
                x - numpy.float32(0.25) * arithmetic.mean([a, b])
                for x, a, b in zip(parameters, *rows)]
            self.assert_tensors(workers[1].pull(round + 1), parameters)


def add_cases():
    """test_RULE_of_P_on_K_shards, and so on."""
    rules = {"sum": arithmetic.summed, "mean": arithmetic.mean,
             "adasum": arithmetic.adasum}
    for num_shards in (1, 2, 3):
        for rule, combine in rules.items():
            for num_workers in (2, 3):
                def test(self, case=(rule, combine, num_workers, num_shards)):
                    self.check_rule(*case)
                setattr(ResultsTest, f"test_{rule}_of_{num_workers}_workers_"
                        f"on_{num_shards}_shards", test)

        def test_step(self, num_shards=num_shards):
            self.check_step(num_shards)
        setattr(ResultsTest, f"test_sgd_on_{num_shards}_shards", test_step)


add_cases()


class OddRowsTest(ForeignTestCase):

    def test_a_row_that_is_not_finite_is_left_out(self):
        rows = random_rows(2, 1)
        rows[0][2][3] = numpy.nan
        _, workers = self.seeded(2, 'combination { rule: "mean" }'
                                 + NO_OPTIMIZER, 2, SHAPES)
        outcomes = round_of(workers, rows)
        self.assertEqual(list(outcomes[0].excluded_ranks), [0])
        self.assertEqual([o.included for o in outcomes], [False, True])
        self.assert_tensors(workers[0].pull(1), rows[1])

    def test_a_worker_whose_rows_are_never_finite_fills_no_log(self):
        num_rounds = 30
        job, workers = self.seeded(2, NO_OPTIMIZER, 1, SHAPES)
        for round in range(num_rounds):
            rows = random_rows(2, round)
            rows[0][2][3] = numpy.nan
            round_of(workers, rows, round)
        job.shards[0].terminate()
        job.shards[0].process.wait(WAIT)
        log = job.shards[0].log()
        # The first one and the last one, unless a minute lies between them.
        lines = re.findall(
            r" W .*\] round (\d+): excluded non-finite rows of ranks 0", log)
        self.assertEqual((lines[0], lines[-1]), ("0", str(num_rounds - 1)), log)
        self.assertLess(len(lines), num_rounds // 2, log)
        held = re.findall(r"of ranks 0.* \((\d+) more like it held back\)", log)
        self.assertEqual(len(lines) + sum(map(int, held)), num_rounds, log)

    def test_a_round_of_such_rows_is_skipped(self):
        rows = random_rows(1, 1)
        rows[0][0][0] = numpy.inf
        seed = random_rows(1, 2)[0]
        _, workers = self.seeded(1, NO_OPTIMIZER, 2, SHAPES, seed)
        outcome = round_of(workers, rows)[0]
        self.assertEqual(outcome.kind, type(outcome).SKIPPED)
        self.assertEqual(outcome.version, 1)
        self.assertNotEqual(outcome.message, "")
        self.assert_tensors(workers[0].pull(1), seed)

    def test_adasum_of_orthogonal_parallel_and_zero_rows(self):
        config = 'combination { rule: "adasum" }' + NO_OPTIMIZER
        _, workers = self.seeded(2, config, tensors={
            "orthogonal": [2], "parallel": [2], "opposite": [2], "zero": [2]})
        arrays = [[[3, 0], [1, 2], [4, 1], [0, 0]],
                  [[0, 5], [3, 6], [-4, -1], [7, 9]]]
        round_of(workers, [[numpy.float32(x) for x in row] for row in arrays])
        self.assert_tensors(workers[0].pull(1),
                            [[3, 5], [2, 4], [0, 0], [7, 9]])
