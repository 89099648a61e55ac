"""Lamb and Lion in torch's operators, as references: torch has neither, and apex needs a GPU."""

import torch
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0, maximize=False):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad = -p.grad if group["maximize"] else p.grad
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                m = state["exp_avg"]
                if group["weight_decay"] != 0:
                    kept = 1 - group["lr"] * group["weight_decay"]
                    # As a number: a tensor of float64 would make a parameter of one element compute in float64.
                    p.mul_(kept.item() if isinstance(kept, torch.Tensor) else kept)
                p.add_(m.mul(beta1).add_(grad, alpha=1 - beta1).sign_(), alpha=-group["lr"])
                m.mul_(beta2).add_(grad, alpha=1 - beta2)


class Lamb(torch.optim.Optimizer):
    """You et al. 2020 with the options of apex's FusedLAMB, in the order of its two kernels."""

    def __init__(self, params, lr=1e-3, bias_correction=True, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01, adam_w_mode=True,
                 grad_averaging=True, max_grad_norm=1.0, use_nvlamb=False):
        super().__init__(params, {"lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "adam_w_mode": adam_w_mode, "grad_averaging": grad_averaging, "max_grad_norm": max_grad_norm,
                                  "use_nvlamb": use_nvlamb})

    @torch.no_grad()
    def step(self):
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = None
        if any(group["max_grad_norm"] > 0 for group in self.param_groups) and grads:
            norms = []
            for ([members], _) in _group_tensors_by_device_and_dtype([grads]).values():
                narrow = members[0].dtype in (torch.float16, torch.bfloat16)
                norms += [torch.linalg.vector_norm(g, 2, dtype=torch.float32 if narrow else None) for g in members]
            norm = torch.linalg.vector_norm(torch.stack(norms), 2).item()
        for group in self.param_groups:
            largest = group["max_grad_norm"]
            self._step_group(group, max(1.0, norm / largest) if largest > 0 and norm is not None else 1.0)

    def _step_group(self, group, clip):
        beta1, beta2 = group["betas"]
        beta3 = 1 - beta1 if group["grad_averaging"] else 1.0
        decay = group["weight_decay"]
        for p in group["params"]:
            if p.grad is None:
                continue
            state = self.state[p]
            if not state:
                state.update(step=torch.zeros(()), exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
            state["step"] += 1
            step = state["step"].item()
            m, v = state["exp_avg"], state["exp_avg_sq"]
            grad = p.grad / clip
            if not group["adam_w_mode"]:
                grad.add_(p, alpha=decay)
            m.mul_(beta1).add_(grad, alpha=beta3)
            v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            correction1 = 1 - beta1**step if group["bias_correction"] else 1.0
            correction2 = 1 - beta2**step if group["bias_correction"] else 1.0
            update = m.div(correction1).div_(v.div(correction2).sqrt_().add_(group["eps"]))
            if group["adam_w_mode"]:
                update.add_(p, alpha=decay)
            if not group["use_nvlamb"] and decay == 0:
                p.add_(update, alpha=-group["lr"])
                continue
            wide = torch.promote_types(p.dtype, torch.float32)
            p_norm = torch.linalg.vector_norm(p, 2, dtype=wide).item()
            u_norm = torch.linalg.vector_norm(update, 2, dtype=wide).item()
            ratio = p_norm / u_norm if p_norm > 0 and u_norm > 0 else 1.0
            p.copy_(p.to(wide).add_(update.to(wide), alpha=-group["lr"] * ratio))
