"""The steps of steps_program.cpp in Python, with fused=True. Run as a program (with torch): writes golden.json."""

import json
import pathlib

SHAPES = [(7, 5), (33,), (1,), (4, 3, 3, 3), (1031,)]
HERE = pathlib.Path(__file__).parent


def cases():
    return json.loads((HERE / "cases.json").read_text())


def run(case):
    """Parameters, states and gradients after the steps, as tensors in the order of steps_program.cpp."""
    import torch

    dtype = getattr(torch, case.get("dtype", "float32"))

    def numbers(index, salt):
        return torch.randn(SHAPES[index], generator=torch.Generator().manual_seed(salt)).to(dtype)

    parameters = [numbers(i, i).requires_grad_() for i in range(len(SHAPES))]
    groups = [{"params": p, **options} for p, options in zip((parameters[:3], parameters[3:]), case["groups"])]
    extra = {"initial_accumulator_value": g["initial_accumulator_value"] for g in groups if "initial_accumulator_value" in g}
    optimizer = getattr(torch.optim, case["optimizer"])(groups, fused=True, **extra)
    scale = case.get("scale", 0)
    for step in range(case.get("steps", 100)):
        for i, parameter in enumerate(parameters):
            if i == 1 and step < case.get("late", 0):
                continue
            gradient = numbers(i, 100 + step * 10 + i)
            parameter.grad = gradient * scale if scale else gradient
        if scale:
            optimizer.grad_scale = torch.tensor(float(scale))
            optimizer.found_inf = torch.tensor(float(step in case["inf_at"]))
        optimizer.step()
    states = [
        optimizer.state[p][name] for p in parameters for name in sorted(optimizer.state[p])
        if optimizer.state[p][name] is not None
    ]
    return [*(p.detach() for p in parameters), *states, *(p.grad for p in parameters)]


def as_bytes(tensors):
    import torch

    return b"".join(t.contiguous().view(-1).view(torch.uint8).numpy().tobytes() for t in tensors)


def sample(content, dtype):
    """A few numbers all over a result, for a comparison that allows another machine's rounding."""
    import struct

    size = {"float32": 4, "float64": 8, "bfloat16": 2}[dtype]
    values = []
    for i in range(0, len(content) // size, 101):
        piece = content[i * size : (i + 1) * size]
        if dtype == "bfloat16":
            piece = b"\0\0" + piece
        values.append(struct.unpack("<d" if size == 8 else "<f", piece)[0])
    return values


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    golden = {}
    for case in cases():
        tensors = run(case)[: len(SHAPES)]
        golden[case["name"]] = sample(as_bytes(tensors), case.get("dtype", "float32"))
    lines = [f" {json.dumps(name)}: {json.dumps(values)}" for name, values in golden.items()]
    (HERE / "golden.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
