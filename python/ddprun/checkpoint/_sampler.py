"""torch's DistributedSampler with a state, as ddprun's samplers in C++ have it. Needs torch alone."""

import torch
from torch.utils.data import DistributedSampler as _DistributedSampler


class DistributedSampler(_DistributedSampler):
    """torch's sampler with the state of ddprun's: it goes on in mid-epoch, with any number of ranks."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self._consumed = 0  # samples of this epoch that all ranks had used before this pass

    def __len__(self):
        left = max(0, len(self.dataset) - self._consumed)
        return left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)

    def __iter__(self):
        length = len(self.dataset)
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = torch.randperm(length, generator=generator).tolist()
        else:
            order = list(range(length))
        first = self._consumed + self.rank
        return iter([order[(first + i * self.num_replicas) % length] for i in range(len(self))])

    def set_epoch(self, epoch):
        if epoch != self.epoch:
            self._consumed = 0
        super().set_epoch(epoch)

    def state_dict(self, used=0):
        """The state after this rank has used `used` samples of the pass; a loader that reads ahead has taken more."""
        return {"seed": self.seed, "epoch": self.epoch, "consumed": self._consumed + used * self.num_replicas,
                "length": len(self.dataset)}

    def load_state_dict(self, state):
        """The next pass gives the rest of the state's epoch."""
        if state["consumed"] and state["length"] != len(self.dataset):
            raise ValueError(f"saved with {state['length']} samples per epoch, but the dataset has {len(self.dataset)}")
        self.seed, self.epoch, self._consumed = state["seed"], state["epoch"], state["consumed"]
