"""Python programs that need torch, run by forks of a test that has imported it: each import costs two seconds of a core.

So does the first optimizer of a process, for what it imports: tests whose programs train import torch._dynamo as well.
"""

import gc
import os
import pathlib
import runpy
import subprocess
import sys
import traceback

import torch  # noqa: F401  is what the forks need not import again
import torch.distributed  # noqa: F401


def _run(command, environment):
    """As `python script argument ...` with that environment. Never returns: what subprocess would execute next is not needed."""
    status = 1
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # subprocess takes the closed pipe for a program that was executed
        os.environ.clear()
        os.environ.update(environment)
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False) for number, mode in ((0, "r"), (1, "w"), (2, "w")))
        sys.argv = command
        sys.path[0] = str(pathlib.Path(command[0]).parent)
        runpy.run_path(command[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def popen(command, *, env, **settings):
    """subprocess.Popen of `command`, a script and its arguments, under this Python with a copy of the caller's torch instead of one of its own.

    The caller must not have started threads of torch's, which a fork has not. Variables that are read when torch is loaded
    (OMP_NUM_THREADS, TORCH_DISTRIBUTED_DEBUG) are the caller's.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # a collection in the fork would copy every page
    command, env = [str(word) for word in command], dict(env)
    return subprocess.Popen([sys.executable, *command], env=env, preexec_fn=lambda: _run(command, env), **settings)
