"""Steps that are not plain forward, backward and update, as unusual_steps.h has them in C++.

Where Python's DistributedDataParallel leaves gradients that are not averaged, without a word, the judge is the sum of the averages of
each backward, computed here by hand.
"""

import contextlib

import known
import torch
import torch.distributed as dist

def unusual_step(training, kind):
    training.optimizer.zero_grad()
    computed = known.is_computed(training.case)
    with training.model.no_sync() if computed else contextlib.nullcontext():
        globals()[kind](training)
    if computed:
        for parameter in training.parameters:
            if parameter.grad is not None:
                parameter.grad /= training.ranks
                dist.all_reduce(parameter.grad)


def next_loss(training):
    from conformance_twin import draw_batch

    case = training.case
    x, y = draw_batch(case, 1_000_003 * training.micro + 17 * training.rank + case["seed"], case["data"]["batch"])
    name = f"step{training.step}/loss{training.micro}"
    loss = training.loss(x, y)
    training.records.tensor(name, loss)
    training.last_loss = loss
    return loss


def trained(training):
    return [parameter for parameter in training.parameters if parameter.requires_grad]


def two_gradients(training):
    next_loss(training).backward()
    first = [parameter.grad for parameter in trained(training)]
    training.optimizer.zero_grad()
    next_loss(training).backward()
    return first, [parameter.grad for parameter in trained(training)]


def kept_gradient(training):
    first, second = two_gradients(training)
    for parameter, one, other in zip(trained(training), first, second):
        parameter.grad = one * 0.3 + other * 0.7


def pcgrad(training):
    """Yu et al., "Gradient Surgery for Multi-Task Learning", NeurIPS 2020, by parameter."""
    first, second = two_gradients(training)
    training.optimizer.zero_grad()
    for parameter, one, other in zip(trained(training), first, second):
        product = (one * other).sum()
        parameter.grad = one + other - other * (product.clamp(max=0) / (other.square().sum() + 1e-12))


def retain_graph(training):
    loss = next_loss(training)
    loss.backward(retain_graph=True)
    loss.backward()


def forwards_then_backwards(training):
    losses = [next_loss(training) for _ in range(3)]
    for loss in losses:
        loss.backward()


def static_no_sync(training):
    for _ in range(2):
        next_loss(training).backward()


def gradient_penalty(training):
    loss = next_loss(training)
    for gradient in torch.autograd.grad(loss, trained(training), create_graph=True):
        loss = loss + gradient.square().sum() * 0.1
    loss.backward()


def create_graph(training):
    next_loss(training).backward(create_graph=True)
    for parameter in trained(training):
        parameter.grad = parameter.grad.detach()
