#!/usr/bin/env python3
"""test_dropins.py - gdn_jit's drop-ins on a GPU: values against plain torch in float64 and, where installed, against
the originals; capture, streams, threads, torch.compile; and that nothing waits for the GPU, or compiles where it must
not.

    GDN_JIT_LIBRARY=build/libgdnjit.so.0.1 python3 tests/gpu/test_dropins.py [--filter TEXT] [--seed N] [--host]

A line a check: case, seed, error and bound; FAIL and exit status 1 where one is not met. --host: the cases of values
alone, on host tensors, which needs no GPU. Memory that torch allocates starts as NaN. Needs torch 2.4 or newer.
"""

import argparse
import contextlib
import importlib
import pathlib
import sys
import threading
import time
import traceback

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "python"), str(TOP / "tests/python")]
sys.dont_write_bytecode = True

import torch  # noqa: E402

from gdn_jit import serving  # noqa: E402
from gdn_jit.dropin import causal_conv1d, fla, flashinfer, vllm  # noqa: E402

from recurrence import causal_conv, error, gated_delta_rule, inputs  # noqa: E402

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
NAMES = {BF16: "bf16", F16: "fp16", F32: "fp32"}
# 1.5 times the largest of the families random and beta_to_2 in tests/data/bounds.tsv; of the conv one rounding of y.
O_BOUND, STATE_BOUND = {BF16: 4.1e-3, F16: 6.8e-4}, {BF16: 3.0e-3, F16: 5.4e-4}
CONV_BOUND = {BF16: 2.0e-3, F16: 2.6e-4, F32: 2e-6}
STARTS = {"one": [0, 700], "few": [0, 3, 3, 70, 201], "many": [37 * n for n in range(25)]}


class Report:
    """Counts checks, prints them."""

    def __init__(self, device, seed):
        self.device, self.seed, self.failed, self.passed = device, seed, 0, 0

    def near(self, case, what, found, reference, bound):
        err = error(found, reference) if found.shape == reference.shape else float("nan")
        self.say(err <= bound, f"{case}: {what}: error {err:.2e}, bound {bound:.1e}")

    def equal(self, case, what, found, wanted):
        self.say(torch.equal(found, wanted), f"{case}: {what}: equal bit for bit")

    def holds(self, case, what, is_so):
        self.say(is_so, f"{case}: {what}")

    def say(self, good, text):
        self.passed, self.failed = self.passed + bool(good), self.failed + (not good)
        print(f"{'ok  ' if good else 'FAIL'} {text}, seed {self.seed}", flush=True)


def original(name, function):
    """The original, None where it is not installed."""
    try:
        return getattr(importlib.import_module(name), function)
    except Exception as e:  # an import of theirs may fail in many ways
        print(f"note {name}.{function} is not used: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}")
        return None


# ---- Values ----


def prefill_shapes(report):
    """On the host, where the reference takes its time, the smaller ones."""
    on_host = report.device == "cpu"
    for dtype in (BF16, F16):
        for dim, heads_qk, heads_v in ((64, 1, 3), (128, 2, 4), (128, 16, 32))[: 1 if on_host else 3]:
            for name, starts in STARTS.items():
                if on_host and starts[-1] > 300:
                    continue
                yield f"{NAMES[dtype]} d={dim} {heads_qk}/{heads_v} {name}", dtype, dim, heads_qk, heads_v, starts


def take(x, *names):
    return [x[name] for name in names]


def cu_of(report, starts, dtype=torch.int32):
    return torch.tensor(starts, dtype=dtype, device=report.device)


def check_fla(report):
    theirs = None if report.device == "cpu" else original("fla.ops.gated_delta_rule", "chunk_gated_delta_rule")
    for name, dtype, dim, heads_qk, heads_v, starts in prefill_shapes(report):
        x = inputs(starts, heads_qk, heads_v, dim, dtype, report.seed, report.device)
        cu, args = cu_of(report, starts, torch.int64), [t[None] for t in take(x, "q", "k", "v", "g", "beta")]
        for norm in (False, True):
            case = f"fla {name}{' norm' if norm else ''}"
            options = dict(initial_state=x["h0"], output_final_state=True, cu_seqlens=cu, use_qk_l2norm_in_kernel=norm)
            wanted = gated_delta_rule(*take(x, "q", "k", "v", "g", "beta"), starts, dim**-0.5, x["h0"], norm)
            o, state = fla.chunk_gated_delta_rule(*args, **options)
            report.near(case, "o", o[0], wanted[0], O_BOUND[dtype])
            report.near(case, "state", state, wanted[1], STATE_BOUND[dtype])
            if theirs:
                o_2, state_2 = theirs(*args, **options)
                distance = 3 * max(O_BOUND[dtype], error(o_2[0], wanted[0]))
                report.near(case, "o, from the original's", o[0], o_2[0], distance)
                distance = 3 * max(STATE_BOUND[dtype], error(state_2, wanted[1]))
                report.near(case, "state, from the original's", state, state_2, distance)


def check_fla_options(report):
    """Of one shape: a batch, gates and beta of logits, 16-bit gates, strided views, a scale of 0."""
    starts, dim = [0, 100, 200], 128
    x = inputs(starts, 2, 4, dim, BF16, report.seed, report.device)
    random = torch.Generator().manual_seed(report.seed)
    a, b = (torch.randn((200, 4), generator=random).to(report.device) for _ in range(2))
    a_log, dt_bias = (torch.randn(4, generator=random).to(report.device) for _ in range(2))
    logits = -a_log.double().exp() * torch.nn.functional.softplus((a + dt_bias).double())
    low = x["g"].to(BF16), x["beta"].to(BF16)
    wide = torch.cat(take(x, "q", "k"), -1)
    q, k, v, g, beta = take(x, "q", "k", "v", "g", "beta")
    gates = dict(use_gate_in_kernel=True, A_log=a_log, dt_bias=dt_bias)
    signs = dict(use_beta_sigmoid_in_kernel=True, allow_neg_eigval=True)
    for case, given, wanted, options in (
        ("a batch", (q, k, v, g, beta), (g, beta), {}),
        ("logits of gates", (q, k, v, a, beta), (logits, beta), gates),
        ("logits of beta, twice", (q, k, v, g, b), (g, 2 * b.double().sigmoid()), signs),
        ("16-bit gates", (q, k, v, *low), low, {}),
        ("views", (wide[..., :dim], wide[..., dim:], v, g, beta), (g, beta), {}),
        ("states v first", (q, k, v, g, beta), (g, beta), dict(state_v_first=True)),
    ):
        args = [t.unflatten(0, (2, 100)) for t in given]
        o, state = fla.chunk_gated_delta_rule(*args, output_final_state=True, **options)
        wanted_o, wanted_state = gated_delta_rule(q, k, v, *wanted, starts, dim**-0.5)
        state = state.transpose(2, 3) if options.get("state_v_first") else state
        report.near(f"fla {case}", "o", o.flatten(0, 1), wanted_o, O_BOUND[BF16])
        report.near(f"fla {case}", "state", state, wanted_state, STATE_BOUND[BF16])
    o, _ = fla.chunk_gated_delta_rule(*(t[None] for t in (q, k, v, g, beta)), scale=0.0)
    report.holds("fla a scale of 0", "o is 0", not o.any())


def check_flashinfer(report):
    theirs = None if report.device == "cpu" else original("flashinfer.gdn_prefill", "chunk_gated_delta_rule")
    for name, dtype, dim, heads_qk, heads_v, starts in prefill_shapes(report):
        x = inputs(starts, heads_qk, heads_v, dim, dtype, report.seed, report.device)
        cu, alpha, case = cu_of(report, starts), x["g"].exp(), f"flashinfer {name}"
        start = x["h0"].transpose(2, 3).contiguous()
        args = (*take(x, "q", "k", "v"), alpha, x["beta"])
        wanted = gated_delta_rule(*take(x, "q", "k", "v", "g", "beta"), starts, dim**-0.5, x["h0"])
        options = dict(initial_state=start, output_final_state=True, cu_seqlens=cu)
        for cp in ("auto", False):
            o, state = flashinfer.chunk_gated_delta_rule(*args, **options, use_cp=cp)
            report.near(f"{case} use_cp {cp}", "o", o, wanted[0], O_BOUND[dtype])
            report.near(f"{case} use_cp {cp}", "state", state.transpose(2, 3), wanted[1], STATE_BOUND[dtype])
        in_pools(report, case, args, start, cu, wanted, dtype)
        if theirs and dim == 128:
            o_2, state_2 = theirs(*args, **options)
            report.near(case, "o, from the original's", o, o_2, 3 * max(O_BOUND[dtype], error(o_2, wanted[0])))
            distance = 3 * max(STATE_BOUND[dtype], error(state_2.transpose(2, 3), wanted[1]))
            report.near(case, "state, from the original's", state, state_2, distance)


def in_pools(report, case, args, start, cu, wanted, dtype):
    """State lines in one pool, in place; the lines of nobody keep their bits."""
    seqs = start.shape[0]
    lines = torch.randperm(2 * seqs, generator=torch.Generator().manual_seed(report.seed))[:seqs].to(report.device)
    pool = torch.full((2 * seqs, *start.shape[1:]), 3.0, device=report.device)
    pool[lines] = start
    slots = dict(state_indices=lines.int(), cu_seqlens=cu)
    o, found = flashinfer.chunk_gated_delta_rule(
        *args, initial_state=pool, output_state=pool, output_final_state=True, **slots
    )
    others = torch.ones(2 * seqs, dtype=torch.bool, device=report.device)
    others[lines] = False
    report.near(f"{case} pool", "o", o, wanted[0], O_BOUND[dtype])
    report.near(f"{case} pool", "state", found[lines].transpose(2, 3), wanted[1], STATE_BOUND[dtype])
    report.holds(f"{case} pool", "lines of nobody are untouched", bool((pool[others] == 3).all()))


def check_causal_conv1d(report):
    theirs = None if report.device == "cpu" else original("causal_conv1d", "causal_conv1d_fn")
    random = torch.Generator().manual_seed(report.seed)
    batch, length, channels = 3, 101, 6 * 128

    def normal(*shape):
        return torch.randn(shape, generator=random).to(report.device)

    for dtype in (BF16, F16, F32):
        for width in (2, 3, 4):
            rows = normal(batch, length, channels + 64).to(dtype)[..., :channels]
            weight, bias = normal(channels, width).to(dtype), normal(channels).to(dtype)
            init = normal(batch, width - 1, channels).to(dtype).transpose(1, 2)
            options = dict(initial_states=init, return_final_states=True, activation="silu")
            y, last = causal_conv1d.causal_conv1d_fn(rows.transpose(1, 2), weight, bias, **options)
            starts, case = [length * n for n in range(batch + 1)], f"causal_conv1d {NAMES[dtype]} width {width}"
            wanted, history = causal_conv(rows.flatten(0, 1), weight, bias, starts, init)
            report.near(case, "y", y.transpose(1, 2).flatten(0, 1), wanted, CONV_BOUND[dtype])
            report.equal(case, "final states", last, history.to(dtype))
            if theirs:
                y_2, last_2 = theirs(rows.transpose(1, 2), weight, bias, **options)
                report.near(case, "y, from the original's", y, y_2, 3 * CONV_BOUND[dtype])
                report.equal(case, "final states, the original's", last, last_2)


def conv_pool(report, dtype=BF16, channels=640, starts=(0, 3, 3, 70, 201)):
    """(args, options) of vLLM's causal_conv1d_fn, and the lines' indices."""
    random = torch.Generator().manual_seed(report.seed)

    def normal(*shape):
        return torch.randn(shape, generator=random).to(dtype).to(report.device)

    seqs = len(starts) - 1
    lines = torch.randperm(2 * seqs, generator=random)[:seqs].to(report.device)
    pool = normal(2 * seqs, 3, channels).transpose(1, 2)
    has = (torch.arange(seqs) % 2 == 0).to(report.device)
    x = normal(starts[-1], channels + 128)[:, :channels].t()
    args = [x, normal(channels, 4), normal(channels), pool, cu_of(report, list(starts))]
    return args, dict(cache_indices=lines.int(), has_initial_state=has), lines


def check_vllm(report):
    module = "vllm.model_executor.layers.mamba.ops.causal_conv1d"
    theirs = None if report.device == "cpu" else original(module, "causal_conv1d_fn")
    for dtype in (BF16, F16):
        args, options, lines = conv_pool(report, dtype)
        starts, before = args[4].tolist(), args[3].clone()
        has = options["has_initial_state"]
        y = vllm.causal_conv1d_fn(*args, **options)
        history = before[lines] * has[:, None, None]
        wanted, last = causal_conv(args[0].t(), args[1], args[2], starts, history)
        empty = torch.tensor([a == b for a, b in zip(starts, starts[1:])], device=report.device)
        before[lines[~empty]] = last[~empty].to(dtype)
        case = f"vllm {NAMES[dtype]}"
        report.near(case, "y", y.t(), wanted, CONV_BOUND[dtype])
        report.equal(case, "states", args[3], before)
        if theirs:
            again, more, _ = conv_pool(report, dtype)
            report.near(case, "y, from the original's", y, theirs(*again, **more), 3 * CONV_BOUND[dtype])
            report.equal(case, "states, the original's", args[3], again[3])


# ---- Hazards of servers ----


def fla_call(report, starts, seed=0, heads=(2, 4), dim=128):
    """A call without arguments, its inputs, and the recurrence's answer."""
    x = inputs(starts, *heads, dim, BF16, report.seed + seed, report.device)
    args = [t[None] for t in take(x, "q", "k", "v", "g", "beta")]
    options = dict(initial_state=x["h0"], output_final_state=True, cu_seqlens=cu_of(report, starts))
    return args, options


def run_fla(call):
    args, options = call
    o, state = fla.chunk_gated_delta_rule(*args, **options)
    return o, state


def check_capture(report):
    """A captured pair of calls, replayed with other values and lengths, has the bits of the plain calls."""
    first, other = fla_call(report, [0, 64, 201]), fla_call(report, [0, 3, 201], seed=1)
    conv_args, conv_options, _ = conv_pool(report)
    run_fla(first), vllm.causal_conv1d_fn(*conv_args, **conv_options)
    state = conv_args[3].clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, final = run_fla(first)
        y = vllm.causal_conv1d_fn(*conv_args, **conv_options)
    for name, call in (("the same", first), ("other values and lengths", other)):
        wanted = run_fla(call)
        for into, value in zip((*first[0], *first[1].values()), (*call[0], *call[1].values())):
            if isinstance(into, torch.Tensor):
                into.copy_(value)
        conv_args[3].copy_(state)
        wanted_y = vllm.causal_conv1d_fn(*conv_args, **conv_options)
        conv_args[3].copy_(state)
        graph.replay()
        torch.cuda.synchronize()
        report.equal(f"capture, {name}", "o", o, wanted[0])
        report.equal(f"capture, {name}", "state", final, wanted[1])
        report.equal(f"capture, {name}", "y", y, wanted_y)


def check_capture_without_a_plan(report):
    """Refused with a sentence, and the capture goes on."""
    before, graph, said = len(serving.serving().made), torch.cuda.CUDAGraph(), ""
    call, numbers = fla_call(report, [0, 100], heads=(3, 3)), torch.ones(8, device=report.device)
    with torch.cuda.graph(graph):
        try:
            run_fla(call)
        except RuntimeError as e:
            said = str(e)
        twice = numbers * 2
    graph.replay()
    torch.cuda.synchronize()
    report.holds("capture without a plan", f"says: {said[-150:]!r}", "capturing" in said and "reserve(" in said)
    report.holds("capture without a plan", "the capture goes on", bool((twice == 2).all()))
    report.holds("capture without a plan", "nothing was planned", len(serving.serving().made) == before)


def check_streams(report):
    """Calls on two streams at a time have the bits of calls one after the other."""
    calls = [fla_call(report, [0, 5000, 9000], seed=n, heads=(1, 2)) for n in range(2)]
    wanted = [run_fla(call) for call in calls]
    streams = [torch.cuda.Stream() for _ in calls]
    torch.cuda.synchronize()
    found = [[], []]
    for _ in range(20):
        for stream, call, outputs in zip(streams, calls, found):
            with torch.cuda.stream(stream):
                outputs.append(run_fla(call))
    torch.cuda.synchronize()
    for n, outputs in enumerate(found):
        same = all(torch.equal(a, b) for made in outputs for a, b in zip(made, wanted[n]))
        report.holds(f"two streams, stream {n}", "20 calls, equal bit for bit", same)


def check_threads(report):
    """Eight threads, each with a stream of its own, from the first call of a shape on."""
    made, results, problems = len(serving.serving().made), {}, []
    calls = [fla_call(report, [0, 300, 900], seed=n, heads=(2, 6)) for n in range(8)]
    torch.cuda.synchronize()

    def work(n):
        try:
            torch.cuda.set_device(0)
            with torch.cuda.stream(torch.cuda.Stream()):
                outputs = [run_fla(calls[n]) for _ in range(10)]
                torch.cuda.current_stream().synchronize()
            results[n] = outputs
        except Exception as e:
            problems.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first = []  # of a thread that has made no CUDA call before
    bare = threading.Thread(target=lambda: first.append(run_fla(calls[0])))
    with determinism(False):  # to fill memory would be such a call
        bare.start()
        bare.join()
    torch.cuda.synchronize()
    report.holds("threads", f"none failed: {problems}", not problems)
    same = bool(first) and all(torch.equal(a, b) for a, b in zip(first[0], run_fla(calls[0])))
    report.holds("threads", "a call that is a thread's first use of CUDA", same)
    report.holds("threads", "one plan was made", len(serving.serving().made) == made + 1)
    wanted = [run_fla(call) for call in calls]
    same = all(torch.equal(a, b) for n, outs in results.items() for out in outs for a, b in zip(out, wanted[n]))
    report.holds("threads", "80 calls, equal bit for bit", same and len(results) == 8)


def check_compile(report):
    """Inductor, and with CUDA graphs of its own; states in place."""
    call = fla_call(report, [0, 64, 201])
    wanted = run_fla(call)
    for mode in ("default", "reduce-overhead"):
        torch._dynamo.reset()
        traced = torch.compile(fla.chunk_gated_delta_rule, fullgraph=True, mode=mode)
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            o, state = traced(*call[0], **call[1])
        report.equal(f"compile {mode} fla", "o", o, wanted[0])
        report.equal(f"compile {mode} fla", "state", state, wanted[1])
    args, options, _ = conv_pool(report)
    plain, traced = args[3].clone(), torch.compile(vllm.causal_conv1d_fn, fullgraph=True)
    wanted = vllm.causal_conv1d_fn(*args[:3], plain, args[4], **options)
    report.equal("compile vllm", "y", traced(*args, **options), wanted)
    report.equal("compile vllm", "states", args[3], plain)


def check_no_waiting(report):
    """No call waits for the GPU, and sizes that grow make few plans."""
    calls = [fla_call(report, [0, tokens]) for tokens in (1, 63, 64, 201, 255, 256)]
    conv_args, conv_options, _ = conv_pool(report)
    for call in calls:
        run_fla(call)
    vllm.causal_conv1d_fn(*conv_args, **conv_options)
    made, problem = len(serving.serving().made), ""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for call in calls:
            run_fla(call)
        vllm.causal_conv1d_fn(*conv_args, **conv_options, pad_slot_id=99)
    except RuntimeError as e:
        problem = str(e)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    report.holds("no waiting", f"no call synchronises {problem!r}", not problem)
    report.holds("no waiting", "sizes up to a bound share a plan", len(serving.serving().made) == made)
    for tokens in range(257, 5000, 311):
        run_fla(fla_call(report, [0, tokens]))
    grown = len(serving.serving().made) - made
    report.holds("growth", f"16 sizes up to 4922 tokens made {grown} plans, at most 3", grown <= 3)


def check_reserve(report):
    shape = dict(io_type="bf16", num_q_heads=5, num_k_heads=5, num_v_heads=5, head_dim_qk=128, head_dim_v=128)
    serving.reserve("prefill", 1024, 8, device=torch.cuda.current_device(), **shape)
    made = len(serving.serving().made)
    run_fla(fla_call(report, [0, 10, 1024], heads=(5, 5)))
    report.holds("reserve", "a call of what was reserved makes no plan", len(serving.serving().made) == made)


def check_other_gpu(report):
    if torch.cuda.device_count() < 2:
        print("note one GPU: calls of tensors of another one are not tried")
        return
    there = Report("cuda:1", report.seed)
    call = fla_call(there, [0, 64, 201])
    o, _ = run_fla(call)
    here = run_fla(fla_call(report, [0, 64, 201]))
    report.equal("another GPU", "o", o.to(report.device), here[0])


def check_host_time(report):
    """For the record: what a call takes on the host, nothing being waited for."""
    fla_args, fla_options = fla_call(report, [0, 64])
    conv_args, conv_options, _ = conv_pool(report)
    alpha = [t[0] for t in fla_args]
    alpha[3] = alpha[3].exp()
    for name, call in (
        ("fla", lambda: fla.chunk_gated_delta_rule(*fla_args, **fla_options)),
        ("flashinfer", lambda: flashinfer.chunk_gated_delta_rule(*alpha, cu_seqlens=fla_options["cu_seqlens"])),
        ("vllm", lambda: vllm.causal_conv1d_fn(*conv_args, **conv_options)),
    ):
        with determinism(False):
            for _ in range(50):
                call()
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(200):
                call()
            took = (time.perf_counter() - began) / 200 * 1e6
            torch.cuda.synchronize()
        print(f"note host time of {name}: {took:.0f} us a call")


@contextlib.contextmanager
def determinism(on):
    """torch's way to fill what it allocates with NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(on, warn_only=True)
    yield
    torch.use_deterministic_algorithms(before, warn_only=True)


VALUES = (check_fla, check_fla_options, check_flashinfer, check_causal_conv1d, check_vllm)
HAZARDS = (check_capture, check_capture_without_a_plan, check_streams, check_threads, check_compile, check_no_waiting)
HAZARDS += (check_reserve, check_other_gpu, check_host_time)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filter", default="", help="checks whose name has this text")
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--host", action="store_true")
    asked = parser.parse_args()
    if not asked.host and not torch.cuda.is_available():
        print("skipped: torch has no GPU")
        return 77
    report = Report("cpu" if asked.host else "cuda", asked.seed)
    gpu = "the host" if asked.host else torch.cuda.get_device_name()
    print(f"note {gpu}, torch {torch.__version__}")
    for check in VALUES if asked.host else VALUES + HAZARDS:
        if asked.filter in check.__name__:
            try:
                with torch.no_grad(), determinism(True):
                    check(report)
            except Exception:
                report.say(False, f"{check.__name__} ended by an exception:\n{traceback.format_exc()}")
    print(f"{report.passed} checks passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
