"""The net of sharded_test.py and sharded_ranks.py."""

import torch


class Net(torch.nn.Module):
    """Uneven and empty shards, tied and frozen parameters, buffers, and numbers."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(7, 5)
        self.fc = torch.nn.Linear(5, 2)
        self.bn = torch.nn.BatchNorm1d(2)
        self.large = torch.nn.Linear(2, 5)
        self.out = torch.nn.Linear(5, 7, bias=False)
        self.out.weight = self.embed.weight
        self.large.bias.requires_grad_(False)

    def forward(self, x):
        return self.out(self.large(self.bn(self.fc(self.embed(x)))))


def make_plain():
    torch.manual_seed(3)
    net = Net()
    return net, make_optimizer(net)


def make_optimizer(net):
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    return torch.optim.AdamW([{"params": trained[:2]}, {"params": trained[2:], "lr": 0.03}], lr=0.1)
