"""api.py - contexts, targets, plans and calls: the header's functions as objects. Owns handles and the life of what C
points to.

Keywords are members of the header's structs, so that a member added there is a keyword here once abi.py is
regenerated.
"""

import ctypes
import json
import math
import os
import sys
import warnings

from . import abi, ctypes_abi, library, lines, nvrtc, shapes, values

OPERATORS = {  # name -> struct prefix, plan and execute functions, whether execute takes a workspace
    "prefill": ("gdn_prefill", "gdn_plan_prefill", "gdn_execute_prefill"),
    "conv1d_qkv": ("gdn_conv1d", "gdn_plan_conv1d_qkv", "gdn_execute_conv1d_qkv"),
}


def current_stream():
    """torch's current stream as an integer; 0, the default stream, where torch is not loaded."""
    return stream_of_call(None, None)


def stream_of_call(gpu, stream):
    """The stream of a call, torch's current one where that is None. A call goes to the current GPU, by its stream, so
    tensors lie there; gpu: their ordinal, None where it is not known.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return 0 if stream is None else stream
    current = None if gpu is None else torch.cuda.current_device()
    if gpu != current:
        raise ValueError(
            f"the tensors are on cuda:{gpu} and the current GPU is cuda:{current}: call under torch.cuda.device({gpu})"
        )
    return torch.cuda.current_stream().cuda_stream if stream is None else stream


SHAPES = {"prefill": shapes.prefill, "conv1d_qkv": shapes.conv1d_qkv}
ADDRESSES = {  # members of an args struct that are tensors or addresses
    op: {m for m, kind in abi.STRUCTS[names[0] + "_args"] if kind == "gdn_devptr"} for op, names in OPERATORS.items()
}
LAYOUTS_KEPT = 256


def make_args(op, given, desc, device="cuda"):
    name, args = OPERATORS[op][0] + "_args", dict(given)
    values.check_tensors(name, args, desc, device)
    SHAPES[op](args, desc)
    struct = values.fill(name, args)
    if device == "cpu":
        lines.check(name, given, struct, desc)
    return struct


def make_desc(op, given):
    return values.fill(OPERATORS[op][0] + "_desc", given)


def takes_workspace(function):
    """Whether the function has a workspace's address and size before its stream."""
    return "size_t" in abi.FUNCTIONS[function]["args"]


def workspace_arguments(function, workspace, size):
    if not takes_workspace(function):
        return ()
    if workspace is None:
        return 0, 0
    if not values.is_tensor(workspace):
        if size is None:
            raise TypeError("workspace is an address: give workspace_size, its bytes, too")
        room = values.integer("workspace", ctypes.c_uint64, workspace)
        return room, values.integer("workspace_size", ctypes.c_size_t, size)
    if not getattr(workspace, "is_cuda", True):
        raise ValueError(f"workspace is on {workspace.device}: this call takes one on cuda")
    if not workspace.is_contiguous():
        raise ValueError(f"workspace has strides {tuple(workspace.stride())}: pass a contiguous tensor")
    held = workspace.numel() * workspace.element_size()
    if size is not None and not 0 <= size <= held:
        raise ValueError(f"workspace_size is {size}, and workspace has {held} bytes: give 0 to {held}, or leave it out")
    return workspace.data_ptr(), held if size is None else size


def warn_unclosed(thing, consequence, _warn=warnings.warn):
    """Of what is collected with its handle: nothing is unloaded from there, since its kernels may be running."""
    if thing.handle:
        name = type(thing).__name__
        text = f"a {name} was not closed, so {consequence}: close() it, or use `with`, when nothing of it runs"
        _warn(text, ResourceWarning, source=thing)


class Target:
    """What to compile for; members of gdn_target are attributes."""

    def __init__(self, struct):
        self.struct = struct

    def __getattr__(self, name):
        if name == "struct":
            raise AttributeError(name)
        value = getattr(self.struct, name)
        return values.text_of(value) if isinstance(value, bytes) else value

    def __repr__(self):
        return f"Target({self.gpu_name or self.arch!r}, {self.arch}, {self.num_sms} SMs)"


def check_target(target):
    if not isinstance(target, Target):
        named = repr(target) if isinstance(target, str) else "device=0"
        raise TypeError(f"target is {target!r}: give a Target, as Context.target({named}) makes one")


class Context:
    """gdn_ctx. Keywords are members of gdn_config; bundle_dirs is one path or several, log a function of (level,
    message). Paths are str, bytes or os.PathLike."""

    handle = None

    def __init__(self, log=None, bundle_dirs=(), **config):
        self.lib = library.load()
        self._struct = values.fill("gdn_config", config)
        if self._struct.nvrtc_path is None:
            found = nvrtc.path_for(not self._struct.flags & abi.CONSTANTS["GDN_CTX_NO_ENV"])
            self._struct.nvrtc_path = values.c_text("nvrtc_path", found) if found else None
        dirs = values.c_texts("bundle_dirs", bundle_dirs)
        self._keep = [(ctypes.c_char_p * len(dirs))(*dirs)]
        if dirs:
            self._struct.bundle_dirs = ctypes.cast(self._keep[0], type(self._struct.bundle_dirs))
            self._struct.num_bundle_dirs = len(dirs)
        if log:
            say = lambda _user, level, text: log(level, values.text_of(text))  # noqa: E731
            self._keep.append(ctypes_abi.CALLBACKS["gdn_log_fn"](say))
            self._struct.log_fn = self._keep[-1]
        self._plans = {}  # address -> handle of those that are not closed; no Plan, so that one let go is collected
        self.handle = ctypes.c_void_p()
        self.lib.gdn_ctx_create(ctypes.byref(self.handle), ctypes.byref(self._struct))

    def close(self):
        """Destroys the plans made here, then the context. Nothing of it may be running."""
        for handle in list(self._plans.values()):
            self._destroy_plan(handle)
        if self.handle:
            self.lib.gdn_ctx_destroy(self.handle)
            self.handle.value = None

    def _destroy_plan(self, handle):
        """In place, since the plan's calls hold the handle."""
        if handle:
            del self._plans[handle.value]
            self.lib.gdn_plan_destroy(handle)
            handle.value = None

    def __del__(self):
        warn_unclosed(self, "what it loaded stays loaded")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def target(self, name=None, device=0):
        """A GPU or an arch by name, which needs no GPU; else a device by its ordinal."""
        out = ctypes_abi.new("gdn_target")
        if name is not None:
            self.lib.gdn_target_from_name(self.handle, values.c_text("name", name), ctypes.byref(out))
        else:
            ordinal = values.integer("device", ctypes.c_int, device)
            self.lib.gdn_target_from_device(self.handle, ordinal, ctypes.byref(out))
        return Target(out)

    def plan_prefill(self, target, plan_flags=0, **desc):
        """desc: members of gdn_prefill_desc; plan_flags: GDN_PLAN_*, as a number or by name."""
        return Plan(self, "prefill", target, plan_flags, desc)

    def plan_conv1d_qkv(self, target, plan_flags=0, **desc):
        return Plan(self, "conv1d_qkv", target, plan_flags, desc)

    def prefill(self, desc, workspace=None, workspace_size=None, stream=None, **args):
        """One call: plan for the current device, load, execute. desc: a dict of gdn_prefill_desc's members."""
        self._one_call("prefill", "gdn_prefill", desc, workspace, workspace_size, stream, args)

    def prefill_workspace_size(self, desc, stream=None):
        """Bytes of workspace with which prefill() of desc runs its fastest kernel; plans and loads on first use."""
        size = ctypes.c_size_t()
        desc, stream = make_desc("prefill", desc), stream_of_call(None, stream)
        self.lib.gdn_prefill_workspace_size(self.handle, ctypes.byref(desc), stream, ctypes.byref(size))
        return size.value

    def conv1d_qkv(self, desc, workspace=None, workspace_size=None, stream=None, **args):
        self._one_call("conv1d_qkv", "gdn_conv1d_qkv", desc, workspace, workspace_size, stream, args)

    def _one_call(self, op, function, desc, workspace, size, stream, args):
        stream = stream_of_call(values.one_gpu({**args, "workspace": workspace}), stream)
        desc = make_desc(op, desc)
        struct = make_args(op, args, desc)
        getattr(self.lib, function)(
            self.handle,
            ctypes.byref(desc),
            ctypes.byref(struct),
            *workspace_arguments(function, workspace, size),
            stream,
        )

    def cache_stats(self):
        out = ctypes_abi.new("gdn_cache_stats")
        self.lib.gdn_cache_stat(self.handle, ctypes.byref(out))
        return values.as_dict(out)

    def cache_dir(self):
        """The directory in use; None when cubins are kept in memory only."""
        if not self.handle:
            raise ValueError("the context is closed, and has no cache_dir: ask one that is not")
        found = self.lib.gdn_cache_dir(self.handle)
        return os.fsdecode(found) if found else None

    def cache_entries(self):
        """The cache directory's entries, as dicts."""
        found = []
        kind = ctypes_abi.argument_of(abi.FUNCTIONS["gdn_cache_list"]["args"][1])
        self.lib.gdn_cache_list(
            self.handle, kind(lambda _user, entry: found.append(values.as_dict(entry[0])) or 0), None
        )
        return found

    def examine(self):
        """What this machine has and lacks: driver, NVRTC, cache."""
        out = ctypes_abi.new("gdn_doctor")
        self.lib.gdn_examine(self.handle, ctypes.byref(out))
        return values.as_dict(out)


def variant_of(variants, num_tokens, num_seqs):
    """Of a dump's variants the one with the narrowest slot that holds the call; a slot of 0 seqs holds any number.

    Of two of one slot the one that cuts sequences; the other takes calls that are not cut.
    """
    variants = sorted(variants, key=lambda v: not v.get("cuts"))
    slots = [(s["tokens"], s["seqs"] or math.inf, i) for i, v in enumerate(variants) for s in v["chosen_by"]]
    edges = {edge for edge, _, _ in slots}
    tokens = min((edge for edge in edges if edge >= num_tokens), default=max(edges))  # the last slot has no upper end
    return variants[min((seqs, i) for edge, seqs, i in slots if edge == tokens and seqs >= num_seqs)[1]]


class Plan:
    """gdn_plan: everything that calls within its descriptor's bounds need, compiled."""

    handle = None

    def __init__(self, context, op, target, plan_flags, desc):
        check_target(target)
        self.context, self.op, self.lib = context, op, context.lib
        self.handle = ctypes.c_void_p()
        self.desc = struct = make_desc(op, desc)
        getattr(self.lib, OPERATORS[op][1])(
            context.handle,
            ctypes.byref(target.struct),
            ctypes.byref(struct),
            values.flags_value("gdn_plan", plan_flags, "plan_flags"),
            ctypes.byref(self.handle),
        )
        self._layouts = {}  # what calls were checked by -> Checked
        context._plans[self.handle.value] = self.handle

    def close(self):
        """Frees it. None of its calls may be running."""
        self.context._destroy_plan(self.handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        warn_unclosed(self, "it stays loaded until its context is closed")

    def load(self, device=0):
        self.lib.gdn_plan_load(self.handle, values.integer("device", ctypes.c_int, device))
        return self

    @property
    def workspace_size(self):
        check_open(self.handle)  # C's answer of no plan is 0, as of one that needs none
        return self.lib.gdn_plan_workspace_size(self.handle)

    def dump(self, kind="json"):
        """bytes of one gdn_dump_kind; "json" is parsed, texts are decoded."""
        pieces = []

        def write(_user, data, size):
            pieces.append(ctypes.string_at(data, size))
            return 0

        number = values.enum_value("gdn_dump_kind", kind, "kind")
        self.lib.gdn_plan_dump(self.handle, number, ctypes_abi.CALLBACKS["gdn_write_fn"](write), None)
        data = b"".join(pieces)
        if number == abi.ENUMS["gdn_dump_kind"]["GDN_DUMP_CUBIN"]:
            return data
        text = values.text_of(data)
        return json.loads(text) if number == abi.ENUMS["gdn_dump_kind"]["GDN_DUMP_JSON"] else text

    def variant(self, num_tokens, num_seqs):
        """What the JSON dump says of the variant that such a call takes."""
        return variant_of(self.dump()["variants"], num_tokens, num_seqs)

    def cost(self, num_tokens, num_seqs):
        out, counts = ctypes_abi.new("gdn_cost"), dict(num_tokens=num_tokens, num_seqs=num_seqs)
        counts = (values.integer(member, ctypes.c_int64, count) for member, count in counts.items())
        self.lib.gdn_plan_cost(self.handle, *counts, ctypes.byref(out))
        return values.as_dict(out)

    def bind(self, workspace=None, workspace_size=None, **args):
        """A call whose arguments are fixed: call it with a stream, or with nothing for torch's current one."""
        return Call(self, workspace, workspace_size, args)

    def execute(self, workspace=None, workspace_size=None, stream=None, **args):
        """Enqueues one call. Keywords are members of the operator's args struct: tensors, addresses, None, numbers.
        Tensors with the shapes, strides, dtypes and devices of an earlier call's are taken by their addresses.
        """
        checked = self._checked(args, workspace)
        room = workspace_arguments(OPERATORS[self.op][2], workspace, workspace_size)
        checked.run(args, stream_of_call(checked.gpu, stream), *room)

    def _checked(self, args, workspace):
        addresses = ADDRESSES[self.op]
        try:
            key = (getattr(workspace, "device", None), *(checked_by(m in addresses, m, v) for m, v in args.items()))
            found = self._layouts.get(key)
        except TypeError:  # strides in a dict or a list are no key
            return Checked(self, args, workspace)
        if found is None:
            found = Checked(self, args, workspace)
            keep(self._layouts, key, found)
        return found


def keep(layouts, key, checked):
    """Remembers it; where that would be one too many, the others are forgotten."""
    if len(layouts) >= LAYOUTS_KEPT:
        layouts.clear()
    layouts[key] = checked


class Checked:
    """A call that was checked, but for the addresses of its tensors: one that is like it in all else needs no more."""

    def __init__(self, plan, args, workspace=None):
        struct = make_args(plan.op, args, plan.desc)
        self.gpu = values.one_gpu({**args, "workspace": workspace})
        self._function, self._handle = getattr(plan.lib, OPERATORS[plan.op][2]), plan.handle
        self._takes_workspace = takes_workspace(OPERATORS[plan.op][2])
        self._kind, self._raw = type(struct), bytes(struct)
        self._members = tuple(m for m in args if m in ADDRESSES[plan.op] and args[m] is not None)

    def run(self, args, stream, workspace=0, size=0):
        """Enqueues it with the addresses of `args`. stream: as an integer, of the GPU that is current; workspace, size:
        an address and its bytes, of no meaning to an operator that takes none.
        """
        struct = self._kind.from_buffer_copy(self._raw)
        for member in self._members:
            setattr(struct, member, values.address_of(member, args[member]))
        check_open(self._handle)
        room = (workspace, size) if self._takes_workspace else ()
        self._function(self._handle, ctypes.byref(struct), *room, stream)


def checked_by(is_address, member, value):
    """All of an argument that make_args() and one_gpu() look at."""
    if values.is_tensor(value):
        return member, values.layout_of(value)
    return member, (value is None, bool(value)) if is_address else value


def check_open(handle):
    if not handle:
        raise ValueError("the plan is closed: make another, and bind the arguments of a call to that")


class Call:
    """Arguments of one execute, taken once; holds the tensors, so that their memory stays. One that is rebound is of
    one thread at a time: rebind() writes what a call reads.
    """

    def __init__(self, plan, workspace, workspace_size, args):
        self._plan, self._name = plan, OPERATORS[plan.op][2]
        self._function, self._seen = getattr(plan.lib, self._name), {}
        self._take({**args, "workspace": workspace, "workspace_size": workspace_size})

    def _take(self, given):
        """Checks it all, then keeps it: where something is refused the call stays what it was."""
        check_open(self._plan.handle)
        args = {m: value for m, value in given.items() if m not in ("workspace", "workspace_size")}
        struct, gpu = make_args(self._plan.op, args, self._plan.desc), values.one_gpu(given)
        fixed = self._arguments(struct, given)
        self._given, self._struct, self._gpu, self._fixed = given, struct, gpu, fixed

    def _arguments(self, struct, given):
        room = workspace_arguments(self._name, given["workspace"], given["workspace_size"])
        return self._plan.handle, ctypes.byref(struct), *room

    def rebind(self, **given):
        """Takes other tensors or addresses for the next calls, by the keywords of bind(); what is not named stays, and
        so does all of it where something is refused. A tensor like the one that was checked last (shape, strides,
        dtype, device) is taken by its address; else everything is checked anew, and counts that nobody gave follow.
        """
        held = {**self._given, **given}
        if not all(m in self._seen and self._seen[m] == values.layout_of(value) for m, value in given.items()):
            self._take(held)
            kinds = values.MEMBERS[OPERATORS[self._plan.op][0] + "_args"]
            tensors = (m for m in held if m == "workspace" or kinds.get(m) == "gdn_devptr")
            self._seen = {m: values.layout_of(held[m]) for m in tensors}
            return self
        addresses = {m: values.address_of(m, value) for m, value in given.items() if m != "workspace"}
        if "workspace" in given:
            self._fixed = self._arguments(self._struct, held)
        for member, address in addresses.items():
            setattr(self._struct, member, address)
        self._given = held
        return self

    def __call__(self, stream=None):
        check_open(self._fixed[0])
        self._function(*self._fixed, stream_of_call(self._gpu, stream))


def _reference(op, desc, args):
    desc = make_desc(op, desc)
    args = make_args(op, args, desc, "cpu")
    getattr(library.load(), "gdn_reference_" + op)(ctypes.byref(desc), ctypes.byref(args))


def reference_prefill(desc, **args):
    """The operator on the host in float64; tensors and addresses are the host's."""
    _reference("prefill", desc, args)


def reference_conv1d_qkv(desc, **args):
    _reference("conv1d_qkv", desc, args)


def version():
    number = library.load().gdn_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _support(op, target, plan_flags, desc):
    check_target(target)
    out, struct = ctypes_abi.new("gdn_support"), make_desc(op, desc)
    ask = getattr(library.load(), OPERATORS[op][0] + "_support")
    flags = values.flags_value("gdn_plan", plan_flags, "plan_flags")
    ask(ctypes.byref(target.struct), ctypes.byref(struct), flags, ctypes.byref(out))
    return values.as_dict(out)


def prefill_support(target, plan_flags=0, **desc):
    """{"kernel", "reason"} of a plan of a descriptor on a target, before any compile; GdnError where there is none."""
    return _support("prefill", target, plan_flags, desc)


def conv1d_qkv_support(target, plan_flags=0, **desc):
    return _support("conv1d_qkv", target, plan_flags, desc)


def target_names():
    """(name, arch) of every GPU and arch that Context.target() knows."""
    found = []
    kind = ctypes_abi.argument_of(abi.FUNCTIONS["gdn_target_names"]["args"][0])
    take = lambda _user, name, arch: found.append((values.text_of(name), values.text_of(arch)))  # noqa: E731
    library.load().gdn_target_names(kind(take), None)
    return found
