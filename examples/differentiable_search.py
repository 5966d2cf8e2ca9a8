"""Searches a network by gradient descent, with the expected latency in the loss (ProxylessNAS; Cai et al., 2019).

    python examples/differentiable_search.py --system NAME --weight 1.0

The latency of a network is the sum of its entries in a latency table. The expected latency of a network with random
choices is the sum of all entries times their probabilities, and therefore has a gradient. The supernet learns to
classify synthetic patterns, so that the example needs no data set. Finally the most probable network is built,
predicted as a whole model, and measured on this host.
"""

import argparse
import time

import torch
from mobile_space import CLASSES, IMAGE, MobileNet, fixed_layers, print_found, space
from torch.nn import functional

from costmodel import CostModel

_TAU = 1.0  # temperature of the random choices


def patterns(count: int, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Draws noisy stripe patterns of `CLASSES` directions and widths; returns the images and their classes."""
    kinds = torch.randint(CLASSES, (count,), generator=random)
    angle = kinds % 5 * (torch.pi / 5)
    width = torch.where(kinds < 5, 4.0, 9.0)
    along, across = torch.meshgrid(torch.arange(IMAGE), torch.arange(IMAGE), indexing="ij")
    phase = 6.28 * torch.rand(count, generator=random)
    turned = torch.cos(angle)[:, None, None] * along + torch.sin(angle)[:, None, None] * across
    stripes = torch.sin(turned / width[:, None, None] * 6.28 + phase[:, None, None])
    noise = torch.randn(count, 3, IMAGE, IMAGE, generator=random)
    return stripes[:, None] + noise, kinds


def main() -> None:
    """Searches, then compares the prediction and the measurement of the resulting network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--system", default=None, help="a trained system; by default this host, with one thread")
    parser.add_argument("--weight", type=float, default=1.0, help="weight of the latency (in milliseconds) in the loss")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--batch", type=int, default=16)
    given = parser.parse_args()
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(0)

    cost_model = CostModel.load(given.system)
    start = time.perf_counter()
    table = cost_model.latency_table(space(), fixed=fixed_layers())
    entries = sum(map(len, table.choices))
    print(f"a table of {entries} entries for {table.system} in {time.perf_counter() - start:.1f} s")
    costs_ms = [
        torch.tensor(row[: len(choices)] / 1e3, dtype=torch.float32)
        for row, choices in zip(table.latency_us, table.choices, strict=True)
    ]

    supernet = MobileNet(table.choices)
    logits = [torch.zeros(len(choices), requires_grad=True) for choices in table.choices]
    weights = torch.optim.Adam(supernet.parameters(), 3e-3)
    choices = torch.optim.Adam(logits, 0.1)
    for step in range(given.steps):
        images, kinds = patterns(given.batch, random)
        # Straight-through: a hard choice in the forward pass, the gradient of the soft one in the backward pass.
        shares = [functional.gumbel_softmax(of_block, _TAU, hard=True) for of_block in logits]
        error = functional.cross_entropy(supernet(images, shares), kinds)
        expected_ms = table.fixed_us / 1e3 + sum(
            (functional.softmax(of_block, 0) * costs).sum() for of_block, costs in zip(logits, costs_ms, strict=True)
        )
        loss = error + given.weight * expected_ms
        weights.zero_grad()
        choices.zero_grad()
        loss.backward()
        weights.step()
        choices.step()
        if step % max(1, given.steps // 5) == 0 or step == given.steps - 1:
            print(f"step {step:4d}   cross entropy {error.item():.3f}   expected latency {expected_ms.item():.3f} ms")

    picks = [int(of_block.argmax()) for of_block in logits]
    names = [of_block[pick] for of_block, pick in zip(table.choices, picks, strict=True)]
    print(f"found {' '.join(names)}")
    print_found(cost_model, names, table.networks_us(torch.tensor([picks]).numpy())[0], "the table")


if __name__ == "__main__":
    main()
