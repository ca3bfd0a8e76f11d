"""test_dropins.py - gdn_jit's torch operators and drop-ins on host tensors, where they run the library's host
reference: shapes, conventions and refusals against plain torch. Skipped, with exit status 77, where torch is missing.
"""

import contextlib
import inspect
import itertools
import os
import sys
import unittest
import unittest.mock

import support

try:
    import torch
except ImportError:
    print("skipped: torch is not installed for", sys.executable)
    sys.exit(77)

from gdn_jit import api, dropin, eager, ops, serving
from gdn_jit.dropin import causal_conv1d, fla, flashinfer, vllm

import recurrence

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
O_BOUND = {BF16: 2.0e-3, F16: 2.6e-4, F32: 1e-6}  # one rounding of o, by its unit in the last place
STATE_BOUND = 1e-6
STARTS = [0, 3, 3, 70]
DIM = 64
CONV_SHAPE = dict(num_q_heads=1, num_k_heads=1, num_v_heads=1, head_dim_qk=32, head_dim_v=32)
CONV_SHAPE_OF_16 = dict(num_q_heads=0, num_k_heads=0, num_v_heads=1, head_dim_qk=0, head_dim_v=16)


def cu(dtype=torch.int64):
    return torch.tensor(STARTS, dtype=dtype)


def strided(*shape, dtype=BF16, pitch=32):
    """Random values in a view whose last index but one is `pitch` wider than it must be."""
    return torch.randn(*shape[:-1], shape[-1] + pitch).to(dtype)[..., : shape[-1]]


class Case(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(20261128)

    def near(self, found, wanted, bound):
        self.assertEqual(tuple(found.shape), tuple(wanted.shape))
        self.assertLess(recurrence.error(found, wanted), bound)

    def refused(self, names, call, *args, **given):
        """Each of `given` alone is refused with its name."""
        for name in names:
            with self.subTest(name), self.assertRaisesRegex(dropin.Unsupported, rf"\b{name}\b.*; \w+"):
                call(*args, **{name: given[name]})


class Operators(Case):
    def test_torch_finds_nothing_wrong(self):
        x = recurrence.inputs(STARTS, 1, 2, DIM, BF16, 1)
        qkv = tuple(x[n] for n in "qkv")
        rows, weight, state = torch.randn(70, 96).to(BF16), torch.randn(96, 4).to(BF16), torch.randn(3, 96, 3).to(BF16)
        o, gates = torch.empty_like(x["v"]), dict(num_gate_heads=2, a=torch.randn(70, 2).to(BF16), a_log=torch.zeros(2))
        for op, args, options in (
            ("prefill", (*qkv, x["g"], x["beta"], x["h0"], cu()), dict(final_state=True)),
            ("prefill", qkv, dict(state_layout="vk")),
            ("prefill_into", (*qkv, o, x["h0"].clone()), dict(g=x["g"], cu_seqlens=cu(), in_place=True)),
            ("prefill_into", (*qkv, o), {}),
            ("conv1d_qkv", (rows, weight, 1, 1, 1, 32, 32), dict(state=state.clone(), cu_seqlens=cu(), **gates)),
            ("conv1d_qkv", (rows, weight, 0, 0, 3, 0, 32), {}),
            ("causal_conv1d", (rows, weight), dict(state=state.clone(), cu_seqlens=cu())),
            ("causal_conv1d", (rows, weight), {}),
        ):
            with self.subTest(op, options=list(options)):
                found = torch.library.opcheck(getattr(torch.ops.gdn_jit, op), args, options)
                self.assertEqual(set(found.values()), {"SUCCESS"})

    def test_schemas_say_what_is_written(self):
        for op, written in (
            ("prefill", set()),
            ("prefill_into", {"o", "final_state"}),
            ("conv1d_qkv", {"state"}),
            ("causal_conv1d", {"state"}),
        ):
            arguments = getattr(torch.ops.gdn_jit, op).default._schema.arguments
            found = {a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write}
            self.assertEqual(found, written, op)

    def test_what_requires_grad_is_refused_while_grad_is_on(self):
        x = recurrence.inputs(STARTS, 1, 1, DIM, BF16, 1)
        q, k, v = (x[n].requires_grad_() for n in "qkv")
        weight = torch.nn.Parameter(torch.randn(16, 4))
        calls = (
            lambda: ops.prefill(q, k, v),
            lambda: ops.prefill(x["q"].detach(), x["k"].detach(), x["v"].detach(), g=x["g"].requires_grad_()),
            lambda: ops.prefill_into(q, k, v, torch.empty_like(v)),
            lambda: ops.conv1d_qkv(torch.randn(8, 16), weight, **CONV_SHAPE_OF_16),
            lambda: ops.causal_conv1d(torch.randn(8, 16), weight),
            lambda: fla.chunk_gated_delta_rule(q[None], k[None], v[None], None, None),
            lambda: flashinfer.chunk_gated_delta_rule(q, k, v, cu_seqlens=cu()),
            lambda: causal_conv1d.causal_conv1d_fn(torch.randn(1, 8, 16).transpose(1, 2), weight),
            lambda: vllm.causal_conv1d_fn(torch.randn(70, 16).t(), weight, None, None, cu()),
        )
        for call in calls:
            with self.assertRaisesRegex(ValueError, "for inference.*no_grad"):
                call()
            with torch.no_grad():
                call()
            with torch.inference_mode():
                call()
        with self.assertRaisesRegex(RuntimeError, "for inference"):
            torch.ops.gdn_jit.prefill(q, k, v)[0].sum().backward()

    def test_conv1d_qkv_is_what_the_binding_computes(self):
        x, weight, state = strided(70, 96), torch.randn(96, 4).to(BF16), torch.randn(3, 96, 3).to(BF16)
        wanted, last = recurrence.causal_conv(x, weight, None, STARTS, state)
        q, k, v, g, beta = ops.conv1d_qkv(x, weight, **CONV_SHAPE, state=state, cu_seqlens=cu())
        found = torch.cat([t.flatten(1) for t in (q, k, v)], 1)
        self.assertLess(recurrence.error(found, wanted), O_BOUND[BF16])
        self.assertTrue(torch.equal(state, last.to(BF16)))
        self.assertEqual((tuple(g.shape), tuple(beta.shape)), ((0, 0), (0, 0)))

    def test_a_single_row_has_any_pitch(self):
        weight = torch.randn(16, 2)
        for x in (torch.randn(16, 1).t(), torch.randn(1, 40)[:, :16], torch.randn(3, 16)[1:2]):
            self.assertEqual(tuple(ops.causal_conv1d(x, weight).shape), (1, 16))

    def test_a_single_row_of_columns_that_lie_apart_is_refused_as_several_are(self):
        weight, channel_first = torch.randn(16, 2), torch.randn(16, 9)
        for x in (channel_first[:, -1:].t(), channel_first[:, -2:].t()):
            with self.assertRaisesRegex(ValueError, "x has strides"):
                ops.causal_conv1d(x, weight)
        with self.assertRaisesRegex(ValueError, r"x has shape \(1, 9, 16\).*flatten"):
            ops.causal_conv1d(torch.randn(1, 9, 16), weight)

    def test_alignment_is_of_address_and_pitch(self):
        rows = torch.zeros(4, 64, dtype=BF16)
        odd = rows.view(-1)[:60].view(2, 30)
        for x, wanted in ((rows, 16), (rows[:, 8:], 16), (rows[:, 4:], 8), (rows[:, 1:], 2), (odd, 4)):
            self.assertEqual(ops.x_alignment(x), wanted)
        self.assertEqual([ops.x_alignment(rows, stride) for stride in (772, 384, 770, 1)], [8, 16, 4, 2])

    def test_a_line_beyond_the_pool_is_refused(self):
        """On the host, where what lies behind the pool would be read and written."""
        x = recurrence.inputs(STARTS, 1, 2, DIM, BF16, 1)
        qkv, o, states = [x[n] for n in "qkv"], torch.empty_like(x["v"]), torch.zeros(8, 2, DIM, DIM)
        rows, weight, pool = torch.randn(70, 96).to(BF16), torch.randn(96, 4).to(BF16), torch.zeros(8, 96, 3).to(BF16)
        for dtype in (torch.int32, torch.int64):
            slots = torch.tensor([0, 1, 99], dtype=dtype)
            kept = dict(state=pool, cu_seqlens=cu(), slot_in=slots)
            shared = dict(initial_state=states, output_state=states, output_final_state=True)
            for call in (
                lambda: ops.prefill_into(*qkv, o, states, cu_seqlens=cu(), slot_in=slots, in_place=True),
                lambda: ops.conv1d_qkv(rows, weight, **CONV_SHAPE, **kept),
                lambda: ops.causal_conv1d(rows, weight, **kept),
                lambda: vllm.causal_conv1d_fn(rows.t(), weight, None, pool, cu(), cache_indices=slots),
                lambda: flashinfer.chunk_gated_delta_rule(*qkv, cu_seqlens=cu(), state_indices=slots, **shared),
            ):
                with self.assertRaisesRegex(ValueError, r"slot_in\[2\] is 99, and (final_|initial_)?state has 8 lines"):
                    call()

    def test_another_device_is_refused(self):
        x = torch.zeros(4, 16, device="meta")
        with self.assertRaisesRegex(ValueError, "cuda and cpu"):
            eager.run("prefill", None, {}, (), x.device)


class Fla(Case):
    """Layouts [1, T, ..]; the conventions are the module's docstring's."""

    def setUp(self):
        super().setUp()
        self.x = recurrence.inputs(STARTS, 2, 4, DIM, BF16, 3)
        self.args = [self.x[n][None] for n in ("q", "k", "v", "g", "beta")]

    def both(self, args=None, starts=STARTS, wanted=None, **options):
        """The call, and the recurrence on `wanted` in place of inputs; checks o and the final state."""
        x = {**self.x, "h0": None, "scale": DIM**-0.5, "l2norm": False, **(wanted or {})}
        args = args or self.args
        o, final = fla.chunk_gated_delta_rule(*args, output_final_state=True, **options)
        q, k, v = (t.flatten(0, 1) for t in args[:3])
        wants = (x["g"], x["beta"], starts, x["scale"], x["h0"], x["l2norm"])
        wanted_o, wanted_state = recurrence.gated_delta_rule(q, k, v, *wants)
        self.near(o.flatten(0, 1), wanted_o, O_BOUND[args[0].dtype])
        self.assertEqual((o.dtype, final.dtype, tuple(o.shape)), (args[0].dtype, F32, tuple(args[2].shape)))
        if options.get("state_v_first") or options.get("transpose_state_layout"):
            final = final.transpose(2, 3)
        self.near(final, wanted_state, STATE_BOUND)

    def test_sequences_of_a_row(self):
        for dtype in (torch.int32, torch.int64):
            self.both(cu_seqlens=cu(dtype))
            self.both(cu_seqlens=cu(dtype), initial_state=self.x["h0"], wanted=dict(h0=self.x["h0"]))

    def test_a_batch(self):
        args = [t[0, :60].view(3, 20, *t.shape[2:]) for t in self.args]
        gates = dict(g=self.x["g"][:60], beta=self.x["beta"][:60])
        self.both(args, [0, 20, 40, 60], wanted=gates)
        self.both(args, [0, 20, 40, 60], initial_state=self.x["h0"], wanted=dict(h0=self.x["h0"], **gates))

    def test_scale(self):
        for scale in (0.5, 1, 0.0):
            self.both(cu_seqlens=cu(), scale=scale, wanted=dict(scale=scale))

    def test_dtypes(self):
        self.both([t.to(F16) for t in self.args[:3]] + self.args[3:], cu_seqlens=cu())
        gates = [t.to(BF16) for t in self.args[3:]]
        self.both(self.args[:3] + gates, cu_seqlens=cu(), wanted=dict(g=gates[0][0], beta=gates[1][0]))
        start = self.x["h0"].to(BF16)
        self.both(cu_seqlens=cu(), initial_state=start, wanted=dict(h0=start))

    def test_layouts_of_states(self):
        start = self.x["h0"].transpose(2, 3)
        for name in ("state_v_first", "transpose_state_layout"):
            self.both(cu_seqlens=cu(), initial_state=start, wanted=dict(h0=self.x["h0"]), **{name: True})

    def test_norms_gates_and_logits(self):
        self.both(cu_seqlens=cu(), use_qk_l2norm_in_kernel=True, wanted=dict(l2norm=True))
        a, b = torch.randn(70, 4), torch.randn(70, 4)
        a_log, dt_bias = torch.randn(4), torch.randn(4)
        for bias in (dt_bias, None):
            shifted = a if bias is None else a + bias
            g = -a_log.double().exp() * torch.nn.functional.softplus(shifted.double())
            given = dict(use_gate_in_kernel=True, A_log=a_log, dt_bias=bias)
            self.both([*self.args[:3], a[None], self.args[4]], cu_seqlens=cu(), wanted=dict(g=g), **given)
        for negative in (False, True):
            given = dict(use_beta_sigmoid_in_kernel=True, allow_neg_eigval=negative)
            beta = b.double().sigmoid() * (2 if negative else 1)
            self.both([*self.args[:4], b[None]], cu_seqlens=cu(), wanted=dict(beta=beta), **given)

    def test_strides_that_no_call_says_are_copied_and_others_are_not(self):
        wide = torch.cat(self.args[:2], -1)
        views = [wide[..., :DIM], wide[..., DIM:]]
        self.assertIs(fla.common.rows_of_heads(views[1]), views[1])
        self.both([*views, *self.args[2:]], cu_seqlens=cu())
        odd = self.args[2].transpose(2, 3).contiguous().transpose(2, 3)
        self.both([*self.args[:2], odd, *self.args[3:]], cu_seqlens=cu())
        gates = self.x["g"][:, :1].expand(70, 4)
        self.both([*self.args[:3], gates[None], self.args[4]], cu_seqlens=cu(), wanted=dict(g=gates))

    def test_the_final_state_is_none_unless_asked_for(self):
        o, final = fla.chunk_gated_delta_rule(*self.args, cu_seqlens=cu())
        self.assertIsNone(final)
        self.assertIs(fla.chunk_gdn, fla.chunk_gated_delta_rule)

    def test_what_is_refused(self):
        given = dict(cp_context=object(), head_first=True, chunk_size=32)
        self.refused(given, fla.chunk_gated_delta_rule, *self.args, **given)
        with self.assertRaisesRegex(dropin.Unsupported, "q is torch.float32.*bfloat16"):
            fla.chunk_gated_delta_rule(*(t.float() for t in self.args))
        wide = torch.zeros(1, 70, 4, 256, dtype=BF16)
        for name, args in (("q", [wide, wide, wide]), ("v", [*self.args[:2], wide])):
            with self.assertRaisesRegex(dropin.Unsupported, f"{name} is of head dim 256"):
                fla.chunk_gated_delta_rule(*args, *self.args[3:])
        with self.assertRaisesRegex(dropin.Unsupported, "v is torch.float16"):
            fla.chunk_gated_delta_rule(*self.args[:2], self.args[2].to(F16), *self.args[3:])
        for wanted, error, more in (
            ("unexpected keyword argument 'window'", TypeError, dict(window=3)),
            ("A_log", ValueError, dict(use_gate_in_kernel=True)),
            ("use_gate_in_kernel is not", ValueError, dict(A_log=torch.zeros(4))),
            ("requires use_beta_sigmoid", ValueError, dict(allow_neg_eigval=True)),
            ("of 2 sequences", ValueError, dict(cu_seqlens=cu(), initial_state=self.x["h0"][:2])),
            ("two names", ValueError, dict(state_v_first=True, transpose_state_layout=True)),
        ):
            with self.assertRaisesRegex(error, wanted):
                fla.chunk_gated_delta_rule(*self.args, **more)
        with self.assertRaisesRegex(ValueError, "batch size 2"):
            fla.chunk_gated_delta_rule(*(t.expand(2, *t.shape[1:]) for t in self.args), cu_seqlens=cu())

    def test_hints_and_neutral_values_change_nothing(self):
        plain = fla.chunk_gated_delta_rule(*self.args, cu_seqlens=cu())[0]
        hints = dict(cu_seqlens_cpu=cu(), chunk_indices=torch.zeros(3, 2), head_first=False, chunk_size=64)
        self.assertTrue(torch.equal(plain, fla.chunk_gated_delta_rule(*self.args, cu_seqlens=cu(), **hints)[0]))


class FlashInfer(Case):
    def setUp(self):
        super().setUp()
        self.x = recurrence.inputs(STARTS, 2, 4, DIM, BF16, 4)
        self.qkv = [self.x[n] for n in "qkv"]
        self.alpha, self.start = self.x["g"].exp(), self.x["h0"].transpose(2, 3).contiguous()

    def wanted(self, **other):
        x = {**self.x, "scale": DIM**-0.5, "l2norm": False, **other}
        o, state = recurrence.gated_delta_rule(*self.qkv, x["g"], x["beta"], STARTS, x["scale"], x["h0"], x["l2norm"])
        return o, state.transpose(2, 3)

    def call(self, g="alpha", beta="beta", **options):
        g, beta = self.alpha if g == "alpha" else g, self.x["beta"] if beta == "beta" else beta
        return flashinfer.chunk_gated_delta_rule(*self.qkv, g, beta, cu_seqlens=cu(), **options)

    def both(self, wanted=(), **options):
        o, state = self.call(initial_state=self.start, output_final_state=True, **options)
        wanted_o, wanted_state = self.wanted(**dict(wanted))
        self.near(o, wanted_o, O_BOUND[BF16])
        self.near(state, wanted_state, STATE_BOUND)

    def test_alpha_is_linear_and_states_are_v_first(self):
        self.both()
        o = self.call()
        self.assertIsInstance(o, torch.Tensor)
        self.near(o, self.wanted(h0=None)[0], O_BOUND[BF16])

    def test_a_scale_of_0_is_the_default(self):
        self.both(scale=0.0)
        self.both(scale=0.5, wanted=dict(scale=0.5))

    def test_gates_that_are_not_given_are_ones(self):
        self.both(g=None, wanted=dict(g=None))
        self.both(beta=None, wanted=dict(beta=None))

    def test_domains_logits_and_norms(self):
        self.both(g=self.x["g"], gate_domain="log")
        self.both(use_qk_l2norm_in_kernel=True, wanted=dict(l2norm=True))
        a, a_log, dt_bias = torch.randn(70, 4), torch.randn(4).to(BF16), torch.randn(4)
        g = -a_log.double().exp() * torch.nn.functional.softplus((a + dt_bias).double())
        self.both(g=a, use_gate_in_kernel=True, A_log=a_log, dt_bias=dt_bias, wanted=dict(g=g))
        logits = torch.randn(70, 4).to(BF16)
        rounded = logits.float().sigmoid().to(BF16)
        self.both(beta=logits, beta_is_logit=True, wanted=dict(beta=rounded))

    def test_grouped_queries(self):
        x = recurrence.inputs(STARTS, 4, 2, DIM, F16, 5, heads_k=2)
        o = flashinfer.chunk_gated_delta_rule(x["q"], x["k"], x["v"], x["g"].exp(), x["beta"], cu_seqlens=cu())
        wanted, _ = recurrence.gated_delta_rule(x["q"], x["k"], x["v"], x["g"], x["beta"], STARTS, DIM**-0.5)
        self.near(o, wanted, O_BOUND[F16])

    def test_outputs_of_the_callers(self):
        wanted_o, wanted_state = self.wanted()
        output, state = torch.empty_like(self.x["v"]), torch.empty(3, 4, DIM, DIM)
        found = self.call(initial_state=self.start, output_final_state=True, output=output, output_state=state)
        self.assertIs(found[0], output)
        self.assertIs(found[1], state)
        self.near(output, wanted_o, O_BOUND[BF16])
        self.near(state, wanted_state, STATE_BOUND)
        low = torch.empty_like(state, dtype=BF16)
        self.call(initial_state=self.start.to(BF16), output_final_state=True, output_state=low)
        self.near(low, wanted_state, 8e-3)
        _, wide = self.call(initial_state=self.start.to(BF16), output_final_state=True)
        self.assertEqual(wide.dtype, F32)

    def test_pools(self):
        wanted_o, wanted_state = self.wanted()
        for dtype in (torch.int32, torch.int64):
            lines = torch.tensor([5, 0, 2], dtype=dtype)
            pool = torch.full((7, 4, DIM, DIM), 3.0)
            pool[lines.long()] = self.start
            before, other = pool.clone(), torch.full_like(pool, 4.0)
            o, found = self.call(initial_state=pool, output_state=other, output_final_state=True, state_indices=lines)
            self.near(o, wanted_o, O_BOUND[BF16])
            self.near(found[lines.long()], wanted_state, STATE_BOUND)
            self.assertTrue(torch.equal(pool, before) and bool((other[[1, 3, 4, 6]] == 4).all()))
            o = self.call(initial_state=pool, state_indices=lines)
            self.near(o, wanted_o, O_BOUND[BF16])
            _, found = self.call(initial_state=pool, output_state=pool, output_final_state=True, state_indices=lines)
            self.assertIs(found, pool)
            self.near(pool[lines.long()], wanted_state, STATE_BOUND)
            self.assertTrue(bool((pool[[1, 3, 4, 6]] == 3).all()))

    def test_an_empty_sequence_keeps_its_state(self):
        _, state = self.call(initial_state=self.start, output_final_state=True)
        self.assertTrue(torch.equal(state[1], self.start[1]))

    def test_use_cp_is_a_plans_flag(self):
        with unittest.mock.patch.object(eager, "run", wraps=eager.run) as ran:
            self.call(use_cp=False)
            self.call(use_cp="auto")
        self.assertEqual([made.args[-1] for made in ran.call_args_list], [serving.WHOLE_SEQUENCES, 0])

    def test_what_is_refused(self):
        some = torch.zeros(4)
        given = dict(state_checkpoints=some, checkpoint_cu_starts=some, checkpoint_every_n_tokens=64, prefix_lens=some)
        given.update(output_state_indices=some, checkpoint_state_indices=some, _cp_chunk_len=64, backend="cudnn")
        given.update(use_cp=True, output_state=self.start)
        self.refused(given, self.call, **given)
        low, pool = self.start.to(BF16), dict(output_final_state=True, state_indices=cu()[:3])
        for name, more in (
            ("initial_state", dict(initial_state=low, output_state=self.start, **pool)),
            ("initial_state", dict(initial_state=self.start, output_state=low, output_final_state=True)),
            ("initial_state", dict(initial_state=self.start.to(torch.float8_e4m3fn))),
        ):
            with self.assertRaisesRegex(dropin.Unsupported, name):
                self.call(**more)
        for wanted, more in (
            ("gate_domain", dict(gate_domain="sigmoid")),
            ("needs g, A_log and dt_bias", dict(use_gate_in_kernel=True)),
            ("use_gate_in_kernel is False", dict(A_log=some)),
            ("needs beta", dict(beta=None, beta_is_logit=True)),
            ("output_state must be too", dict(initial_state=self.start, **pool)),
            ("use_cp is 'yes'", dict(use_cp="yes")),
        ):
            with self.assertRaisesRegex(ValueError, wanted):
                self.call(**more)
        with self.assertRaisesRegex(ValueError, "cu_seqlens is None"):
            flashinfer.chunk_gated_delta_rule(*self.qkv)

    def test_hints_change_nothing(self):
        hints = dict(max_seqlen=67, cu_seqlens_cpu=[0, 3, 3, 70], backend="auto", checkpoint_every_n_tokens=0)
        self.assertTrue(torch.equal(self.call(), self.call(**hints)))


class CausalConv1d(Case):
    """[B, C, T] of 2 sequences of 9 tokens."""

    B, C, T = 2, 48, 9

    def setUp(self):
        super().setUp()
        self.weight, self.bias = torch.randn(self.C, 4).to(BF16), torch.randn(self.C).to(BF16)
        self.rows = strided(self.B, self.T, self.C)
        self.x, self.init = self.rows.transpose(1, 2), torch.randn(self.B, self.C, 3).to(BF16)

    def wanted(self, init, bias=None, silu=True, weight=None):
        starts, weight = [0, self.T, 2 * self.T], self.weight if weight is None else weight
        history = torch.zeros(self.B, self.C, weight.shape[1] - 1) if init is None else init
        y, last = recurrence.causal_conv(self.rows.flatten(0, 1), weight, bias, starts, history, silu)
        return y.view(self.B, self.T, self.C).transpose(1, 2), last.to(BF16)

    def test_activations_bias_and_widths(self):
        for activation, bias, width in itertools.product((None, "silu", "swish"), (None, self.bias), (2, 3, 4)):
            weight = self.weight[:, :width].contiguous()
            y = causal_conv1d.causal_conv1d_fn(self.x, weight, bias, activation=activation)
            self.near(y, self.wanted(None, bias, activation is not None, weight)[0], O_BOUND[BF16])
            self.assertEqual(y.stride(1), 1)

    def test_states(self):
        line = dict(cw=torch.full((self.B, self.C, 3), 7.0).to(BF16))
        line.update(wc=torch.full((self.B, 3, self.C), 7.0).to(BF16).transpose(1, 2))
        for init, out in itertools.product((None, self.init), (None, *line.values())):
            y, last = causal_conv1d.causal_conv1d_fn(
                self.x, self.weight, None, None, init, True, out, activation="silu"
            )
            wanted, wanted_last = self.wanted(init)
            self.near(y, wanted, O_BOUND[BF16])
            self.assertTrue(torch.equal(last, wanted_last))
            self.assertTrue(out is None or last is out)
            self.assertEqual(last.stride(1) == 1, out is None or out.stride(1) == 1)

    def test_initial_states_are_read_and_kept(self):
        before = self.init.clone()
        y = causal_conv1d.causal_conv1d_fn(self.x, self.weight, initial_states=self.init)
        self.near(y, self.wanted(self.init, silu=False)[0], O_BOUND[BF16])
        self.assertTrue(torch.equal(self.init, before))

    def test_in_place(self):
        state = self.init.clone()
        causal_conv1d.causal_conv1d_fn(self.x, self.weight, None, None, state, True, state)
        self.assertTrue(torch.equal(state, self.wanted(self.init)[1]))

    def test_what_is_refused(self):
        call, given = causal_conv1d.causal_conv1d_fn, dict(activation="gelu", final_states_out=self.init)
        given.update(seq_idx=torch.zeros(self.B, self.T, dtype=torch.int32))
        self.refused(given, call, self.x, self.weight, **given)
        for wanted, args in (
            ("x is channel-first", (self.x.contiguous(), self.weight)),
            ("x is of batch stride", (torch.randn(2, 20, 48).to(BF16)[:, :9].transpose(1, 2), self.weight)),
            ("weight is torch.float32", (self.x, self.weight.float())),
            ("bias is torch.float32", (self.x, self.weight, self.bias.float())),
            ("of 40 channels", (self.x[:, :40], self.weight[:40])),
            ("of width 5", (self.x, torch.randn(48, 5).to(BF16))),
        ):
            with self.assertRaisesRegex(dropin.Unsupported, wanted):
                call(*args)
        with self.assertRaisesRegex(ValueError, "initial_states is"):
            call(self.x, self.weight, initial_states=self.init[:1])


class Vllm(Case):
    """[C, T] of three sequences, one of them empty, in lines 4, 1 and 6 of a pool of 8."""

    C = 48
    LINES = [4, 1, 6]

    def setUp(self):
        super().setUp()
        self.x, self.weight = strided(70, self.C).t(), torch.randn(self.C, 4).to(BF16)
        self.pool = torch.randn(8, 3, self.C).to(BF16).transpose(1, 2)
        self.indices, self.has = torch.tensor(self.LINES, dtype=torch.int32), torch.tensor([True, True, True])

    def call(self, pool=None, bias=None, **options):
        pool = self.copy() if pool is None else pool
        options = {"cache_indices": self.indices, "has_initial_state": self.has, **options}
        return vllm.causal_conv1d_fn(self.x, self.weight, bias, pool, cu(torch.int32), **options), pool

    def copy(self, history=3, layout="wc"):
        """The pool, with columns to spare that hold sevens."""
        made = torch.full((8, self.C, history), 7.0).to(BF16)
        made = made.transpose(1, 2).contiguous().transpose(1, 2) if layout == "wc" else made
        made[:, :, :3] = self.pool
        return made

    def wanted(self, has=(1, 1, 1), bias=None, silu=True):
        history = self.pool[self.LINES] * torch.tensor(has)[:, None, None]
        y, last = recurrence.causal_conv(self.x.t(), self.weight, bias, STARTS, history, silu)
        lines = self.pool.clone()
        lines[[4, 6]] = last[[0, 2]].to(BF16)  # that of the empty sequence stays
        return y.t(), lines

    def test_lines_are_read_and_updated_in_place(self):
        for history, layout in itertools.product((3, 5), ("wc", "cw")):
            y, pool = self.call(self.copy(history, layout))
            wanted, lines = self.wanted()
            self.near(y, wanted, O_BOUND[BF16])
            self.assertTrue(torch.equal(pool[:, :, :3], lines) and bool((pool[:, :, 3:] == 7).all()))
            self.assertEqual(y.stride(), (1, self.C))

    def test_flags_of_initial_states(self):
        for flags, has in ((torch.tensor([False, True, True]), (0, 1, 1)), (None, (0, 0, 0))):
            y, pool = self.call(has_initial_state=flags)
            wanted, lines = self.wanted(has)
            self.near(y, wanted, O_BOUND[BF16])
            self.assertTrue(torch.equal(pool, lines))

    def test_activations_and_bias(self):
        bias = torch.randn(self.C).to(BF16)
        for activation, silu in ((None, False), ("silu", True), ("swish", True), (True, True)):
            y, _ = self.call(bias=bias, activation=activation)
            self.near(y, self.wanted(bias=bias, silu=silu)[0], O_BOUND[BF16])

    def test_lines_in_order_without_indices(self):
        y, pool = self.call(cache_indices=None)
        history = self.pool[:3]
        wanted, last = recurrence.causal_conv(self.x.t(), self.weight, None, STARTS, history)
        self.near(y, wanted.t(), O_BOUND[BF16])
        self.assertTrue(torch.equal(pool[[0, 2]], last[[0, 2]].to(BF16)))

    def test_sequences_that_are_padding(self):
        wanted, lines = self.wanted()
        lines[6] = self.pool[6]
        for indices, more in (
            ([4, 1, -1], {}),
            ([4, 1, 0], dict(null_block_id=0)),
            ([4, 1, 7], dict(pad_slot_id=7)),
            ([4, 1, -1], dict(pad_slot_id=None)),
        ):
            for dtype in (torch.int32, torch.int64):
                y, pool = self.call(cache_indices=torch.tensor(indices, dtype=dtype), **more)
                self.near(y[:, :3], wanted[:, :3], O_BOUND[BF16])
                self.assertTrue(torch.equal(pool, lines))

    def test_indices_may_be_a_column_of_a_table(self):
        table = torch.zeros(3, 5, dtype=torch.int32)
        table[:, 2] = self.indices
        y, _ = self.call(cache_indices=table[:, 2])
        self.near(y, self.wanted()[0], O_BOUND[BF16])

    def test_no_states(self):
        y = vllm.causal_conv1d_fn(self.x, self.weight, None, None, cu())
        self.near(y, self.wanted((0, 0, 0))[0], O_BOUND[BF16])

    def test_what_is_refused(self):
        some = torch.zeros(3, dtype=torch.int32)
        given = dict(block_idx_first_scheduled_token=some, block_idx_last_scheduled_token=some, initial_state_idx=some)
        given.update(num_computed_tokens=some, block_size_to_align=64, activation="gelu")
        given.update(cache_indices=torch.zeros(3, 4, dtype=torch.int32))
        self.refused(given, self.call, **given)
        with self.assertRaisesRegex(dropin.Unsupported, "conv_states is torch.float32"):
            self.call(self.copy().float())
        with self.assertRaisesRegex(dropin.Unsupported, "conv_states is of strides"):
            self.call(torch.empty(8, 2 * self.C, 6).to(BF16)[:, ::2, ::2])
        with self.assertRaisesRegex(dropin.Unsupported, "x is channel-first"):
            vllm.causal_conv1d_fn(self.x.contiguous(), self.weight, None, None, cu())
        with self.assertRaisesRegex(ValueError, "query_start_loc is None"):
            vllm.causal_conv1d_fn(self.x, self.weight, None, None, None)

    def test_hints_change_nothing(self):
        plain, hinted = self.call()[0], self.call(metadata=object(), validate_data=True, block_size_to_align=0)[0]
        self.assertTrue(torch.equal(plain, hinted))


class Signatures(unittest.TestCase):
    """Names, order and defaults, as the originals have them; but null_block_id of None (vllm.py says why)."""

    def test_they_are_the_originals(self):
        for function, text in (
            (
                fla.chunk_gated_delta_rule,
                "(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False, "
                "use_qk_l2norm_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, "
                "state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None, "
                "cp_context=None, **kwargs)",
            ),
            (
                flashinfer.chunk_gated_delta_rule,
                "(q, k, v, g=None, beta=None, scale=None, initial_state=None, output_final_state=False, "
                "cu_seqlens=None, use_qk_l2norm_in_kernel=False, output=None, output_state=None, "
                "state_checkpoints=None, checkpoint_cu_starts=None, checkpoint_every_n_tokens=0, use_cp='auto', "
                "state_indices=None, _cp_chunk_len=None, backend='auto', max_seqlen=None, *, gate_domain='linear', "
                "use_gate_in_kernel=False, A_log=None, dt_bias=None, beta_is_logit=False, cu_seqlens_cpu=None, "
                "output_state_indices=None, checkpoint_state_indices=None, prefix_lens=None)",
            ),
            (
                causal_conv1d.causal_conv1d_fn,
                "(x, weight, bias=None, seq_idx=None, initial_states=None, return_final_states=False, "
                "final_states_out=None, activation=None)",
            ),
            (
                vllm.causal_conv1d_fn,
                "(x, weight, bias, conv_states, query_start_loc, cache_indices=None, has_initial_state=None, "
                "activation='silu', pad_slot_id=-1, null_block_id=None, block_idx_first_scheduled_token=None, "
                "block_idx_last_scheduled_token=None, initial_state_idx=None, num_computed_tokens=None, "
                "block_size_to_align=0, metadata=None, validate_data=False)",
            ),
        ):
            self.assertEqual(str(inspect.signature(function)), text)


class Compiled(unittest.TestCase):
    """torch.compile without a graph break, functionalised: the values of the plain call, states updated as well."""

    def same(self, function, make):
        """make(): (args, options) anew; results and every tensor given are compared."""
        torch._dynamo.reset()
        (args, options), (args_2, options_2) = make(), make()
        plain = function(*args, **options)
        traced = torch.compile(function, backend="aot_eager", fullgraph=True)(*args_2, **options_2)
        pairs = zip((*args, *options.values()), (*args_2, *options_2.values()))
        results = zip(plain, traced) if isinstance(plain, tuple) else [(plain, traced)]
        for one, other in (*pairs, *results):
            self.assertTrue(torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other)

    def test_prefill(self):
        x = recurrence.inputs(STARTS, 2, 4, DIM, BF16, 6)
        qkv = [x[n] for n in "qkv"]

        def pooled():
            pool = x["h0"].clone()
            lines = torch.tensor([2, 0, 1])
            more = dict(output_state=pool, output_final_state=True, cu_seqlens=cu(), state_indices=lines)
            return (*qkv, x["g"].exp(), x["beta"]), dict(initial_state=pool, **more)

        with torch.no_grad():
            self.same(flashinfer.chunk_gated_delta_rule, pooled)
            self.same(flashinfer.chunk_gated_delta_rule, lambda: (qkv, dict(cu_seqlens=cu())))
            rows = [t[None] for t in (*qkv, x["g"], x["beta"])]
            self.same(fla.chunk_gated_delta_rule, lambda: (rows, dict(cu_seqlens=cu(), output_final_state=True)))

    def test_conv(self):
        weight, rows = torch.randn(48, 4).to(BF16), torch.randn(70, 48).to(BF16)
        state = torch.randn(5, 3, 48).to(BF16)

        def pooled():
            pool, lines = state.clone().transpose(1, 2), torch.tensor([4, 0, 2])
            return (rows.t(), weight, None, pool, cu(), lines, torch.tensor([True, False, True])), {}

        def batch():
            return (rows.view(2, 35, 48).transpose(1, 2), weight), dict(return_final_states=True, activation="silu")

        with torch.no_grad():
            self.same(vllm.causal_conv1d_fn, pooled)
            self.same(causal_conv1d.causal_conv1d_fn, batch)

    def test_export_with_a_length_of_any_size(self):
        class Layer(torch.nn.Module):
            def forward(self, *args):
                return fla.chunk_gated_delta_rule(*args)[0]

        def rows(tokens):
            x = recurrence.inputs([0, tokens], 1, 2, DIM, BF16, tokens)
            return tuple(x[n][None] for n in ("q", "k", "v", "g", "beta"))

        lengths = ({1: torch.export.Dim("tokens", min=2, max=4096)},) * 5
        with torch.no_grad():
            exported = torch.export.export(Layer(), rows(70), dynamic_shapes=(lengths,))
            self.assertTrue(torch.equal(exported.module()(*rows(33)), Layer()(*rows(33))))

    def test_lengths_that_change_do_not_trace_anew_for_each(self):
        torch._dynamo.reset()
        traced = torch.compile(fla.chunk_gated_delta_rule, backend="aot_eager", fullgraph=True, dynamic=True)
        counter = torch._dynamo.utils.counters
        counter.clear()
        with torch.no_grad():
            for tokens in (64, 65, 80, 130):
                x = recurrence.inputs([0, tokens], 1, 2, DIM, BF16, tokens)
                args = [x[n][None] for n in ("q", "k", "v", "g", "beta")]
                self.assertTrue(torch.equal(traced(*args)[0], fla.chunk_gated_delta_rule(*args)[0]))
        self.assertLessEqual(counter["stats"]["unique_graphs"], 2)


class Reserved(Case):
    """The descriptors that python/README.md has for reserve() are those of the calls."""

    HEADS = dict(num_q_heads=2, num_k_heads=2, num_v_heads=4, head_dim_qk=DIM, head_dim_v=DIM)

    def same(self, op, reserved, call):
        with unittest.mock.patch.object(eager, "run", wraps=eager.run) as ran:
            call()
        asked, describe, args, options = ran.call_args.args[:4]
        self.assertEqual(asked, op)
        desc, _ = describe(args, options)
        keys = [serving.key_of(op, tuple(d.items())) for d in (reserved, desc)]
        self.assertEqual(*keys)

    def test_prefill(self):
        x = recurrence.inputs(STARTS, 2, 4, DIM, BF16, 8)
        qkv = [x[n] for n in "qkv"]
        shape = dict(io_type="bf16", **self.HEADS)
        rows = [t[None] for t in (*qkv, x["g"], x["beta"].to(BF16))]
        desc = dict(shape, beta_type="bf16", cu_seqlens_type="torch.int64", flags="qk_l2norm")
        call = dict(cu_seqlens=cu(), initial_state=x["h0"].to(BF16), use_qk_l2norm_in_kernel=True)
        self.same("prefill", desc, lambda: fla.chunk_gated_delta_rule(*rows, **call))
        desc = dict(shape, state_layout="vk", gate="linear", slot_type="torch.int64")
        call = dict(cu_seqlens=cu(torch.int32), initial_state=x["h0"], output_final_state=True, output_state=x["h0"])
        call.update(state_indices=torch.tensor([0, 1, 2]))
        self.same("prefill", desc, lambda: flashinfer.chunk_gated_delta_rule(*qkv, x["g"], x["beta"], **call))

    def test_conv(self):
        weight, rows = torch.randn(384, 4).to(BF16), torch.randn(70, 384).to(BF16)
        shape = dict(io_type="bf16", num_v_heads=3, head_dim_v=128, width=4, state_layout="wc")
        pool, lines = torch.randn(3, 3, 384).to(BF16).transpose(1, 2), torch.tensor([0, 1, 2], dtype=torch.int32)
        args = (rows.t(), weight, weight[:, 0].contiguous(), pool, cu(torch.int32), lines)
        self.same("conv1d_qkv", dict(shape, flags=("silu", "bias")), lambda: vllm.causal_conv1d_fn(*args))
        batch = rows.view(2, 35, 384).transpose(1, 2)
        call = dict(return_final_states=True)
        self.same("conv1d_qkv", dict(shape, flags=0), lambda: causal_conv1d.causal_conv1d_fn(batch, weight, **call))


class Seen(torch.utils._python_dispatch.TorchDispatchMode):
    """Names of the operators that the dispatcher is asked for."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class AtOnce(Case):
    """A call of plain values does without the dispatcher, where nobody looks at what goes through it."""

    def setUp(self):
        super().setUp()
        x = recurrence.inputs(STARTS, 1, 2, DIM, BF16, 9)
        self.args = [x[n] for n in ("q", "k", "v", "g", "beta")]
        self.given = dict(initial_state=x["h0"], cu_seqlens=cu(), final_state=True)
        self.rows, self.weight = torch.randn(70, 96).to(BF16), torch.randn(96, 4).to(BF16)

    def test_results_are_those_of_the_dispatcher(self):
        state = torch.randn(3, 96, 3).to(BF16)
        conv = dict(cu_seqlens=cu(), num_gate_heads=2, a=torch.randn(70, 2).to(BF16), a_log=torch.zeros(2))
        for op, plain, args, given in (
            ("prefill", ops.prefill, self.args, self.given),
            ("prefill", ops.prefill, self.args, dict(self.given, scale=2, state_type=F32, max_seq_tokens=67)),
            ("conv1d_qkv", ops.conv1d_qkv, (self.rows, self.weight), dict(CONV_SHAPE, **conv)),
        ):
            wanted = getattr(torch.ops.gdn_jit, op)(*args, **given)
            with self.no_dispatcher():
                found = plain(*args, **given)
            for a, b in zip(found, wanted):
                self.assertTrue(torch.equal(a, b) and a.dtype == b.dtype and not a.requires_grad, op)
        pools, o = [state.clone() for _ in range(2)], torch.empty_like(self.args[2])
        with self.no_dispatcher():
            y = ops.causal_conv1d(self.rows, self.weight, None, pools[0], cu_seqlens=cu())
            ops.prefill_into(*self.args[:3], o, g=self.args[3], beta=self.args[4], cu_seqlens=cu())
        wanted = torch.ops.gdn_jit.causal_conv1d(self.rows, self.weight, None, pools[1], cu_seqlens=cu())
        self.assertTrue(torch.equal(y, wanted) and torch.equal(*pools))
        self.assertTrue(torch.equal(o, ops.prefill(*self.args, cu_seqlens=cu())[0]))

    def no_dispatcher(self):
        patched = contextlib.ExitStack()
        for made in (ops._prefill, ops._prefill_into, ops._conv1d_qkv, ops._causal_conv1d):
            patched.enter_context(unittest.mock.patch.object(made, "dispatched", None))
        return patched

    def test_who_looks_sees_the_operator(self):
        with Seen() as seen:
            o, state = ops.prefill(*self.args, **self.given)
        self.assertIn("gdn_jit.prefill.default", seen.names)
        self.assertTrue(torch.equal(o, ops.prefill(*self.args, **self.given)[0]))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            ops.causal_conv1d(self.rows, self.weight)
        self.assertIn("gdn_jit::causal_conv1d", [event.name for event in profile.events()])
        with torch._subclasses.FakeTensorMode() as mode:
            fakes = [mode.from_tensor(t) for t in self.args]
            o, state = ops.prefill(*fakes, final_state=True)
        self.assertEqual((tuple(o.shape), tuple(state.shape)), ((70, 2, DIM), (1, 2, DIM, DIM)))
        with torch.autograd.forward_ad.dual_level(), unittest.mock.patch.object(ops._prefill, "dispatched") as asked:
            q = torch.autograd.forward_ad.make_dual(self.args[0], self.args[0])
            ops.prefill(q, *self.args[1:])  # whether it has a tangent is torch's to say
        asked.assert_called_once()
        with self.assertRaises((RuntimeError, NotImplementedError)):
            torch.func.vmap(lambda x: ops.causal_conv1d(x, self.weight))(self.rows.view(2, 35, 96))

    def test_a_subclass_of_tensor_and_what_is_no_tensor_are_torchs_to_judge(self):
        class Subclass(torch.Tensor):
            asked = []

            @classmethod
            def __torch_function__(cls, function, types_, args=(), kwargs=None):
                cls.asked.append(str(function))
                return super().__torch_function__(function, types_, args, kwargs or {})

        ops.prefill(self.args[0].as_subclass(Subclass), *self.args[1:])
        self.assertTrue(any("gdn_jit" in name for name in Subclass.asked), Subclass.asked)
        for given in (dict(cu_seqlens=STARTS), dict(cu_seqlens=256), dict(queue=3), dict(gate=3), dict(scale="1")):
            with self.subTest(given), self.assertRaisesRegex((RuntimeError, TypeError), "gdn_jit::prefill"):
                ops.prefill(*self.args, **given)

    def test_autograd_learns_what_was_written(self):
        o, pool = torch.empty_like(self.args[2]), self.given["initial_state"].clone()
        state = torch.randn(1, 96, 3).to(BF16)
        before = [t._version for t in (o, pool, state, self.args[0])]
        ops.prefill_into(*self.args[:3], o, pool, cu_seqlens=cu(), in_place=True)
        ops.causal_conv1d(self.rows, self.weight, None, state)
        ops.conv1d_qkv(self.rows, self.weight, **CONV_SHAPE, state=state)
        after = [t._version for t in (o, pool, state, self.args[0])]
        self.assertEqual([b > a for a, b in zip(before, after)], [True, True, True, False])
        with torch.inference_mode():
            ops.prefill_into(*self.args[:3], torch.empty_like(o), torch.empty_like(pool), cu_seqlens=cu())


class GpuTensor(support.HostTensor):
    """Stands for one of a GPU; starts where the contract wants it."""

    is_cuda = True

    def __init__(self, shape, dtype="torch.bfloat16", gpu=0):
        super().__init__(shape, "H", dtype=dtype)
        self.device = torch.device("cuda", gpu)
        self.address = self.memory.buffer_info()[0] // 256 * 256

    def data_ptr(self):
        return self.address


class OnGpu(unittest.TestCase):
    """The way of a GPU's tensors, with stand-ins for them and a driver that launches nothing."""

    DESC = dict(io_type=BF16, num_q_heads=1, num_k_heads=1, num_v_heads=2, head_dim_qk=DIM, head_dim_v=DIM)

    def setUp(self):
        self.driver = support.FakeDriver()
        self.driver.reset()
        serving.close()
        paths = dict(driver_path=self.driver.path, nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"])
        serving.configure(cache_dir="", flags="no_env", **paths)
        self.addCleanup(serving.close)
        self.taken, self.under, self.described, patched = [], [], [], contextlib.ExitStack()
        self.addCleanup(patched.close)
        for name, stand_in in (
            ("torch.cuda.device", self.device),
            ("torch.cuda.current_device", lambda: 0),
            ("torch.empty", self.empty),
            ("torch.zeros", self.zeros),
            ("gdn_jit.eager._current_stream", lambda gpu: 0),
        ):
            patched.enter_context(unittest.mock.patch(name, stand_in))

    @contextlib.contextmanager
    def device(self, device):
        self.under.append(device.index)
        yield

    def empty(self, size, **_):
        self.taken.append(size)
        return GpuTensor((size,))

    def zeros(self, *_, **__):
        """A first call of the CUDA runtime."""
        self.driver.make_current(0)

    def describe(self, args, options):
        self.described.append(options)
        return self.DESC, dict(num_tokens=args["q"].shape[0], num_seqs=1)

    def tensors(self, tokens, gpu=0):
        return {n: GpuTensor((tokens, 2 if n in "vo" else 1, DIM), gpu=gpu) for n in "qkvo"}

    def call(self, tokens, args=None, options=(), gpu=0):
        args = args or self.tensors(tokens, gpu)
        eager.run("prefill", self.describe, args, options, args["q"].device)

    def test_a_call_takes_a_plan_and_workspace_and_launches_once(self):
        self.driver.make_current(0)
        self.call(8)
        self.call(7)
        held = serving.serving().plan_for("prefill", tuple(self.DESC.items()), 0, 8, 1)
        self.assertGreater(held.workspace_size, 0)
        self.assertEqual((self.taken, self.driver.num_launches()), ([held.workspace_size] * 2, 2))
        self.assertEqual(self.under, [])

    def test_a_thread_that_has_no_context_is_given_one(self):
        self.call(8)
        self.assertEqual(self.driver.num_launches(), 1)

    def test_like_calls_are_described_once_and_have_their_own_addresses(self):
        self.driver.make_current(0)
        seen = []
        with unittest.mock.patch.object(api.Checked, "run", lambda checked, args, *more: seen.append((checked, args))):
            other = {**self.tensors(8), "k": GpuTensor((1, 8, DIM))}
            calls = [(8, None, ()), (8, None, ()), (8, None, (1,)), (9, None, ()), (8, None, ()), (8, None, (1,))]
            for tokens, args, options in calls:
                self.call(tokens, args, options)
            with self.assertRaisesRegex(ValueError, "k has shape"):
                self.call(8, other)
            with self.assertRaisesRegex(ValueError, "v is torch.float16"):
                self.call(8, {**self.tensors(8), "v": GpuTensor((8, 2, DIM), "torch.float16")})
        self.assertEqual(self.described, [(), (1,), (), (), ()])
        self.assertIs(seen[0][0], seen[4][0])
        kept, launched = seen[0][0], []
        kept._function = lambda handle, struct, *_: launched.append(struct._obj)
        for args in (self.tensors(8), self.tensors(8)):
            self.call(8, args)
            struct = launched.pop()
            self.assertEqual({m: getattr(struct, m) for m in args}, {m: t.data_ptr() for m, t in args.items()})
            self.assertEqual((struct.num_tokens, struct.num_seqs, struct.g), (8, 1, 0))
        self.assertEqual(len(self.described), 5)

    def test_no_more_layouts_are_remembered_than_the_binding_keeps(self):
        self.driver.make_current(0)
        with unittest.mock.patch.object(api, "LAYOUTS_KEPT", 3):
            for tokens in range(1, 9):
                self.call(tokens)
                self.assertLessEqual(len(serving.serving().checked), 3)

    def test_a_call_of_another_gpu_is_made_under_it(self):
        self.driver.make_current(0)
        with unittest.mock.patch("torch.cuda.current_device", lambda: 1):
            self.call(8)
        self.assertEqual((self.under, self.driver.num_launches()), ([0], 1))

    def test_what_was_checked_is_gone_with_its_plan(self):
        self.driver.make_current(0)
        self.call(8)
        before = serving.serving().checked
        serving.close()
        (kept, _), *_ = before.values()
        with self.assertRaisesRegex(ValueError, "closed"):
            kept.run(self.tensors(8), 0)


if __name__ == "__main__":
    unittest.main()
