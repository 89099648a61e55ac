"""Python's side of the .pt tests: torch and numpy only.

  pt_python.py write FOLDER         files as Python users write them
  pt_python.py check FILE FOLDER    FILE, which C++ wrote, must hold what FOLDER/expected.pt holds, for a plain torch.load
"""

import collections
import pathlib
import sys

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(4, 8)
        self.bn = torch.nn.BatchNorm1d(8)
        self.fc2 = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(self.bn(torch.relu(self.fc1(x))))


def train(net, optimizer, first, steps):
    for step in range(first, first + steps):
        x = (torch.arange(24, dtype=torch.float32).view(6, 4) * (step + 1)).sin()
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), x[:, :3].cos()).backward()
        optimizer.step()


def every_dtype():
    dtypes = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "complex64",
              "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"]
    tensors = {name: torch.arange(6, dtype=torch.float32).view(2, 3).to(getattr(torch, name)) for name in dtypes}
    tensors["bool"] = torch.tensor([True, False, True])
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.zeros(0, 7)
    tensors["transposed"] = torch.arange(6.0).view(2, 3).t()
    tensors["slice"] = torch.arange(100.0)[10:90:7]
    tensors["parameter"] = torch.nn.Parameter(torch.ones(2))
    shared = torch.arange(5.0)
    tensors["tied_a"], tensors["tied_b"] = shared, shared
    return tensors


def write(folder: pathlib.Path):
    torch.manual_seed(0)
    net = Net()
    adam = torch.optim.Adam([{"params": net.fc1.parameters()}, {"params": net.fc2.parameters(), "lr": 0.003}], lr=0.01)
    train(net, adam, 0, 4)
    torch.save(net.state_dict(), folder / "state_dict.pt")
    torch.save(dict(net.state_dict()), folder / "dict.pt")
    torch.save(collections.OrderedDict(("module." + k, v) for k, v in net.state_dict().items()), folder / "wrapped.pt")
    torch.save({"epoch": 3, "model": net.state_dict(), "optimizer": adam.state_dict(), "best": 0.5, "note": b"\x00\xff"},
               folder / "run.pt")
    torch.save(adam.state_dict(), folder / "adam.pt")
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    train(net, sgd, 4, 2)
    torch.save({"state_dict": net.state_dict(), "optimizer_state_dict": sgd.state_dict()}, folder / "sgd.pt")
    torch.save(every_dtype(), folder / "every_dtype.pt")
    torch.save(net, folder / "whole_module.pt")
    torch.save(net.state_dict(), folder / "legacy.pt", _use_new_zipfile_serialization=False)


def same(left, right, path="root"):
    assert type(left) is type(right) or isinstance(left, torch.Tensor), (path, type(left), type(right))
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype and left.shape == right.shape, (path, left.dtype, left.shape, right.shape)
        # A copy: the stride of a single element counts for nothing, but view() looks at it.
        flat = [t.detach().reshape(-1).clone(memory_format=torch.contiguous_format) for t in (left, right)]
        assert torch.equal(*(t.view(torch.uint8) for t in flat)), path
    elif isinstance(left, dict):
        assert set(left) == set(right), (path, sorted(map(str, left)), sorted(map(str, right)))
        for key in left:
            same(left[key], right[key], f"{path}.{key}")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), path
        for i, (a, b) in enumerate(zip(left, right)):
            same(a, b, f"{path}[{i}]")
    else:
        assert left == right, (path, left, right)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(pathlib.Path(sys.argv[2]))
