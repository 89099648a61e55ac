"""ddprun for Python ranks: the shared-memory backend `shm` of torch.distributed.

`import ddprun`, before or after `import torch`, makes `torch.distributed.init_process_group("shm")` work.
"""

from . import _backend

_backend.register_when_torch_is_there()
