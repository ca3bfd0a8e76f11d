"""recurrence.py - both operators in plain torch, float64, token by token, and inputs for them: what the drop-ins' tests
hold results against. Needs torch.
"""

import torch


def gated_delta_rule(q, k, v, g, beta, starts, scale, state=None, l2norm=False):
    """(o [T, H, DV], final states [N, H, DK, DV]) in float64.

    q, k [T, Hq, DK], v [T, Hv, DV], g (log decay), beta [T, H] or None, starts: a list [N + 1], state [N, H, DK, DV].
    """
    heads = max(q.shape[1], k.shape[1], v.shape[1])
    q, k, v = (t.double().repeat_interleave(heads // t.shape[1], 1) for t in (q, k, v))
    if l2norm:
        q, k = (t * (t.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for t in (q, k))
    decay = torch.ones(q.shape[:2]).to(q) if g is None else g.double().exp()
    beta = torch.ones(q.shape[:2]).to(q) if beta is None else beta.double()
    states = q.new_zeros((len(starts) - 1, heads, q.shape[2], v.shape[2])) if state is None else state.double().clone()
    o = torch.full_like(v, float("nan"))
    for n, (begin, end) in enumerate(zip(starts, starts[1:])):
        s = states[n]
        for t in range(begin, end):
            s = s * decay[t, :, None, None]
            u = beta[t, :, None] * (v[t] - torch.einsum("hk,hkv->hv", k[t], s))
            s = s + k[t, :, :, None] * u[:, None, :]
            o[t] = scale * torch.einsum("hk,hkv->hv", q[t], s)
        states[n] = s
    return o, states


def causal_conv(x, weight, bias, starts, history, silu=True):
    """(y [T, C], last width - 1 inputs [N, C, width - 1]); x [T, C], history [N, C, width - 1], in float64."""
    width, y, last = weight.shape[1], torch.full_like(x.double(), float("nan")), history.double().clone()
    for n, (begin, end) in enumerate(zip(starts, starts[1:])):
        ext = torch.cat([last[n], x[begin:end].double().t()], 1)
        last[n] = ext[:, ext.shape[1] - (width - 1) :]
        taps = sum(weight[:, j, None].double() * ext[:, j : j + end - begin] for j in range(width))
        taps = taps if bias is None else taps + bias.double()[:, None]
        y[begin:end] = (torch.nn.functional.silu(taps) if silu else taps).t()
    return y, last


def error(found, wanted):
    """||found - wanted|| / ||wanted||; where that is 0, of found alone. NaN where one of both is."""
    size = wanted.double().norm()
    return ((found.double() - wanted.double()).norm() / (size if size > 0 else 1)).item()


def inputs(starts, heads_qk, heads_v, dim, dtype, seed, device="cpu", heads_k=None):
    """q, k [T, heads, dim] with k of unit length, v, g (log decay), beta [T, H], h0 [N, H, dim, dim], float32."""
    random = torch.Generator().manual_seed(seed)
    tokens, heads_k = starts[-1], heads_k or heads_qk
    heads = max(heads_qk, heads_k, heads_v)

    def normal(*shape):
        return torch.randn(shape, generator=random)

    k = torch.nn.functional.normalize(normal(tokens, heads_k, dim), dim=-1)
    made = dict(q=normal(tokens, heads_qk, dim).to(dtype), k=k.to(dtype), v=normal(tokens, heads_v, dim).to(dtype))
    made.update(g=-torch.rand((tokens, heads), generator=random), beta=torch.rand((tokens, heads), generator=random))
    made.update(h0=normal(len(starts) - 1, heads, dim, dim))
    return {name: tensor.to(device) for name, tensor in made.items()}
