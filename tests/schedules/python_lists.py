"""What Python's schedulers do in the cases of lists_program.cpp. Run as a program (with torch): writes expected.json."""

import json
import math
import pathlib
import warnings

STEPS = 200


def lists():
    import torch
    from torch.optim import lr_scheduler as s

    warnings.simplefilter("ignore")
    result = {}

    def optimizer():
        groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.02)]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    def record(name, opt):
        kinds = ("lr", "momentum") if name.startswith("one_cycle") else ("lr",)
        entry = result.setdefault(name, {kind: [[], []] for kind in kinds})
        for i, group in enumerate(opt.param_groups):
            for kind in kinds:
                entry[kind][i].append(group[kind])

    def add(name, make):
        opt = optimizer()
        scheduler = make(opt)
        record(name, opt)
        for _ in range(STEPS):
            opt.step()
            scheduler.step()
            record(name, opt)

    def add_plateau(name, **options):
        opt = optimizer()
        scheduler = s.ReduceLROnPlateau(opt, **options)
        for i in range(STEPS):
            scheduler.step(math.exp(-i / 20.0) + 0.3 * math.fmod(i * 0.37, 1.0) + (0.01 * i if i > 120 else 0.0))
            record(name, opt)

    def decay(step):
        return math.pow(0.95, step)

    def hyperbola(step):
        return 1.0 / (1.0 + step)

    def drops(step):
        return 0.5 if step % 10 == 0 else 0.99

    add("lambda", lambda o: s.LambdaLR(o, decay))
    add("lambda_per_group", lambda o: s.LambdaLR(o, [decay, hyperbola]))
    add("multiplicative", lambda o: s.MultiplicativeLR(o, drops))
    add("step", lambda o: s.StepLR(o, 7, 0.5))
    add("multi_step", lambda o: s.MultiStepLR(o, [3, 8, 8, 20, 150], 0.3))
    add("constant", lambda o: s.ConstantLR(o, 0.25, 12))
    add("linear", lambda o: s.LinearLR(o, 0.1, 0.8, 37))
    add("linear_warmup", lambda o: s.LinearLR(o, 1 / 8, 1.0, 40))
    add("exponential", lambda o: s.ExponentialLR(o, 0.97))
    add("polynomial", lambda o: s.PolynomialLR(o, 60, 2.0))
    add("polynomial_root", lambda o: s.PolynomialLR(o, 150, 0.5))
    add("cosine", lambda o: s.CosineAnnealingLR(o, 50, 0.001))
    add("cosine_long", lambda o: s.CosineAnnealingLR(o, 200))
    add("cosine_short", lambda o: s.CosineAnnealingLR(o, 1))
    add("cosine_warm_restarts", lambda o: s.CosineAnnealingWarmRestarts(o, 10, 2, 0.0005))
    add("cosine_warm_restarts_equal", lambda o: s.CosineAnnealingWarmRestarts(o, 30))
    add("one_cycle", lambda o: s.OneCycleLR(o, [0.5, 0.1], 200))
    add(
        "one_cycle_three_phases",
        lambda o: s.OneCycleLR(
            o, 0.4, 201, pct_start=0.2, anneal_strategy="linear", base_momentum=0.7, max_momentum=0.99,
            div_factor=10, final_div_factor=100, three_phase=True,
        ),
    )
    add("one_cycle_without_momentum", lambda o: s.OneCycleLR(o, 0.4, 210, cycle_momentum=False))

    def sequential(o, schedulers, milestones):
        return s.SequentialLR(o, [make(o) for make in schedulers], milestones)

    add(
        "warmup_and_cosine",
        lambda o: sequential(
            o, [lambda o: s.LinearLR(o, 0.1, total_iters=10), lambda o: s.CosineAnnealingLR(o, 190)], [10]
        ),
    )
    add(
        "sequential_of_five",
        lambda o: sequential(
            o,
            [
                lambda o: s.ConstantLR(o, 0.1, 8),
                lambda o: s.ExponentialLR(o, 0.9),
                lambda o: s.MultiStepLR(o, [5, 9]),
                lambda o: s.PolynomialLR(o, 40),
                lambda o: s.CosineAnnealingWarmRestarts(o, 7, 2),
            ],
            [10, 30, 70, 120],
        ),
    )
    add(
        "sequential_of_others",
        lambda o: sequential(
            o,
            [
                lambda o: s.StepLR(o, 3),
                lambda o: s.LambdaLR(o, decay),
                lambda o: s.CosineAnnealingLR(o, 20),
                lambda o: s.LinearLR(o),
                lambda o: s.MultiplicativeLR(o, drops),
            ],
            [20, 50, 90, 160],
        ),
    )
    add(
        "chained",
        lambda o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 5), s.ExponentialLR(o, 0.98), s.MultiStepLR(o, [50, 100])], o),
    )
    add(
        "chained_then_exponential",
        lambda o: sequential(
            o,
            [
                lambda o: s.ChainedScheduler([s.LinearLR(o, total_iters=20), s.ExponentialLR(o, 0.99)], o),
                lambda o: s.ExponentialLR(o, 0.95),
            ],
            [60],
        ),
    )
    add(
        "sequence_in_a_sequence",
        lambda o: sequential(
            o,
            [
                lambda o: sequential(o, [lambda o: s.LinearLR(o), lambda o: s.ExponentialLR(o, 0.97)], [6]),
                lambda o: s.CosineAnnealingLR(o, 80),
            ],
            [40],
        ),
    )

    add_plateau("plateau", patience=4)
    add_plateau("plateau_max", mode="max", factor=0.5, patience=7, cooldown=3)
    add_plateau("plateau_absolute", factor=0.6, patience=2, threshold=0.05, threshold_mode="abs", min_lr=[1e-4, 5e-3])
    add_plateau(
        "plateau_max_absolute", mode="max", factor=0.9, patience=1, threshold=0.001, threshold_mode="abs", cooldown=1,
        eps=1e-3,
    )
    return result


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("expected.json")
    entries = [f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in lists().items()]
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n")
