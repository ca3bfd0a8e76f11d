"""ours.py - gdn-jit through python/gdn_jit. Both operators; what the library has no switch for is Unsupported."""

import os
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import gdn_jit  # noqa: E402
from gdn_jit import abi, values  # noqa: E402

from core import rows  # noqa: E402

from .base import Impl, Unsupported  # noqa: E402

GENERIC_KERNEL, MANY_SEQS = "generic", 1024
UNTOLD = "GDN_BENCH_UNTOLD"  # calls do not say how long their longest sequence is: in_turns.py
CONV_FLAGS = {
    "silu": "GDN_CONV_SILU",
    "bias": "GDN_CONV_BIAS",
    "norm": "GDN_CONV_L2_NORM",
    "checkpoints": "GDN_CONV_CHECKPOINTS",
}


class Default(Impl):
    """What the library chooses by itself; labelled gdn-jit-generic where that is the generic kernel."""

    name = "gdn-jit"
    ops = ("gdn_prefill", "conv1d_qkv")
    launches = 2
    norms = True
    plan_flags = ()

    def __init__(self):
        self.context = gdn_jit.Context()
        self.target = self.context.target(device=torch.cuda.current_device())
        self.plans = {}

    def versions(self):
        return {"gdn-jit": gdn_jit.version()}

    def check(self, row, variant):
        if row.op == "conv1d_qkv":
            self.conv_flags(row)

    def conv_flags(self, row):
        wanted = [CONV_FLAGS[f] for f in row.features if f in CONV_FLAGS]
        missing = [f for f in wanted if f not in abi.CONSTANTS]
        if "gates" in row.features and "num_gate_heads" not in values.MEMBERS["gdn_conv1d_desc"]:
            missing.append("num_gate_heads")
        if missing:
            raise Unsupported(f"this library has no {', '.join(missing)}")
        return wanted

    def plan(self, row):
        """One plan a row, loaded."""
        key = rows.key(row)
        if key not in self.plans:
            desc = self.gdn_desc(row) if row.op == "gdn_prefill" else self.conv_desc(row)
            make = self.context.plan_prefill if row.op == "gdn_prefill" else self.context.plan_conv1d_qkv
            self.plans[key] = make(self.target, plan_flags=self.plan_flags, **desc).load(torch.cuda.current_device())
        return self.plans[key]

    def gdn_desc(self, row):
        return dict(
            io_type=row.dtype.replace("fp16", "f16"),
            num_q_heads=row.hk,
            num_k_heads=row.hk,
            num_v_heads=row.hv,
            head_dim_qk=rows.DIM,
            head_dim_v=rows.DIM,
            flags=("GDN_PREFILL_QK_L2NORM",) if row.normed else (),
            max_tokens=row.tokens,
            max_seqs=len(row.lens),
        )

    def conv_desc(self, row):
        gates = {"num_gate_heads": row.gate_heads} if "gates" in row.features else {}
        return dict(
            **gates,
            io_type=row.dtype.replace("fp16", "f16"),
            num_q_heads=row.q_dim // rows.DIM,
            num_k_heads=row.k_dim // rows.DIM,
            num_v_heads=row.v_dim // rows.DIM,
            head_dim_qk=rows.DIM,
            head_dim_v=rows.DIM,
            width=row.width,
            flags=self.conv_flags(row),
            max_tokens=row.tokens,
            max_seqs=len(row.lens),
        )

    def prepare(self, row, x, variant):
        plan = self.plan(row)
        return self.prepare_gdn(plan, x) if row.op == "gdn_prefill" else self.prepare_conv(plan, row, x)

    def workspace(self, plan):
        size = plan.workspace_size
        return dict(workspace=torch.empty(max(1, size), dtype=torch.uint8, device="cuda"), workspace_size=size)

    def prepare_gdn(self, plan, x):
        o = torch.full_like(x.v, float("nan"))
        state = torch.full((len(x.lens), x.v.shape[1], rows.DIM, rows.DIM), float("nan"), device="cuda")
        call = plan.bind(
            **self.workspace(plan),
            q=x.q,
            k=x.k,
            v=x.v,
            g=x.g,
            beta=x.beta,
            o=o,
            initial_state=x.h0,
            final_state=state,
            cu_seqlens=x.cu,
            scale=x.scale,
            max_seq_tokens=0 if os.environ.get(UNTOLD) else max(x.lens),
        )

        def run():
            call()
            return o, state

        return run

    def prepare_conv(self, plan, row, x):
        q, k, v = (
            torch.full((row.tokens, d), float("nan"), dtype=x.x.dtype, device="cuda")
            for d in (row.q_dim, row.k_dim, row.v_dim)
        )
        outs, more = [q, k, v], {}
        if "gates" in row.features:
            outs += [torch.full((row.tokens, row.gate_heads), float("nan"), device="cuda") for _ in range(2)]
            more = dict(a=x.a, b=x.b, a_log=x.A_log, dt_bias=x.dt_bias, g=outs[3], beta=outs[4])
        if x.checkpoints is not None:
            more["checkpoints"] = x.checkpoints
        call = plan.bind(x=x.x, weight=x.weight, bias=x.bias, q=q, k=k, v=v, state=x.state, cu_seqlens=x.cu, **more)

        def run():
            call()
            return outs, x.state

        return run

    def chosen(self, row):
        return self.plan(row).variant(row.tokens, len(row.lens))

    def label(self, row, variant):
        return "gdn-jit-generic" if GENERIC_KERNEL in self.chosen(row)["kernel"] else "gdn-jit"

    def describe(self, row, x, variant):
        chosen = self.chosen(row)
        params = {"kernel": chosen["kernel"], **chosen["params"]}
        return dict(params=params, nvrtc=self.context.examine()["nvrtc"] or None)


class Whole(Default):
    """What the library chooses where no sequence may be cut, with a workspace."""

    name = "gdn-jit-whole"
    ops = ("gdn_prefill",)
    plan_flags = ("GDN_PLAN_WHOLE_SEQUENCES",)

    def label(self, row, variant):
        return self.name


class Invariant(Whole):
    """One kernel and one length of partitions for all calls."""

    name = "gdn-jit-invariant"
    plan_flags = ("GDN_PLAN_BATCH_INVARIANT",)


class WithoutWorkspace(Default):
    """One kernel, as a call without a workspace runs it: none of few sequences. Rows of another one are Unsupported."""

    ops = ("gdn_prefill",)
    kernel = None

    def gdn_desc(self, row):
        return dict(super().gdn_desc(row), max_seqs=max(MANY_SEQS, len(row.lens)))  # the plan is not for few alone

    def workspace(self, plan):
        return dict(workspace=0, workspace_size=0)

    def chosen(self, row):
        return self.plan(row).variant(row.tokens, MANY_SEQS)

    def label(self, row, variant):
        return self.name

    def check(self, row, variant):
        kernel = self.chosen(row)["kernel"]
        if self.kernel not in kernel:
            raise Unsupported(f"this row runs on {kernel}")


class Generic(WithoutWorkspace):
    """The generic kernel."""

    name = "gdn-jit-generic"
    kernel = GENERIC_KERNEL
    plan_flags = ("GDN_PLAN_GENERIC",)


class Hopper(WithoutWorkspace):
    """The Hopper kernel, sequences whole."""

    name = "gdn-jit-hopper"
    kernel = "hopper"
