"""Reports to ddprun what this rank does: ddprun.step(), phase() and value(), and what torch's hooks report. Without effect elsewhere.

What fails here must not fail the program: the first error is printed, and nothing is reported from then on.
"""

import contextlib
import functools
import os
import sys
import traceback

from ._page import OTHER, open_page


class Reporter:
    """Writes the page of this process, if it is a rank of ddprun's."""

    def __init__(self):
        self.page = open_page()
        self.counts_itself = False

    def guarded(self, function):
        """`function` without exceptions; None where there is no page."""

        @functools.wraps(function)
        def call(*arguments, **options):
            if self.page is None:
                return None
            try:
                return function(*arguments, **options)
            except Exception:  # noqa: BLE001
                self.page = None
                with contextlib.suppress(Exception):
                    print(f"ddprun: the progress of this process is no longer reported:\n{traceback.format_exc()}", file=sys.stderr)
                return None

        return call


_reporter = Reporter()


@_reporter.guarded
def _enter(name):
    return _reporter.page.enter(name)


@_reporter.guarded
def _leave(phase):
    if phase is not None:
        _reporter.page.restore(phase or OTHER << 8)  # not back to the start


@_reporter.guarded
def _end_step(is_programs):
    if is_programs and not _reporter.counts_itself:
        _reporter.counts_itself = True
        # The optimizer's hook has counted this step already, as it did not know that the program counts steps.
        if _reporter.has_counted:
            return
    if is_programs or not _reporter.counts_itself:
        _reporter.has_counted = True
        _reporter.page.finish_step()


@_reporter.guarded
def _set_value(name, number):
    _reporter.page.value(name, float(number))


_reporter.has_counted = False


def step():
    """Reports that a training step of this rank has ended. Each step of an optimizer counts as one, until the first call of this function."""
    _end_step(True)


@contextlib.contextmanager
def phase(name):
    """While the block runs, this rank is in the phase `name`: "data", "forward", "backward", "optimizer", "checkpoint", "evaluation", or one of the
    program's own, of which 24 are kept, with up to 31 bytes of their names."""
    before = _enter(str(name))
    try:
        yield
    finally:
        _leave(before)


def value(name, number):
    """Shows a number in `ddprun status`, such as ("loss", 0.3): the last one counts. At most 8 names of up to 31 bytes."""
    _set_value(str(name), number)


def print_stacks_on_signal():
    """Where ddprun cannot read the stacks of this Python, it prints them when it gets ddprun's signal, which no handler of the program's takes."""
    import faulthandler
    import signal

    number = int(os.environ.get("DDPRUN_STACK_SIGNAL", "0"))
    if _reporter.page is not None and number > 0 and signal.getsignal(number) is signal.SIG_DFL and sys.stderr is not None:
        faulthandler.register(number, all_threads=True)
