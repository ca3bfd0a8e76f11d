"""inputs.py - tensors of a row: the same seed gives the same tensors in every process. GDN's and conv1d's, on the
GPU."""

import math
import types

import torch
import torch.nn.functional as F

from . import rows

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "f32": torch.float32}
FIRST_SEED = 1000
ROTATION_BYTES, MAX_SETS = 240e6, 48  # four times any L2 of today


def sets_for(row):
    """How many input sets rotate, so that none is in L2 when its turn comes again."""
    return max(1, min(MAX_SETS, math.ceil(ROTATION_BYTES / row.floor_bytes())))


def generator(seed, device):
    gen = torch.Generator(device=device)
    gen.manual_seed(seed)
    return gen


def cu_seqlens(lens, device):
    return torch.tensor([0, *torch.tensor(lens).cumsum(0).tolist()], dtype=torch.int32, device=device)


def unit_rows(shape, dtype, gen, device):
    x = torch.randn(shape, device=device, generator=gen, dtype=torch.float32)
    return F.normalize(x, dim=-1).to(dtype)


def spread_lengths(x, gen):
    lengths = torch.randint(-2, 5, x.shape[:-1], device=x.device, generator=gen)
    return torch.ldexp(x.float(), lengths[..., None]).to(x.dtype)


def log_gates(kind, shape, gen, device):
    if kind in ("zero", "alike"):
        return torch.zeros(shape, device=device)
    if kind == "tileops":  # rounded to fp16, so that an implementation with 16-bit gates sees the same
        return -torch.rand(shape, device=device, generator=gen).half().float()
    if kind == "repaired":
        return torch.full(shape, -0.05, device=device)
    g = F.logsigmoid(torch.randn(shape, device=device, generator=gen)) / 16
    if kind == "mixed":
        g[..., 0::4] = 0
    return g


def clear_before_cuts(v, lens):
    """v is 0 in the last 512 tokens before each multiple of 1024 of a sequence: whoever guesses the state there from
    what a decay of e^-14 leaves (280 tokens) guesses zeros, and has to repeat the partition with the true state."""
    start = 0
    for n in lens:
        v[start : start + n][torch.arange(n, device=v.device) % 1024 >= 512] = 0
        start += n


def keys_alike(k, gen):
    """Keys of cosine 0.75 with each other: a state is not forgotten but in their direction."""
    direction = unit_rows(k.shape[1:], torch.float32, gen, k.device)
    return (0.75**0.5 * direction + 0.5 * k.float()).to(k.dtype)


def gdn_inputs(row, seed, device="cuda"):
    """q, k [T, hk, 128], v [T, hv, 128], g and beta [T, hv], h0 [N, hv, 128, 128] or None, cu_seqlens."""
    dtype, t, gen = DTYPES[row.dtype], row.tokens, generator(seed, device)
    if row.gates == "tileops":
        q, k, v = (
            (torch.randn(t, h, rows.DIM, device=device, generator=gen) * 0.1).to(dtype)
            for h in (row.hk, row.hk, row.hv)
        )
        beta = (torch.rand(t, row.hv, device=device, generator=gen) * 0.5).half().float()
    else:
        q, k = (unit_rows((t, row.hk, rows.DIM), dtype, gen, device) for _ in range(2))
        if row.normed:  # by powers of two, so that they are normalised to the same rows
            q, k = (spread_lengths(x, gen) for x in (q, k))
        v = torch.randn(t, row.hv, rows.DIM, device=device, generator=gen).to(dtype)
        beta = torch.randn(t, row.hv, device=device, generator=gen).sigmoid()
    if row.gates == "alike":
        k = keys_alike(k, gen)
    if row.gates == "repaired":
        clear_before_cuts(v, row.lens)
    g = log_gates(row.gates, (t, row.hv), gen, device)
    h0 = torch.randn(len(row.lens), row.hv, rows.DIM, rows.DIM, device=device, generator=gen) if row.h0 else None
    return types.SimpleNamespace(
        q=q,
        k=k,
        v=v,
        g=g,
        beta=beta,
        h0=h0,
        scale=row.scale,
        lens=row.lens,
        cu=cu_seqlens(row.lens, device),
        normed=row.normed,
    )


def checkpoint_list(row):
    """{ sequence, token_end, slot } every rows.EVERY tokens; their lines stand behind those of the sequences."""
    ends = [(n, end) for n, length in enumerate(row.lens) for end in range(rows.EVERY, length + 1, rows.EVERY)]
    return [(n, end, len(row.lens) + i) for i, (n, end) in enumerate(ends)]


def conv_inputs(row, seed, device="cuda"):
    """x [T, C], weight [C, W], bias [C], state [lines, C, W-1] (or None), a line a sequence and one a checkpoint; with
    gates a, b [T, Hv], A_log, dt_bias [Hv]; with checkpoints their list."""
    dtype, gen, c, w = DTYPES[row.dtype], generator(seed, device), row.channels, row.width
    normal = lambda *shape: torch.randn(*shape, device=device, generator=gen)  # noqa: E731
    x = types.SimpleNamespace(
        x=normal(row.tokens, c).to(dtype),
        weight=(normal(c, w) * 0.5).to(dtype),
        bias=None,
        state=None,
        checkpoints=None,
        lens=row.lens,
        cu=cu_seqlens(row.lens, device),
    )
    if "large" in row.features:  # no run of tokens without a sum below -42, of which SiLU is worked out in another way
        x.x = (x.x.float() * 100).to(dtype)
    if "pitched" in row.features:  # a projection's row goes on with z
        x.x = torch.cat([x.x, normal(row.tokens, row.v_dim).to(dtype)], dim=1)[:, :c]
    if "bias" in row.features:
        x.bias = normal(c).to(dtype)
    if "state" in row.features:
        x.state = normal(len(row.lens) + row.num_checkpoints, c, w - 1).to(dtype)
    if "checkpoints" in row.features:
        x.checkpoints = torch.tensor(checkpoint_list(row), dtype=torch.int64, device=device)
    if "gates" in row.features:
        x.a, x.b = (normal(row.tokens, row.gate_heads).to(dtype) for _ in range(2))
        x.A_log = torch.rand(row.gate_heads, device=device, generator=gen).mul(16).add(1e-3).log()
        x.dt_bias = normal(row.gate_heads)
    return x


def make(row, seed, device="cuda"):
    return (gdn_inputs if row.op == "gdn_prefill" else conv_inputs)(row, seed, device)


def make_sets(row, count, device="cuda"):
    """`count` sets that share one cu_seqlens: some implementations key their tables by that tensor's identity."""
    made = [make(row, FIRST_SEED + i, device) for i in range(count)]
    for x in made:
        x.cu = made[0].cu
    return made
