"""The ImageNet program as Python users write it, for comparison: alone or under ddprun, on the CPU. Nets other than ResNet-18
and -34 are torchvision's."""

import argparse
import os
import time

import torch
from image_folder_twin import Pictures, make_net
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from twin_job import TwinJob


def listing(root):
    names = sorted(os.listdir(root))
    files = [(os.path.join(root, name, file), i) for i, name in enumerate(names) for file in sorted(os.listdir(os.path.join(root, name)))]
    return files, len(names)


def net_of(name, classes):
    if name in ("resnet18", "resnet34"):
        return make_net(name, classes)
    import torchvision

    return torchvision.models.get_model(name, num_classes=classes)


def loss_of(output, labels):
    if not isinstance(output, tuple):
        return nn.functional.cross_entropy(output, labels)
    main, *auxiliary = (nn.functional.cross_entropy(logits, labels) for logits in output)
    return main + (0.4 if len(auxiliary) == 1 else 0.3) * sum(auxiliary)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir")
    parser.add_argument("--synthetic", type=int)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--net", default="resnet50")
    parser.add_argument("--weights")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--step-losses")
    args = parser.parse_args()
    torch.manual_seed(0)
    job = TwinJob()
    if args.synthetic:
        images = torch.randn(args.synthetic, 3, args.image_size, args.image_size)
        train, classes = TensorDataset(images, torch.randint(0, args.classes, (args.synthetic,))), args.classes
    else:
        files, classes = listing(os.path.join(args.data_dir, "train"))
        train = Pictures(files, args.image_size)
    sampler = DistributedSampler(train, num_replicas=job.ranks, rank=job.rank, seed=0)
    loader = DataLoader(train, args.batch_size, sampler=sampler)
    net = net_of(args.net, classes)
    if args.weights:
        net.load_state_dict(torch.load(args.weights))
    model = job.model(net)
    optimizer = torch.optim.SGD(net.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        net.train()
        begin, count = time.monotonic(), 0
        for step, (pictures, labels) in enumerate(loader):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
                loss = loss_of(model(pictures), labels)
            loss.backward()
            optimizer.step()
            job.add_loss(epoch, step, loss)
            count += len(labels)
        scheduler.step()
        seconds = time.monotonic() - begin
        right = torch.zeros(2)
        if args.data_dir and job.rank == 0:
            net.eval()
            validation = Pictures(listing(os.path.join(args.data_dir, "val"))[0], args.image_size)
            with torch.no_grad():
                right = torch.tensor([sum(int(net(x[None]).argmax() == y) for x, y in validation), len(validation)])
        if job.rank == 0:
            print(f"epoch {epoch}: {seconds:.4f} s, {count * job.ranks / seconds:.2f} images/s, right {int(right[0])} of {int(right[1])}")
    job.end(args.step_losses)


if __name__ == "__main__":
    main()
