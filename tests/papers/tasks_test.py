"""The gradients of the tasks, by finite differences; their data and scores."""

from __future__ import annotations

import unittest
from typing import Any

import numpy as np

from tests.papers import kjv, regression, tasks, transformer, word2vec
from tests.papers.description import Run

_STEP = 1e-2


def _run(task: str, ranks: int = 3, batch: int = 2, **fields: Any) -> Run:
    return Run(task=task, ranks=ranks, seed=5, batch=batch, rounds=4,
               learning_rate={"rate": .1}, **fields)


def _moved(parameters: dict[str, np.ndarray], name: str, where: Any,
           by: float) -> dict[str, np.ndarray]:
    array = parameters[name].copy()
    array[where] += by
    return {**parameters, name: array}


class Case(unittest.TestCase):
    """What all tasks owe."""

    def check(self, run: Run, tolerance: float, pairs_of_sum: int = 1) -> None:
        """Largest elements of each tensor's gradient, against differences of
        the losses, for each rank. A new task sees the same batch."""
        task = tasks.make(run.task, run)
        parameters = self.start(task, run)
        ranks = range(run.ranks)
        rows, losses = task.gradients(parameters, ranks, 0)
        self.assertEqual(list(rows), list(parameters))
        self.assertEqual(len(losses), run.ranks)
        for name, array in parameters.items():
            self.assertEqual(rows[name].shape, (run.ranks, *array.shape))
            self.assertEqual(rows[name].dtype, np.float32)
            for rank in ranks:
                row = rows[name][rank]
                where = np.unravel_index(np.abs(row).argmax(), row.shape)
                up, down = (
                    tasks.make(run.task, run).gradients(
                        _moved(parameters, name, where, by), ranks, 0)[1][rank]
                    for by in (_STEP, -_STEP))
                slope = pairs_of_sum * (up - down) / (2 * _STEP)
                self.assertAlmostEqual(
                    float(row[where]), slope,
                    delta=tolerance * max(1.0, abs(slope)),
                    msg=f"{name} of rank {rank}")

    def start(self, task: tasks.Task, run: Run) -> dict[str, np.ndarray]:
        """Away from zeros, which hide gradients."""
        random = np.random.default_rng(1)
        return {name: (array + 0.1 * random.standard_normal(array.shape))
                .astype(np.float32)
                for name, array in task.initial(run.seed).items()}


    def check_streams(self, run: Run) -> None:
        """A rank's batches are its own, and do not depend on the others'."""
        task = tasks.make(run.task, run)
        parameters = self.start(task, run)
        alone = tasks.make(run.task, run)
        for number in range(3):
            rows, losses = task.gradients(parameters, range(run.ranks), number)
            mine, my_losses = alone.gradients(parameters, [1], number)
            self.assertAlmostEqual(losses[1], my_losses[0], places=4)
            self.assertNotEqual(losses[0], losses[1])
            for name, array in mine.items():
                scale = float(np.abs(array).max())
                np.testing.assert_allclose(rows[name][1], array[0],
                                           atol=1e-5 * scale)


class RegressionTest(Case):
    def test_gradients(self) -> None:
        # Losses are some thousands, of float32 products.
        self.check(_run("regression"), 2e-3)
        self.check_streams(_run("regression"))

    def test_score_is_the_mean_loss_of_many_examples(self) -> None:
        task = regression.Regression(_run("regression", 1, 20000))
        parameters = {"weights": np.linspace(-1, 1.5, 1000, dtype=np.float32)}
        _, losses = task.gradients(parameters, [0], 0)
        self.assertAlmostEqual(losses[0] / task.score(parameters, "test"), 1,
                               delta=.02)

    def test_oracle_step_is_the_nearest_point_to_zero(self) -> None:
        task = regression.Regression(_run("regression"))
        start = task.initial(0)
        along = {"weights": start["weights"] + 1}
        rate = task.oracle_rate(start, along)
        left = start["weights"] - rate * along["weights"]
        self.assertAlmostEqual(float(left @ along["weights"]), 0, delta=1e-1)
        self.assertEqual(
            task.oracle_rate(start, {"weights": np.zeros(1000)}), 0)

    def test_noise_is_of_the_first_ranks(self) -> None:
        parameters = {"weights": np.zeros(1000, np.float32)}
        for noisy, expected in ((1, [True, False]), (0, [True, True])):
            task = regression.Regression(_run(
                "regression", 2, random_labels=noisy, label_noise=3))
            losses = task.gradients(parameters, [0, 1], 0)[1]
            self.assertEqual([loss > 0 for loss in losses], expected)


class TransformerTest(Case):
    def test_gradients(self) -> None:
        self.check(_run("kjv_transformer"), 5e-3)
        self.check_streams(_run("kjv_transformer"))

    def test_looks_at_no_character_that_follows(self) -> None:
        task = transformer.Transformer(_run("kjv_transformer"))
        tensors = transformer.tensors_of(task.initial(0))
        one = transformer.sequences_of(np.arange(1, 65, dtype=np.uint8) % 60)
        two = one.clone()
        two[0, 40] = 3
        first, second = (transformer.logits_of(tensors, sequences)
                         for sequences in (one, two))
        self.assertTrue(first[:40].equal(second[:40]))
        self.assertFalse(first[40:].equal(second[40:]))

    def test_size_and_first_score(self) -> None:
        task = transformer.Transformer(_run("kjv_transformer"))
        start = task.initial(0)
        self.assertEqual(sum(array.size for array in start.values()), 112448)
        # Not far from a guess among all characters.
        score = task.score(start, "validation")
        self.assertGreater(score, np.log(64) - .5)
        self.assertLess(score, np.log(64) + 1.5)


class Word2vecTest(Case):
    def test_gradients(self) -> None:
        # A gradient is of the sum over the batch, a loss is a mean.
        self.check(_run("kjv_word2vec", batch=4), 2e-3, pairs_of_sum=4)
        self.check_streams(_run("kjv_word2vec"))

    def test_rows_of_a_former_batch_are_cleared(self) -> None:
        run = _run("kjv_word2vec")
        task, other = (tasks.make(run.task, run) for _ in range(2))
        parameters = self.start(task, run)
        task.gradients(parameters, range(3), 0)
        other.gradients(self.start(task, run), range(3), 0)
        second = task.gradients(parameters, range(3), 1)[0]
        for name, rows in second.items():
            touched = (rows != 0).any(2).sum(1)
            most = run.batch * (1 if name == "centres" else 6)
            self.assertLessEqual(int(touched.max()), most, name)

    def test_an_untrained_model_guesses(self) -> None:
        task = word2vec.Word2vec(_run("kjv_word2vec"))
        self.assertAlmostEqual(task.score(task.initial(0), "test"),
                               6 * np.log(2), places=3)


class KjvTest(unittest.TestCase):
    def test_verses(self) -> None:
        verses = kjv.verses()
        self.assertEqual(len(verses), 31102)
        self.assertEqual(verses[0], "In the beginning God created the heaven "
                         "and the earth.")
        self.assertEqual(verses[-1], "The grace of our Lord Jesus Christ be "
                         "with you all. Amen.")

    def test_parts_do_not_overlap(self) -> None:
        parts, symbols = kjv.characters()
        self.assertEqual(sum(map(len, parts.values())), kjv.CHARACTERS)
        text = "".join(symbols[i] for i in parts["train"][:30])
        self.assertEqual(text, "In the beginning God created t")
        words, counts = kjv.words()
        self.assertEqual(len(counts), 5278)
        self.assertEqual(sum(map(len, words.values())), 778638)
        self.assertEqual(len(words["test"]), 9 * 2000)

    def test_pairs_are_neighbours(self) -> None:
        found = kjv.pairs(np.arange(10, 20), 2)
        distances = np.abs(found[:, 0] - found[:, 1])
        self.assertEqual(sorted(distances.tolist()), 18 * [1] + 16 * [2])
        self.assertEqual(len({tuple(pair) for pair in found.tolist()}), 34)

    def test_frequent_words_are_thinned(self) -> None:
        counts = np.array([900, 99, 1]) * 1000
        stream = np.repeat([0, 1, 2], counts)
        left = np.bincount(kjv.thinned(stream, counts,
                                       np.random.default_rng(0)))
        # sqrt(1 / 900) + 1 / 900 of the first; the last one's share is 1e-3.
        for word, share in ((0, .03444), (1, .1106), (2, 1)):
            self.assertAlmostEqual(left[word] / counts[word], share,
                                   delta=.02 * share)


if __name__ == "__main__":
    unittest.main()
