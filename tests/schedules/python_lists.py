"""What Python's schedulers do in the cases of lists_program. Run with torch: `python_lists.py PROGRAM` writes expected.json."""

import json
import math
import pathlib
import subprocess
import sys
import warnings

STEPS = 200
FUNCTIONS = {
    "decay": lambda step: math.pow(0.95, step),
    "hyperbola": lambda step: 1.0 / (1.0 + step),
    "drops": lambda step: 0.5 if step % 10 == 0 else 0.99,
}


def optimizer():
    import torch

    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.1, 0.02)]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def metric(step):
    return math.exp(-step / 20.0) + 0.3 * math.fmod(step * 0.37, 1.0) + (0.01 * step if step > 120 else 0.0)


def lists(program):
    """{case: {"lr": [[…], […]], …}} of each case that `program` prints, from its Python form."""
    from torch.optim import lr_scheduler
    from torch.optim.swa_utils import SWALR

    warnings.simplefilter("ignore")
    cases = json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout)
    result = {}
    for name, case in cases.items():
        o = optimizer()
        scheduler = eval(case["python"], {**vars(lr_scheduler), **FUNCTIONS, "SWALR": SWALR, "o": o})
        is_plateau = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)  # it does nothing before the first metric
        kinds = ("lr", "momentum") if hasattr(scheduler, "cycle_momentum") else ("lr",)
        entry = {kind: [[] if is_plateau else [group[kind]] for group in o.param_groups] for kind in kinds}
        for step in range(STEPS):
            o.step()
            scheduler.step(*([metric(step)] if is_plateau else []))
            for kind, values in entry.items():
                for i, group in enumerate(o.param_groups):
                    values[i].append(group[kind])
        result[name] = entry
    return result


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_name("expected.json")
    entries = [f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in lists(sys.argv[1]).items()]
    path.write_text("{\n" + ",\n".join(entries) + "\n}\n")
