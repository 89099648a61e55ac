"""Reports what torch does in this rank, by hooks of torch and light wrappers: data, forward, backward, optimizer, and collectives.

A group's collectives are numbered as the rank calls them, so the ranks' numbers are the same. Gradients that
DistributedDataParallel reduces in one backward are one collective, from when the rank has computed its own.
"""

import functools
import weakref

import torch
import torch.distributed as dist

from . import _progress
from ._page import prepared_signature
from ._progress import _enter, _leave, _reporter

_MOST_HOOKED = 16  # tensors of a model's output
_COLLECTIVES = ("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter", "reduce_scatter",
                "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "all_reduce_coalesced", "all_gather_coalesced", "barrier",
                "monitored_barrier", "all_gather_single", "reduce_scatter_single")  # fmt: skip
_MESSAGES = frozenset(("send", "recv"))
# For tensors that may differ between the ranks.
_OWN_TENSORS = frozenset(("gather", "scatter", "all_to_all", "all_to_all_single", "reduce_scatter"))
_MOST_SIGNATURES = 1000


class Calls:
    """The collectives of this rank: their groups and numbers."""

    def __init__(self):
        self.entries = {}  # by id() of a process group: [index in the page, next number, next message, weak reference to the group]
        self.works = weakref.WeakKeyDictionary()  # by the handle of a collective that is still waited for
        self.dtypes = {}
        self.signatures = {}  # by name, operation, dtype and shape, and by texts: what the page has of them
        self.last = {}  # by name: operation, dtype, shape and signature of the last call, which the next one often repeats

    def of(self, group):
        """The entry of a group, None for the default one. None for groups that this rank is not in."""
        if group is None:
            group = dist.group.WORLD
        entry = self.entries.get(id(group))
        return entry if entry is not None and entry[3]() is group else self._add(group)

    def _add(self, group):
        if group is None or group is dist.GroupMember.NON_GROUP_MEMBER or dist.get_rank(group) < 0:
            return None
        ranks = dist.get_process_group_ranks(group)
        name = "" if group is dist.group.WORLD else f"group {group.group_name}/"
        index = _reporter.page.group(f"python/{name}", dist.get_rank(group), len(ranks), ranks[0])
        key = id(group)
        entry = self.entries[key] = [index, 0, 0, weakref.ref(group, lambda _group: self.entries.pop(key, None))]
        return entry

    def signature(self, key, text):
        """text() as the page takes it, made once for each key. A program that has ever new shapes does not fill the memory."""
        found = self.signatures.get(key)
        if found is None:
            if len(self.signatures) >= _MOST_SIGNATURES:
                self.signatures.clear()
            found = self.signatures[key] = prepared_signature(text())
        return found

    def begin(self, group, text):
        entry = self.of(group)
        if entry is None:
            return None
        number = entry[1]
        entry[1] = number + 1
        return _reporter.page.begin(entry[0], number, self.signature(text, lambda: text))

    def tensor_text(self, tensor):
        """ " of Float [2, 3]" """
        dtype = self.dtypes.get(tensor.dtype)
        if dtype is None:
            dtype = self.dtypes[tensor.dtype] = _dtype_name(tensor)
        return f" of {dtype} {list(tensor.shape)}"


_calls = Calls()
_OPERATIONS = (dist.ReduceOp, dist.ReduceOp.RedOpType) if dist.is_available() else ()


def _dtype_name(tensor):
    names = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int", "int16": "Short",
             "int8": "Char", "uint8": "Byte", "bool": "Bool"}  # fmt: skip
    name = str(tensor.dtype).rpartition(".")[2]
    return names.get(name, name)


@_reporter.guarded
def _begin_call(name, arguments, options):
    """Records the begin of a collective; None for ranks outside of the group."""
    group = options.get("group")
    tensor = options.get("tensor")
    op = options.get("op")
    for each in arguments:
        if tensor is None and isinstance(each, torch.Tensor):
            tensor = each
        elif op is None and isinstance(each, _OPERATIONS):
            op = each
        elif isinstance(each, dist.ProcessGroup):
            group = each
    entry = _calls.of(group)
    if entry is None:
        return None
    if name in _MESSAGES:
        text = _message_text(name, tensor, arguments, options, group)
        number = entry[2]
        entry[2] = number + 1
        return _reporter.page.begin(entry[0], number, _calls.signature(text, lambda: text), is_message=True)
    has_equal_tensors = name not in _OWN_TENSORS and isinstance(tensor, torch.Tensor)
    dtype, shape = (tensor.dtype, tensor.shape) if has_equal_tensors else (None, None)
    last = _calls.last.get(name)
    if last is not None and last[0] is op and last[1] is dtype and last[2] == shape:
        signature = last[3]
    else:
        known = op if op is None or isinstance(op, dist.ReduceOp.RedOpType) else str(op)  # a ReduceOp has no hash
        signature = _calls.signature((name, known, dtype, shape),
                                     lambda: _call_text(name, op) + (_calls.tensor_text(tensor) if has_equal_tensors else ""))
        if known is op:
            _calls.last[name] = (op, dtype, shape, signature)
    number = entry[1]
    entry[1] = number + 1
    return _reporter.page.begin(entry[0], number, signature)


def _call_text(name, op):
    """ "all_reduce (sum)" """
    if "reduce" not in name:
        return name
    return f"{name} ({str(op if op is not None else dist.ReduceOp.SUM).rpartition('.')[2].lower()})"


def _message_text(name, tensor, arguments, options, group):
    """Rank numbers in these texts are those of the group."""
    peer = options.get("dst" if name == "send" else "src", arguments[1] if len(arguments) > 1 else None)
    tag = options.get("tag", arguments[3] if len(arguments) > 3 else 0)
    in_group = options.get("group_dst" if name == "send" else "group_src")
    if in_group is None and peer is not None:
        in_group = dist.get_group_rank(group, peer) if group is not None and group is not dist.group.WORLD else peer
    whom = f"rank {in_group}" if in_group is not None else "any rank"
    return f"{name} ({'to' if name == 'send' else 'from'} {whom}, tag {tag}){_calls.tensor_text(tensor)}"


@_reporter.guarded
def _end_call(call, work):
    if call is None:
        return
    if work is not None and isinstance(work, dist.Work):
        _reporter.page.finish(call, waited=False)  # stored until the program waits for it
        _calls.works[work] = call
    else:
        _reporter.page.finish(call)


@_reporter.guarded
def _begin_wait(work):
    call = _calls.works.pop(work, None)
    if call is not None:
        _reporter.page.reopen(call)
    return call


def _logged(name, function):
    @functools.wraps(function)
    def call(*arguments, **options):
        if _reporter.page is None or torch.compiler.is_compiling():
            return function(*arguments, **options)
        begun = _begin_call(name, arguments, options)
        result = None
        try:
            result = function(*arguments, **options)
        finally:
            _end_call(begun, result)
        return result

    return call


def _log_collectives():
    implementation = dist.distributed_c10d
    for name in (*_COLLECTIVES, *_MESSAGES):
        original = getattr(implementation, name, None)
        if original is None:
            continue
        logged = _logged(name, original)
        for module in (implementation, dist):
            if getattr(module, name, None) is original:
                setattr(module, name, logged)
    wait = dist.Work.wait

    def wait_logged(work, *arguments, **options):
        begun = _begin_wait(work) if _calls.works else None
        try:
            return wait(work, *arguments, **options)
        finally:
            if begun is not None:
                _end_call(begun, None)

    dist.Work.wait = functools.wraps(wait)(wait_logged)


def _in_phase(name, owner, function_name):
    """Wraps a function: while it runs, the rank is in that phase."""
    original = getattr(owner, function_name)

    @functools.wraps(original)
    def call(*arguments, **options):
        before = _enter(name)
        try:
            return original(*arguments, **options)
        finally:
            _leave(before)

    setattr(owner, function_name, call)
    return original, call


def _report_groups():
    """Reports that a rank enters a group when the group is made, and that it closes the group at the end."""
    implementation = dist.distributed_c10d
    original, closing = _in_phase("closing", implementation, "destroy_process_group")
    if dist.destroy_process_group is original:
        dist.destroy_process_group = closing
    initialize = implementation.init_process_group
    know_group = _reporter.guarded(lambda: _calls.of(None))

    @functools.wraps(initialize)
    def call(*arguments, **options):
        result = initialize(*arguments, **options)
        know_group()
        return result

    implementation.init_process_group = call
    if dist.init_process_group is initialize:
        dist.init_process_group = call


def _report_optimizer():
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    before = []

    def begin(_optimizer, _arguments, _options):
        if not torch.compiler.is_compiling():
            before.append(_enter("optimizer"))

    def end(_optimizer, _arguments, _options):
        if before and not torch.compiler.is_compiling():
            _leave(before.pop())
            _progress._end_step(False)

    register_optimizer_step_pre_hook(begin)
    register_optimizer_step_post_hook(end)


class _Step:
    """One forward and backward of a DistributedDataParallel."""

    def __init__(self, wrapper):
        self.group = wrapper.process_group
        self.reduces = bool(wrapper.require_backward_grad_sync)
        self.has_begun = False
        self.call = None  # the reduction

    @_reporter.guarded
    def begin_backward(self, _gradient):
        if self.has_begun:
            return
        self.has_begun = True
        _reporter.page.enter("backward")
        # Called once all gradients of the rank are computed, before c10d's reducer waits for the others, which adds a function of its own later.
        _at_end_of_backward(self._wait)

    @_reporter.guarded
    def _wait(self):
        self.call = _calls.begin(self.group, "all_reduce of the gradients") if self.reduces else None
        _at_end_of_backward(self._end)

    @_reporter.guarded
    def _end(self):
        if self.call is not None:
            _reporter.page.finish(self.call)
        _reporter.page.enter("between phases")


def _at_end_of_backward(function):
    try:
        torch.autograd.Variable._execution_engine.queue_callback(function)
    except RuntimeError:  # not in a backward: a hook that the program calls itself
        pass


def _tensors(output, found):
    if isinstance(output, torch.Tensor):
        if output.requires_grad and len(found) < _MOST_HOOKED:
            found.append(output)
    elif isinstance(output, dict):
        for each in output.values():
            _tensors(each, found)
    elif isinstance(output, (list, tuple)):
        for each in output:
            _tensors(each, found)
    return found


@_reporter.guarded
def _hook_output(wrapper, output):
    """Whether a backward may follow. Until it begins, the rank stays in the phase forward."""
    tensors = _tensors(output, []) if torch.is_grad_enabled() else []
    if tensors:
        step = _Step(wrapper)
        for tensor in tensors:
            tensor.register_hook(step.begin_backward)
    return bool(tensors)


def _report_forward(owner):
    """Wraps a method of the class, because a hook of a module would be saved with the module."""
    original = owner.forward

    @functools.wraps(original)
    def forward(self, *arguments, **options):
        if _reporter.page is None or torch.compiler.is_compiling():
            return original(self, *arguments, **options)
        before = _enter("forward")
        keeps_phase = False
        try:
            output = original(self, *arguments, **options)
            keeps_phase = _hook_output(self, output)
        finally:
            if not keeps_phase:
                _leave(before)
        return output

    owner.forward = forward


def _logged_method(owner, name, text):
    """Reports what a method of DistributedDataParallel does together with the other ranks."""
    original = getattr(owner, name, None)
    if original is None:
        return
    begin_call = _reporter.guarded(lambda wrapper, group: _calls.begin(group or getattr(wrapper, "process_group", None), text))

    @functools.wraps(original)
    def call(self, *arguments, **options):
        if _reporter.page is None or torch.compiler.is_compiling() or not dist.is_initialized():
            return original(self, *arguments, **options)
        begun = begin_call(self, options.get("process_group"))
        try:
            return original(self, *arguments, **options)
        finally:
            _end_call(begun, None)

    setattr(owner, name, call)


def _report_data_parallel():
    wrapper = torch.nn.parallel.DistributedDataParallel
    _logged_method(wrapper, "__init__", "construction_of_DistributedDataParallel")
    _logged_method(wrapper, "_sync_buffers", "broadcast of the buffers")
    _report_forward(wrapper)


def install():
    """Installs the hooks, once in each process; torch has been imported."""
    if _reporter.page is None:
        return
    _report_optimizer()
    if torch.distributed.is_available():
        _log_collectives()
        _report_groups()
        _report_data_parallel()
    from torch.utils.data import dataloader

    _in_phase("data", dataloader._BaseDataLoaderIter, "__next__")
