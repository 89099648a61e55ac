"""The text program as Python users write it, for comparison: alone or under ddprun, on the CPU."""

import argparse
import contextlib
import math

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from twin_job import TwinJob


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc_1, self.fc_2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        n, t, width = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(n, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, width))
        return x + self.fc_2(nn.functional.gelu(self.fc_1(self.ln_2(x))))


class Transformer(nn.Module):
    def __init__(self, context, width, heads, layers, recompute=False):
        super().__init__()
        self.layers, self.recompute = layers, recompute
        self.tokens, self.positions = nn.Embedding(256, width), nn.Embedding(context, width)
        for i in range(layers):
            setattr(self, f"block{i}", Block(width, heads))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() > 1:
                is_residual = name.endswith(("proj.weight", "fc_2.weight"))
                nn.init.normal_(parameter, 0, 0.02 / math.sqrt(2 * layers) if is_residual else 0.02)

    def forward(self, text):
        x = self.tokens(text) + self.positions(torch.arange(text.shape[1]))
        for i in range(self.layers):
            block = getattr(self, f"block{i}")
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(self.ln(x))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text")
    parser.add_argument("--weights")
    parser.add_argument("--make-weights", action="store_true", help="only write initial weights there")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--warmup-steps", type=int, default=20)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--shard", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--step-losses")
    args = parser.parse_args()
    torch.manual_seed(0)
    net = Transformer(args.context, args.width, args.heads, args.layers, args.recompute)
    if args.make_weights:
        torch.save(net.state_dict(), args.weights)
        return
    net.load_state_dict(torch.load(args.weights))
    job = TwinJob()
    with open(args.text, "rb") as file:
        text = file.read()
    text = torch.frombuffer(bytearray(text[: int(len(text) * 0.9)]), dtype=torch.uint8).long()
    count = (len(text) - 1) // args.context
    data = text[: count * args.context].view(count, args.context)
    target = text[1 : count * args.context + 1].view(count, args.context)
    train = TensorDataset(data, target)
    sampler = DistributedSampler(train, num_replicas=job.ranks, rank=job.rank, seed=0)
    loader = DataLoader(train, args.batch_size, sampler=sampler)
    model = job.sharded_model(net, Block) if args.shard else job.model(net)
    matrices = [p for p in net.parameters() if p.dim() > 1]
    vectors = [p for p in net.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, args.lr, betas=(0.9, 0.95))
    passes = len(loader)
    steps = args.epochs * -(-passes // args.accumulate)
    schedulers = torch.optim.lr_scheduler
    scheduler = schedulers.SequentialLR(optimizer, [
        schedulers.LinearLR(optimizer, 0.01, total_iters=args.warmup_steps),
        schedulers.CosineAnnealingLR(optimizer, max(1, steps - args.warmup_steps), args.lr / 10),
    ], [args.warmup_steps])  # fmt: skip
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for i, (batch, expected) in enumerate(loader):
            begin = i - i % args.accumulate
            end = min(begin + args.accumulate, passes)
            if i == begin:
                optimizer.zero_grad()
                of_step = torch.zeros(())
            is_last = i + 1 == end
            with contextlib.nullcontext() if is_last or job.ranks == 1 or args.shard else model.no_sync():
                with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
                    loss = nn.functional.cross_entropy(model(batch).flatten(0, 1), expected.flatten()) / (end - begin)
                loss.backward()
            of_step = of_step + loss.detach()
            if not is_last:
                continue
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            job.add_loss(epoch, len(job.rows) + 1, of_step)
    job.end(args.step_losses)


main()
