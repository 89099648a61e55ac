"""What LibTorch's own C++ computes in another order than Python's PyTorch, in Python: so these have a judge of every bit too."""

import contextlib

import torch


@contextlib.contextmanager
def averages_by_mul_and_add(optimizer):
    """While it lasts the optimizer's lerp_() is the mul_() and add_() of LibTorch's Adam, AdamW and centered RMSprop."""
    group = optimizer.param_groups[0]
    decay = group["betas"][0] if "betas" in group else group["alpha"]
    lerp = torch.Tensor.lerp_
    torch.Tensor.lerp_ = lambda self, end, weight: self.mul_(decay).add_(end, alpha=1 - decay)
    try:
        yield
    finally:
        torch.Tensor.lerp_ = lerp


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type):
    """torch::nn::utils::clip_grad_norm_(), which divides by the norm where Python multiplies by its reciprocal."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if norm_type == float("inf"):
        norms = [gradient.abs().max() for gradient in gradients]
        total = norms[0] if len(norms) == 1 else torch.stack(norms).max()
    else:
        norms = [torch.ops.aten.norm(gradient, norm_type) for gradient in gradients]
        total = norms[0] if len(norms) == 1 else torch.ops.aten.norm(torch.stack(norms), norm_type)
    below = total + 1e-6
    factor = torch.empty((), dtype=below.dtype).fill_(max_norm).div_(below).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)
    return total
