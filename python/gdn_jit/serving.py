"""serving.py - the process's context and the plans that its calls share: what torch operators and drop-ins run on.
Knows no operator's arguments and imports no torch.

One context a process, made at first use or by configure(). Plans are looked up by operator, device, plan flags and
descriptor, without its bounds. A call beyond the bounds of the plan that is held makes a larger one in its place, with
bounds rounded up to powers of four: few plans, however sizes grow. The ones before stay, since graphs and other threads
may have them. Lookups take no lock; `_lock` is held by who makes a plan, and by configure() and close().
"""

import atexit
import collections
import functools
import os
import sys
import threading

from . import abi, api, values
from .library import GdnError

SMALLEST_BOUND = 256
LARGEST_BOUND = 2**31 - 1
BOUNDS = ("max_tokens", "max_seqs")
# A plan of rounded bounds that fails so may do with closer ones, which need less workspace, or other cubins: sixteenths
# of the power of four, then the call's own.
TRY_SMALLER_BOUNDS = ("GDN_E_UNSUPPORTED", "GDN_E_NOT_CACHED", "GDN_E_NO_NVRTC")
FINER = 16


class Held(collections.namedtuple("Held", ("plan", "tokens", "seqs", "workspace_size"))):
    """A loaded plan and its bounds."""

    __slots__ = ()

    def serves(self, tokens, seqs):
        return tokens <= self.tokens and seqs <= self.seqs


_lock = threading.RLock()
_serving = None


def bucket(count):
    """The bound that a call of so many tokens or sequences is planned for: a power of four, 256 at least."""
    bound = SMALLEST_BOUND
    while bound < count:
        bound *= 4
    return max(count, min(bound, LARGEST_BOUND))


@functools.lru_cache(maxsize=1024)
def key_of(op, desc):
    """Bytes of the descriptor of (member, value) pairs, equal however the same values were spelled, or left to 0."""
    struct = api.make_desc(op, dict(desc))
    for member, meaning in values.ZERO_MEANS[type(struct).__name__].items():
        if not getattr(struct, member):
            stands_for = getattr(struct, meaning, None) or abi.ENUMS["gdn_dtype"].get(meaning)
            setattr(struct, member, stands_for)
    if op == "conv1d_qkv":
        struct.x_alignment = struct.x_alignment or 16
    return bytes(struct)


def stream_is_capturing():
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def spelled(op, desc, device, tokens, seqs, plan_flags):
    """The reserve() that makes the plan which a call lacks, to be pasted."""
    words = [repr(op), f"max_tokens={tokens}", f"max_seqs={seqs}", f"device={device}"]
    words += [f"plan_flags={plan_flags}"] if plan_flags else []
    words += [f"{m}={v!r}" if isinstance(v, (int, tuple)) else f"{m}={str(v)!r}" for m, v in desc]
    return f"reserve({', '.join(words)})"


class Serving:
    """A context and its plans. own: whether close() closes the context, which is so where it was made here."""

    def __init__(self, context, own, plan_flags, max_tokens, max_seqs, plan_on_call):
        self.context, self.own, self.pid = context, own, os.getpid()
        self.plan_flags, self.plan_on_call = values.flags_value("gdn_plan", plan_flags, "plan_flags"), plan_on_call
        self.least = (max_tokens, max_seqs)
        self.plans = {}  # (op, device, plan flags, descriptor's bytes) -> Held, the largest
        self.made = []  # every plan, larger ones' predecessors too
        self.checked = {}  # calls of operators that were checked, eager.py's

    def plan_for(self, op, desc, device, tokens, seqs, plan_flags=0):
        """Held whose bounds hold a call; makes it where there is none.

        desc: a tuple of (member, value), without bounds. RuntimeError: there is none, and the stream is capturing, or
        configure() said that calls do not plan. GdnError: what planning and loading return.
        """
        key = (op, device, self.plan_flags | plan_flags, key_of(op, desc))
        held = self.plans.get(key)
        if held is not None and held.serves(tokens, seqs):
            return held
        self._check_may_plan(op, desc, device, tokens, seqs, plan_flags)
        return self._make_for(key, desc, tokens, seqs, rounded=True)

    def reserve(self, op, desc, device, tokens, seqs, plan_flags=0):
        """The same ahead of calls, with these bounds as they are."""
        key = (op, device, self.plan_flags | plan_flags, key_of(op, desc))
        return self._make_for(key, desc, tokens, seqs, rounded=False)

    def _check_may_plan(self, op, desc, device, tokens, seqs, plan_flags):
        capturing = stream_is_capturing()
        if self.plan_on_call and not capturing:
            return
        why = "the stream is capturing, where nothing is compiled or loaded" if capturing else "plan_on_call is False"
        call = spelled(op, desc, device, tokens, seqs, plan_flags)
        raise RuntimeError(
            f"{op} has no plan for {tokens} tokens in {seqs} sequences of this shape on cuda:{device}, and {why}: call "
            f"gdn_jit.serving.{call} before, or run such a call once"
        )

    def _make_for(self, key, desc, tokens, seqs, rounded):
        """A plan for the call and for all that the one before it served."""
        with _lock:
            before = self.plans.get(key, Held(None, 0, 0, 0))
            if before.plan is None or not before.serves(tokens, seqs):
                needed = (max(tokens, before.tokens), max(seqs, before.seqs))
                self.plans[key] = self._made(key, desc, needed, self._rounded(needed, before) if rounded else needed)
            return self.plans[key]

    def _rounded(self, needed, before):
        bounds = zip(needed, before[1:3], self.least)
        return tuple(max(bucket(need) if need > had else had, least) for need, had, least in bounds)

    def _made(self, key, desc, needed, bounds):
        steps = tuple(max(need, -(-need * FINER // bucket(need)) * bucket(need) // FINER) for need in needed)
        for tried in (bounds, steps):
            try:
                return self._planned(key, desc, tried)
            except GdnError as e:
                if e.name not in TRY_SMALLER_BOUNDS or bounds == needed:
                    raise
        return self._planned(key, desc, needed)

    def _planned(self, key, desc, bounds):
        op, device, flags, _ = key
        make = self.context.plan_prefill if op == "prefill" else self.context.plan_conv1d_qkv
        plan = make(self.context.target(device=device), plan_flags=flags, **dict(desc), **dict(zip(BOUNDS, bounds)))
        self.made.append(plan)
        return Held(plan.load(device), *bounds, plan.workspace_size)


def serving():
    """The process's Serving, made at first use. RuntimeError in a child of fork() that has its parent's."""
    held = _serving
    if held is None:
        with _lock:
            return _serving or configure()
    if held.pid != os.getpid():
        raise RuntimeError(
            f"gdn_jit's context is of process {held.pid}, of which this one is a fork: a child cannot use it. Start "
            "workers by spawn, or call gdn_jit in the children alone; where the parent has not used CUDA, "
            "gdn_jit.serving.configure() in the child makes one of its own"
        )
    return held


def configure(context=None, plan_flags=0, max_tokens=0, max_seqs=0, plan_on_call=True, **config):
    """Sets what operators and drop-ins of this process run on; before their first call, or after close().

    context       a Context, which stays the caller's to close; else one is made of `config`, members of gdn_config
    plan_flags    GDN_PLAN_* of every plan, as a number or by name: "batch_invariant"
    max_tokens,   the most that the engine schedules in a call: no plan has smaller bounds, so that each shape has one
    max_seqs      plan for good
    plan_on_call  False: a call beyond what is planned is a RuntimeError, never a compile
    """
    global _serving
    with _lock:
        if _serving is not None and _serving.pid == os.getpid() and _serving.plans:
            raise RuntimeError("gdn_jit has plans by now: configure() it before the first call, or close() it first")
        if context is not None and config:
            raise TypeError(f"a context is given, and {', '.join(config)} for one to be made: give one of the two")
        own = context is None
        made = api.Context(**config) if own else context
        _close_own(_serving)
        _serving = Serving(made, own, plan_flags, max_tokens, max_seqs, plan_on_call)
        return _serving


def _renew_lock():
    """In a child of fork(): a thread that is not there may have held the parent's."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _close_own(held):
    """Its plans, and the context where it was made here."""
    if held is None:
        return
    if held.pid != os.getpid():
        _abandon(held)
    elif held.own:
        held.context.close()
    else:
        for plan in held.made:
            plan.close()


def _abandon(held):
    """Of a parent process, or of one that ends: nothing may be, or need be, destroyed. Nor is it warned of."""
    if held is not None and held.own:
        for thing in (held.context, *held.made):
            thing.handle = None


atexit.register(lambda: _abandon(_serving))


def close():
    """Closes the plans, and the context unless it is the caller's. Nothing of it may be running."""
    global _serving
    with _lock:
        held, _serving = _serving, None
        _close_own(held)


def reserve(op, max_tokens, max_seqs, device=0, plan_flags=0, **desc):
    """Plans and loads ahead what calls of one shape will need; compiles what no cache has. At an engine's start.

    op    "prefill" or "conv1d_qkv"
    desc  members of its descriptor as the calls will have them: python/README.md has those of each drop-in
    Bounds are taken as they are. Returns the bytes of workspace that such a call takes from torch's allocator.
    """
    flags = values.flags_value("gdn_plan", plan_flags, "plan_flags")
    return serving().reserve(op, tuple(desc.items()), device, max_tokens, max_seqs, flags).workspace_size


def plans():
    """One dict a plan that calls take: op, device, plan_flags, max_tokens, max_seqs, workspace_size."""
    members = ("op", "device", "plan_flags")
    return [
        {**dict(zip(members, key)), "max_tokens": h.tokens, "max_seqs": h.seqs, "workspace_size": h.workspace_size}
        for key, h in list(serving().plans.items())
    ]


WHOLE_SEQUENCES = abi.CONSTANTS["GDN_PLAN_WHOLE_SEQUENCES"]
