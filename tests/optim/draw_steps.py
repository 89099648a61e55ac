"""Random configurations of ddprun's own optimizers and their steps in Python: random_steps_test.py and crossing_test.py."""

import os
import random
import sys

import torch

import peers

NAMES = ["RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "Adafactor", "Muon", "Lamb", "Lion"]
ON_DEVICES = os.environ.get("DDPRUN_TEST_ON_DEVICES") == "1"
CAPTURABLE = ["RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"]
SHAPES = [[], [1], [7], [33], [0], [64], [3, 5], [40, 17], [4, 3, 3, 3], [2, 3, 5], [1031], [129, 65], [70000]]


def draw_options(draw, name):
    lr = draw.choice([1e-3, 1e-2, 0.1, 1.0]) * draw.uniform(0.5, 2)
    decay = draw.choice([0, 0, 0.01, 0.3])
    betas = [draw.choice([0.9, 0.5, 0.0, 0.37, 0.95]), draw.choice([0.999, 0.99, 0.9, 0.3])]
    eps = draw.choice([1e-8, 1e-6, 1e-3])
    flag = draw.random() < 0.5
    maximize = draw.random() < 0.2
    common = {"lr": lr, "weight_decay": decay, "maximize": maximize}
    return {
        "RMSprop": {**common, "alpha": draw.choice([0.99, 0.9, 0.3]), "eps": eps, "momentum": draw.choice([0, 0.9, 0.3]), "centered": flag},
        "Adadelta": {**common, "rho": draw.choice([0.9, 0.95, 0.2]), "eps": eps},
        "Adamax": {**common, "betas": betas, "eps": eps},
        "NAdam": {**common, "betas": betas, "eps": eps, "momentum_decay": draw.choice([4e-3, 0.1]), "decoupled_weight_decay": flag},
        "RAdam": {**common, "betas": betas, "eps": eps, "decoupled_weight_decay": flag},
        "ASGD": {**common, "lambd": draw.choice([1e-4, 1e-2]), "alpha": draw.choice([0.75, 0.5]), "t0": draw.choice([1e6, 3, 0])},
        "Rprop": {"lr": lr, "maximize": maximize, "etas": draw.choice([[0.5, 1.2], [0.3, 1.7]]), "step_sizes": draw.choice([[1e-6, 50], [1e-3, 0.3]])},
        "Adafactor": {**common, "beta2_decay": draw.choice([-0.8, -0.5]), "eps": draw.choice([[None, 1e-3], [1e-6, 1e-2]]), "d": draw.choice([1.0, 2.0])},
        "Muon": {"lr": lr, "weight_decay": decay, "momentum": draw.choice([0.95, 0.3]), "nesterov": flag, "ns_steps": draw.choice([5, 3]),
                 "adjust_lr_fn": draw.choice([None, "original", "match_rms_adamw", "spectral_unclamped"])},
        "Lamb": {"lr": lr, "betas": betas, "eps": eps, "weight_decay": decay, "bias_correction": draw.random() < 0.7, "grad_averaging": flag,
                 "max_grad_norm": draw.choice([1.0, 0]), "use_nvlamb": draw.random() < 0.3, "adam_w_mode": draw.random() < 0.7},
        "Lion": {**common, "betas": betas},
    }[name]


def draw_case(name, seed):
    draw = random.Random(f"{name} {seed}")
    dtype = draw.choice(["float32", "float32", "float64", "bfloat16"])
    mixes = draw.random() < 0.2
    shapes = [shape for shape in SHAPES if name != "Muon" or len(shape) == 2]
    if name in ("Adafactor", "Lamb"):
        shapes = [shape for shape in shapes if shape != [0]]  # Python divides by 0
    parameters = []
    most = 6
    if draw.random() < 0.3:  # those of equal shapes are computed together
        shapes = draw.sample(shapes, min(2, len(shapes)))
        most = 12
    for _ in range(draw.randint(1, most)):
        odd = draw.random() < 0.15
        parameters.append({
            "shape": draw.choice(shapes),
            "dtype": draw.choice(["float32", "float64", "bfloat16", "float16"]) if mixes else dtype,
            "layout": "transposed" if odd and draw.random() < 0.5 else "plain",
            "gradient_layout": "transposed" if odd and draw.random() < 0.7 else "plain",
        })
    members = list(range(len(parameters)))
    cut = draw.randint(0, len(members)) if draw.random() < 0.5 else len(members)
    groups = [{"members": part, "options": draw_options(draw, name)} for part in (members[:cut], members[cut:]) if part]
    for group in groups:
        if draw.random() < 0.3:
            group["options"]["lr_tensor"] = "float32" if ON_DEVICES else draw.choice(["float32", "float32", "float64"])
        if ON_DEVICES:
            group["options"]["capturable"] = True
    steps = []
    for _ in range(50 if all(p["shape"] != [70000] for p in parameters) else 8):
        without = {str(i): True for i in members if draw.random() < 0.1}
        steps.append({"without": without, "scale": draw.choice([1, 1, 0.01, 0, 30]), "lr_factor": draw.choice([1, 1, 0.9, 1.05])})
    case = {"optimizer": name, "seed": draw.randrange(1, 2**40), "parameters": parameters, "groups": groups, "steps": steps}
    if draw.random() < 0.15:
        case["count"] = 2**24 - 3  # from where on float32 counts no further
    return case


def numbers(parameter, seed, layout, scale):
    shape = list(parameter["shape"])
    transposed = layout == "transposed" and len(shape) > 1
    if transposed:
        shape[0], shape[1] = shape[1], shape[0]
    result = (torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale).to(
        getattr(torch, parameter["dtype"]))
    return result.transpose(0, 1) if transposed else result


def python_options(options):
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    dtype = options.pop("lr_tensor", None)
    if dtype:
        options["lr"] = torch.tensor(options["lr"], dtype=getattr(torch, dtype))
    return options


def allow_capturable_steps_on_the_cpu():
    for name in CAPTURABLE:
        module = sys.modules[f"torch.optim.{name.lower()}"]
        module._get_capturable_supported_devices = lambda supports_xla=True: ["cpu"]


def make(case):
    """The parameters of a case and their optimizer."""
    parameters = [numbers(p, case["seed"] + i, p["layout"], 1).requires_grad_() for i, p in enumerate(case["parameters"])]
    groups = [{"params": [parameters[i] for i in group["members"]], **python_options(group["options"])} for group in case["groups"]]
    name = case["optimizer"]
    extra = {} if name in ("Muon", "Adafactor") or hasattr(peers, name) else {"foreach": ON_DEVICES}
    optimizer = getattr(peers, name, None) or getattr(torch.optim, name)
    return parameters, optimizer(groups, **extra)


def take_step(case, number, parameters, optimizer):
    described, seed, step = case["parameters"], case["seed"], case["steps"][number]
    for i, parameter in enumerate(parameters):
        parameter.grad = None
        if str(i) not in step["without"]:
            parameter.grad = numbers(described[i], seed + 1000 * (number + 1) + i, described[i]["gradient_layout"], step["scale"])
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(group["lr"].item() * step["lr_factor"])
        else:
            group["lr"] *= step["lr_factor"]
    optimizer.step()
    for state in optimizer.state.values() if number == 0 and "count" in case else ():
        if "step" in state:
            state["step"].fill_(case["count"])


def results(parameters, optimizer):
    """Parameters, then their states in the order of the parameters and of the states' names."""
    states = [optimizer.state[p][key] for p in parameters for key in sorted(optimizer.state[p])]
    return [*(p.detach() for p in parameters), *states]
