"""reference.py - the operators in float64 on the GPU, and how far a result is from them.

GDN is the recurrence itself, token by token, one Triton program a (sequence, head, eight columns of v): nothing of
the chunked algorithm is in it. gdn_loop() is the same in eight lines of torch, to check it with.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

COLUMNS = 8


@triton.jit
def recurrence_kernel(q, k, v, g, beta, h0, o, ht, cu, hk, hv, D: tl.constexpr, BV: tl.constexpr, HAS_H0: tl.constexpr):
    head, seq = tl.program_id(0) // (D // BV), tl.program_id(1).to(tl.int64)
    col = (tl.program_id(0) % (D // BV)) * BV + tl.arange(0, BV)
    row = tl.arange(0, D)
    shared = head * hk // hv  # the q and k head of this state head
    tile = (seq * hv + head) * D * D + row[:, None] * D + col[None, :]
    if HAS_H0:
        state = tl.load(h0 + tile).to(tl.float64)
    else:
        state = tl.zeros([D, BV], dtype=tl.float64)
    first = tl.load(cu + seq).to(tl.int64)
    count = tl.load(cu + seq + 1) - tl.load(cu + seq)
    for i in range(0, count):
        t = first + i
        kt = tl.load(k + (t * hk + shared) * D + row).to(tl.float32).to(tl.float64)
        qt = tl.load(q + (t * hk + shared) * D + row).to(tl.float32).to(tl.float64)
        vt = tl.load(v + (t * hv + head) * D + col).to(tl.float32).to(tl.float64)
        gt = tl.load(g + t * hv + head).to(tl.float64)
        bt = tl.load(beta + t * hv + head).to(tl.float64)
        state = state * tl.exp(gt)
        u = bt * (vt - tl.sum(kt[:, None] * state, axis=0))
        state += kt[:, None] * u[None, :]
        tl.store(o + (t * hv + head) * D + col, tl.sum(qt[:, None] * state, axis=0))
    tl.store(ht + tile, state)


def normalised(x):
    """x's q and k as the recurrence takes them; float32 of a float64 norm, if it is part of the call."""
    if not x.normed:
        return x.q, x.k
    return tuple(
        (a.double() * torch.rsqrt(a.double().pow(2).sum(-1, keepdim=True) + 1e-6)).float() for a in (x.q, x.k)
    )


def gdn(x):
    """(o [T, hv, D] float64, final state [N, hv, D, D] float64) of gdn_inputs()."""
    t, hv, d = x.v.shape
    q, k = normalised(x)
    o = torch.zeros(t, hv, d, dtype=torch.float64, device=x.v.device)
    ht = torch.empty(len(x.lens), hv, d, d, dtype=torch.float64, device=x.v.device)
    recurrence_kernel[(hv * d // COLUMNS, len(x.lens))](
        q,
        k,
        x.v,
        x.g,
        x.beta,
        x.h0 if x.h0 is not None else ht,
        o,
        ht,
        x.cu,
        x.q.shape[1],
        hv,
        D=d,
        BV=COLUMNS,
        HAS_H0=x.h0 is not None,
        num_warps=1,
    )
    return o.mul_(x.scale), ht  # a float argument of a kernel has 32 bits


def gdn_loop(x):
    """The same, slowly, for a short row."""
    ratio = x.v.shape[1] // x.q.shape[1]
    q, k = (a.double().repeat_interleave(ratio, 1) for a in normalised(x))
    v, decay, beta, o, ht = (
        x.v.double(),
        x.g.double().exp(),
        x.beta.double(),
        torch.zeros_like(x.v, dtype=torch.float64),
        [],
    )
    for n, (first, last) in enumerate(zip(x.cu.tolist(), x.cu.tolist()[1:])):
        s = (
            torch.zeros(*v.shape[1:], v.shape[-1], dtype=torch.float64, device=v.device)
            if x.h0 is None
            else x.h0[n].double()
        )
        for t in range(first, last):
            s = s * decay[t, :, None, None]
            u = beta[t, :, None] * (v[t] - torch.einsum("hk,hkv->hv", k[t], s))
            s = s + k[t, :, :, None] * u[:, None, :]
            o[t] = x.scale * torch.einsum("hk,hkv->hv", q[t], s)
        ht.append(s)
    return o, torch.stack(ht)


def check_gdn(row_class, inputs):
    """The kernel against the loop on a short row with an empty sequence; raises where they differ."""
    row = row_class("check", (61, 0, 67), 2, 4, "bf16", "mixed", True)
    x = inputs.gdn_inputs(row, 1)
    errors = [distance(found, wanted)[0] for found, wanted in zip(gdn(x), gdn_loop(x))]
    if not max(errors) < 1e-12:
        raise AssertionError(f"the reference kernel is {errors} from the recurrence's loop")


def conv(x, row):
    """((q, k, v[, g, beta]) float64, state after the call); q and k are rounded to the I/O type before the norm."""
    dtype, parts, exts = x.x.dtype, [], []
    for n, (first, last) in enumerate(zip(x.cu.tolist(), x.cu.tolist()[1:])):
        before = (
            torch.zeros(row.channels, row.width - 1, device=x.x.device, dtype=dtype) if x.state is None else x.state[n]
        )
        exts.append(torch.cat([before.T, x.x[first:last]]))
        ext = exts[-1].double()
        y = sum(x.weight[:, j].double() * ext[j : j + last - first] for j in range(row.width))
        y = y if x.bias is None else y + x.bias.double()
        parts.append(F.silu(y) if "silu" in row.features else y)
    outs = list(torch.cat(parts).split((row.q_dim, row.k_dim, row.v_dim), dim=1))
    if "norm" in row.features:
        for i in (0, 1):
            heads = outs[i].to(dtype).double().unflatten(1, (-1, 128))
            outs[i] = (heads * torch.rsqrt(heads.pow(2).sum(-1, keepdim=True) + 1e-6)).flatten(1)
    if "gates" in row.features:
        outs += [-x.A_log.double().exp() * F.softplus(x.a.double() + x.dt_bias.double()), x.b.double().sigmoid()]
    return outs, conv_states(exts, x, row) if x.state is not None else None


def conv_states(exts, x, row):
    """The last width - 1 inputs of each sequence, and those before each checkpoint."""
    ends = [(n, len(ext)) for n, ext in enumerate(exts)]
    if x.checkpoints is not None:
        ends += [(n, row.width - 1 + end) for n, end, _ in x.checkpoints.tolist()]
    return torch.stack([exts[n][end - row.width + 1 : end].T for n, end in ends])


def of(x, row):
    return gdn(x) if row.op == "gdn_prefill" else conv(x, row)


def distance(found, wanted):
    """(||x - ref|| / ||ref||, max |x - ref|) over tensors or lists of them; infinite where x is not finite."""
    if wanted is None:
        return None, None
    found, wanted = ([a] if torch.is_tensor(a) else a for a in (found, wanted))
    diff = norm = largest = 0.0
    for f, w in zip(found, wanted):
        d = f.reshape(w.shape).double() - w.double()
        diff, norm = diff + float(d.square().sum()), norm + float(w.double().square().sum())
        largest = max(largest, float(d.abs().max()) if d.numel() else 0.0)
    if diff != diff or diff == float("inf"):
        return float("inf"), float("inf")
    return (diff / max(norm, 1e-300)) ** 0.5, largest
