"""Train a classifier of handwritten digits twice, in float32 and under bfloat16 autocast, and look at its program.

    python examples/train_digits.py        (or: make demo)

The whole step of training is one compiled function: forward, backward, and SGD with momentum. Writes out/graph.html.
Exits with an error unless both classifiers name at least 97 % of the test digits.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import lucidgraph as lg

SIZES = (64, 256, 128, 10)
EPOCHS = 24
BATCH = 64
RATE = 0.1
MOMENTUM = 0.9
NOISE = 0.2
WANTED = 0.97

Params = list[dict[str, Any]]


# -- the model: plain functions of arrays


def init(seed: int) -> Params:
    """Weights of each layer, normal with the variance that keeps relu's signal level."""
    rng = np.random.default_rng(seed)
    return [
        {"w": lg.asarray(rng.normal(0, np.sqrt(2 / m), (m, n)), dtype=lg.float32), "b": lg.zeros(n, dtype=lg.float32)}
        for m, n in pairwise(SIZES)
    ]


def logits(params: Params, x: Any) -> Any:
    *hidden, last = params
    for layer in hidden:
        x = lg.nn.relu(x @ layer["w"] + layer["b"])
    return x @ last["w"] + last["b"]


def loss(params: Params, x: Any, labels: Any) -> Any:
    return lg.mean(lg.nn.cross_entropy(logits(params, x), labels))


@lg.compile
def step(params: Params, velocity: Params, x: Any, labels: Any, rate: float) -> tuple[Params, Params, Any]:
    """One step of SGD with momentum: new parameters, new velocity, the loss before the step."""
    value, slope = lg.value_and_grad(loss)(params, x, labels)
    velocity = [{k: MOMENTUM * v[k] + g[k] for k in v} for v, g in zip(velocity, slope, strict=True)]
    params = [{k: p[k] - rate * v[k] for k in p} for p, v in zip(params, velocity, strict=True)]
    return params, velocity, value


@lg.compile
def count_right(params: Params, x: Any, labels: Any) -> Any:
    return lg.sum(lg.argmax(logits(params, x), axis=1) == labels)


# -- training


def batches(x: Any, labels: Any, rng: Any) -> Any:
    """Shuffled batches with noise on the pixels, so that no digit is learned by heart; the last batch is smaller."""
    order = rng.permutation(len(x))
    for start in range(0, len(x), BATCH):
        chosen = order[start : start + BATCH]
        noise = rng.normal(0, NOISE, (len(chosen), x.shape[1]))
        yield (x[chosen] + noise).astype(np.float32), labels[chosen]


def train(data: Any) -> tuple[Params, float]:
    """The trained parameters, and the fraction of test digits named right. Prints a line per epoch."""
    x_train, x_test, y_train, y_test = data
    rng = np.random.default_rng(0)
    params = init(seed=0)
    velocity: Params = [{k: v * 0 for k, v in layer.items()} for layer in params]
    accuracy = 0.0
    for epoch in range(EPOCHS):
        began = time.perf_counter()
        rate = RATE * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
        total = 0.0
        for x, labels in batches(x_train, y_train, rng):
            params, velocity, value = step(params, velocity, x, labels, float(rate))
            total += float(value) * len(x)
        accuracy = float(count_right(params, x_test, y_test)) / len(x_test)
        print(
            f"  epoch {epoch + 1:2}/{EPOCHS}  loss {total / len(x_train):.4f}  test accuracy {accuracy:.1%}"
            f"  {time.perf_counter() - began:.2f} s",
            flush=True,
        )
    return params, accuracy


def main() -> int:
    digits = load_digits()
    x = (digits.data / 16).astype(np.float32)
    labels = digits.target.astype(np.int32)
    data = train_test_split(x, labels, test_size=0.2, random_state=0, stratify=labels)
    print(f"{len(data[0])} digits to learn from, {len(data[1])} to test on; backend {lg.backends()['auto']}")

    accuracies = {}
    for name, enabled in (("float32", False), ("bfloat16 autocast", True)):
        print(f"\n{name}")
        with lg.autocast(lg.bfloat16, enabled=enabled):
            params, accuracies[name] = train(data)

    print("\nCounting right answers: booleans are summed in 64 bits, and the graph says so")
    print(lg.trace(lambda right: lg.sum(right), np.array([True, False, True])))

    print("\nWhat the backward pass of the loss keeps alive")
    print(lg.trace(loss, params, data[0][:BATCH], data[2][:BATCH]).residuals())

    print("\nWhy the step was traced, each time")
    print(step.explain())

    page = Path("out") / "graph.html"
    page.parent.mkdir(exist_ok=True)
    velocity = [{k: v * 0 for k, v in layer.items()} for layer in params]
    step.trace(params, velocity, data[0][:BATCH], data[2][:BATCH], RATE).to_html(page)
    print(f"\nThe whole step of training, as a page: {page}")

    for name, accuracy in accuracies.items():
        print(f"{name}: {accuracy:.1%} of the test digits are named right")
    if min(accuracies.values()) < WANTED:
        print(f"that is less than {WANTED:.0%}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
