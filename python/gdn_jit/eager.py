"""eager.py - torch operators of this library, and how a call of one runs: by the dispatcher where somebody there wants
to see it, else at once; its plan, workspace and stream. Knows no operator's arguments.

A prefill's workspace comes from torch's caching allocator, for the length of the call: the allocator gives memory that
is freed so to later work of the same stream alone, and within a capture takes it from the graph's own pool. So no two
streams share one, and nothing is held beside the allocator's cache.
"""

import re

import torch
from torch import Tensor

from . import api, serving, values
from .library import GdnError

# Of a schema's words, what needs nothing from the dispatcher; "?" adds None. What is of another type is the
# dispatcher's to convert or to refuse.
PLAIN_TYPES = {
    "Tensor": (Tensor, torch.nn.Parameter),
    "float": (float, int),
    "int": (int,),
    "SymInt": (int,),
    "bool": (bool,),
    "str": (str,),
    "ScalarType": (torch.dtype,),
}


def refuse_grad(name, given):
    """ValueError where torch would expect a backward; what is no tensor needs none."""
    if torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in given):
        raise ValueError(
            f"{name} is for inference, and a tensor that it is given requires grad: call it under torch.no_grad() or "
            "torch.inference_mode(), or detach() what it is given"
        )


# ---- Which calls the dispatcher has to see ----


def _probe(path):
    """A function of torch._C that says whether somebody looks at calls; one that says yes where torch has none."""
    found = torch._C
    for name in path.split("."):
        found = getattr(found, name, None)
    return found or (lambda: True)


_dispatch_modes, _transforms = _probe("_len_torch_dispatch_stack"), _probe("_functorch.peek_interpreter_stack")
_profiling = _probe("_autograd._profiler_enabled")


def is_watched():
    """Whether a mode, a transform, forward-mode autograd, a tracer or a profiler is on, which see operators by the
    dispatcher alone.
    """
    dual = getattr(torch.autograd.forward_ad, "_current_level", 0) >= 0
    return bool(_dispatch_modes() or _transforms() or dual or _profiling() or torch.jit.is_tracing())


class Operator:
    """gdn_jit::<name>, for all that goes through the dispatcher: torch.compile, export, modes, profilers. Called with
    plain values where nobody looks it is `function` itself, which spares 15 to 40 us.
    """

    def __init__(self, name, schema, writes, function):
        self.function = function
        self.definition = torch.library.custom_op(f"gdn_jit::{name}", mutates_args=writes, schema=schema)(function)
        self.dispatched = getattr(torch.ops.gdn_jit, name)
        takes = re.findall(r"(\w+)(?:\(\w!\))?(\??) (\w+)[=,)]", schema[: schema.index(" ->")])
        self._names = tuple(argument for _, _, argument in takes)
        self._types = {a: PLAIN_TYPES[word] + ((type(None),) if maybe else ()) for word, maybe, a in takes}
        self._writes = tuple((self._names.index(argument), argument) for argument in writes)

    def __call__(self, *args, **options):
        if torch.compiler.is_compiling() or is_watched() or not self._takes_as_they_are(args, options):
            return self.dispatched(*args, **options)
        result = self.function(*args, **options)
        for place, argument in self._writes:
            written = args[place] if place < len(args) else options.get(argument)
            if written is not None:
                torch.autograd.graph.increment_version(written)
        return result

    def _takes_as_they_are(self, args, options):
        types = self._types
        for argument, value in zip(self._names, args):
            if type(value) not in types[argument]:
                return False
        for argument, value in options.items():
            if type(value) not in types.get(argument, ()):
                return False
        return len(args) <= len(self._names)


def operator(name, schema, writes=()):
    """Makes an Operator of the function that it decorates."""
    return lambda function: Operator(name, schema, writes, function)


# ---- A call ----


def run(op, describe, args, options, device, plan_flags=0):
    """One call of "prefill" or "conv1d_qkv" on `device`, that of its tensors.

    args      members of the args struct, but for counts, always in one order
    options   a tuple of all else that the call depends on but addresses
    describe  (args, options) -> (desc, counts): the descriptor's members, without bounds, and the args' counts. Asked
              only of a call that has no like among those before
    """
    if device.type == "cuda":
        _run_on_gpu(op, describe, args, options, device, plan_flags)
        return
    if device.type != "cpu":
        raise ValueError(f"gdn_jit::{op} runs on cuda and cpu, and the tensors are on {device}")
    desc, counts = describe(args, options)
    (api.reference_prefill if op == "prefill" else api.reference_conv1d_qkv)(desc, **args, **counts)


def _layout(value):
    return values.layout_of(value) if values.is_tensor(value) else value


def _run_on_gpu(op, describe, args, options, device, plan_flags):
    kept = serving.serving().checked
    key = (describe, device.index, plan_flags, options, *args, *map(_layout, args.values()))
    checked = kept.get(key)
    if checked is None:
        checked = _check(op, describe, args, options, device.index, plan_flags)
        api.keep(kept, key, checked)
    if torch.cuda.current_device() == device.index:
        _enqueue(*checked, args, device)
    else:
        with torch.cuda.device(device):
            _enqueue(*checked, args, device)


def _check(op, describe, args, options, gpu, plan_flags):
    """(api.Checked, bytes of workspace)."""
    desc, counts = describe(args, options)
    bounds = counts["num_tokens"], counts["num_seqs"]
    held = serving.serving().plan_for(op, tuple(desc.items()), gpu, *bounds, plan_flags)
    return api.Checked(held.plan, {**args, **counts}), held.workspace_size


def _enqueue(checked, workspace_size, args, device):
    workspace = torch.empty(workspace_size, dtype=torch.uint8, device=device) if workspace_size else None
    room = (workspace.data_ptr(), workspace_size) if workspace_size else ()
    try:
        checked.run(args, _current_stream(device.index), *room)
    except GdnError as e:
        if e.name != "GDN_E_NOT_LOADED":
            raise
        # A thread has no current context before its first call of the CUDA runtime, which the allocator's cache
        # may have spared it. Here is one.
        torch.zeros(1, device=device)
        checked.run(args, _current_stream(device.index), *room)


_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _current_stream(gpu):
    """As an integer; torch's own way to it makes a Stream of it first."""
    return torch.cuda.current_stream(gpu).cuda_stream if _raw_stream is None else _raw_stream(gpu)
