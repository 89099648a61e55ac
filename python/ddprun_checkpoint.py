"""The former name of ddprun.checkpoint, for programs that import it by that."""

from ddprun.checkpoint import *  # noqa: F403
from ddprun.checkpoint import __all__  # noqa: F401
