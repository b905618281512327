"""Writes torch_optimizers.json: what PyTorch's optimizers make of some
gradients. PyTorch is not part of the project's set-up; to make the file again:

    python3 -m venv /tmp/torch
    /tmp/torch/bin/pip install torch==2.0.1
    /tmp/torch/bin/python tests/golden/make_torch_optimizers.py

Everything is float32 on the CPU, with foreach=False: torch.optim's
single-tensor forms, which are those that its documentation gives; it says so
where foreach=True gives other bits (2.0.1: nowhere). The hyperparameters are
float32 values, too, as agg_server's are. The inputs come from a linear
congruential generator, not from torch's, so that only the results depend on
the version.
"""

import json
import pathlib
import struct

import torch

NUM_STEPS = 5
NUM_RANDOM = 224
# Zeros; subnormal numbers; squares that underflow, and some that almost
# overflow.
EXTREMES = [0.0, -0.0, 1e-45, -1e-40, 1e-30, -1e-20, 1e-10, 1.0, -1e5, 1e9,
            -1e15, 1e18]
CASES = [
    ("sgd", "SGD", {"lr": 0.1}),
    ("sgd", "SGD", {"lr": 0.1, "weight_decay": 0.01}),
    ("sgd", "SGD", {"lr": 0.1, "momentum": 0.9}),
    ("sgd", "SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    ("sgd", "SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("sgd", "SGD", {"lr": 0.03, "momentum": 0.7, "nesterov": True,
                    "weight_decay": 0.3}),
    ("adam", "Adam", {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8}),
    ("adam", "Adam", {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3,
                      "weight_decay": 0.01}),
    ("adamw", "AdamW", {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8,
                        "weight_decay": 0.01}),
    ("adamw", "AdamW", {"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-6,
                        "weight_decay": 0.3}),
    ("adagrad", "Adagrad", {"lr": 0.1, "eps": 1e-10}),
    ("adagrad", "Adagrad", {"lr": 0.1, "eps": 1e-10,
                            "initial_accumulator_value": 0.1}),
    ("adagrad", "Adagrad", {"lr": 0.01, "eps": 1e-5, "weight_decay": 0.1,
                            "initial_accumulator_value": 2.0}),
]


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def text(value):
    """The shortest decimal number that is this float32 and no other."""
    for digits in range(1, 10):
        decimal = f"{value:.{digits}g}"
        if struct.pack("f", float(decimal)) == struct.pack("f", value):
            return decimal
    raise ValueError(value)


class Generator:
    """Numerical Recipes' generator, and values of all magnitudes from it."""

    def __init__(self, seed):
        self.state = seed

    def uniform(self):
        self.state = (1664525 * self.state + 1013904223) % 2**32
        return self.state / 2**32

    def value(self):
        sign = 1.0 if self.uniform() < 0.5 else -1.0
        return float32(sign * 10.0 ** (9.0 * self.uniform() - 6.0))


def make_inputs():
    """Parameters, and the gradients of each step."""
    generator = Generator(2020)
    parameters = [generator.value() for _ in range(NUM_RANDOM)]
    gradients = [[generator.value() for _ in range(NUM_RANDOM)]
                 for _ in range(NUM_STEPS)]
    # Every extreme gradient meets a zero, a small and a large parameter.
    for parameter in (0.0, 1e-30, -3.0):
        for extreme in EXTREMES:
            parameters.append(float32(parameter))
            for step, gradient in enumerate(gradients):
                # The same one, the opposite, nothing, the same, noise.
                gradient.append([float32(extreme), -float32(extreme), 0.0,
                                 float32(extreme), generator.value()][step])
    return parameters, gradients


def run(optimizer, options, parameters, gradients, foreach=False):
    """The parameters after each step."""
    tensor = torch.tensor(parameters, dtype=torch.float32)
    tensor.requires_grad_()
    stepper = getattr(torch.optim, optimizer)([tensor], foreach=foreach,
                                              **options)
    results = []
    for gradient in gradients:
        tensor.grad = torch.tensor(gradient, dtype=torch.float32)
        stepper.step()
        results.append(tensor.detach().tolist())
    return results


def numbers(values):
    return "[" + ",".join(text(value) for value in values) + "]"


def rows(matrix):
    return "[\n  " + ",\n  ".join(numbers(row) for row in matrix) + "]"


def main():
    torch.set_num_threads(1)
    parameters, gradients = make_inputs()
    cases = []
    for kind, optimizer, options in CASES:
        rounded = {
            name: value if isinstance(value, bool) else
            tuple(map(float32, value)) if isinstance(value, tuple) else
            float32(value) for name, value in options.items()}
        results = run(optimizer, rounded, parameters, gradients)
        if results != run(optimizer, rounded, parameters, gradients, True):
            print(f"{optimizer} {options}: foreach=True differs")
        cases.append('{"optimizer":"%s","options":%s,"results":%s}' %
                     (kind, json.dumps(options), rows(results)))
    path = pathlib.Path(__file__).with_name("torch_optimizers.json")
    path.write_text(
        '{"torch":"%s",\n"parameters":%s,\n"gradients":%s,\n"cases":[\n%s\n]}\n'
        % (torch.__version__, numbers(parameters), rows(gradients),
           ",\n".join(cases)))
    json.loads(path.read_text())


if __name__ == "__main__":
    main()
