"""What the command torchrun does."""

from torch.distributed.run import main

main()
