"""test_serving.py - gdn_jit.serving without torch and without a GPU: how many plans calls make, who may make one, and
whose context it is. The driver and NVRTC are the tests' stand-ins.
"""

import os
import sys
import threading
import types
import unittest
import unittest.mock

import support

import gdn_jit
from gdn_jit import serving

SHAPE = dict(io_type="f16", num_q_heads=1, num_k_heads=1, num_v_heads=2, head_dim_qk=64, head_dim_v=64)
PAIRS = tuple(SHAPE.items())
CONV = dict(io_type="bf16", num_v_heads=2, head_dim_v=64, width=4)


class Bounds(unittest.TestCase):
    def test_powers_of_four(self):
        for count, bound in ((0, 256), (1, 256), (256, 256), (257, 1024), (1025, 4096), (4097, 16384)):
            self.assertEqual(serving.bucket(count), bound)

    def test_the_largest_that_a_descriptor_takes(self):
        self.assertEqual(serving.bucket((1 << 30) + 1), 2**31 - 1)


class Serving(unittest.TestCase):
    def setUp(self):
        self.driver = support.FakeDriver()
        self.driver.reset()
        self.configure()
        self.addCleanup(serving.close)

    def configure(self, **more):
        serving.close()
        paths = dict(driver_path=self.driver.path, nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"])
        serving.configure(cache_dir="", flags="no_env", **paths, **more)

    def plan(self, tokens, seqs, pairs=PAIRS, **more):
        return serving.serving().plan_for("prefill", pairs, 0, tokens, seqs, **more)

    def bounds(self):
        return [(p["max_tokens"], p["max_seqs"]) for p in serving.plans()]

    def test_growth_makes_few_plans(self):
        seen = {id(self.plan(tokens, seqs).plan) for tokens in range(1, 20000, 97) for seqs in (1, 7, 300)}
        made = serving.serving().made
        self.assertEqual(len(seen), len(made))
        self.assertEqual([(p.desc.max_tokens, p.desc.max_seqs) for p in made][-1], (65536, 1024))
        self.assertLessEqual(len(made), 6)
        self.assertEqual(self.bounds(), [(65536, 1024)])

    def test_one_plan_for_good_where_the_bounds_are_known(self):
        self.configure(max_tokens=10000, max_seqs=300)
        self.assertEqual(len({id(self.plan(n, s).plan) for n, s in ((1, 1), (9999, 300), (10000, 1))}), 1)
        self.assertEqual(self.bounds(), [(10000, 300)])

    def test_equal_descriptors_share_a_plan_however_they_are_spelled(self):
        same = (*reversed(PAIRS[1:]), ("io_type", "torch.float16"), ("state_layout", "GDN_STATE_KV"))
        self.assertIs(self.plan(8, 1), self.plan(9, 2, same))
        self.assertIsNot(self.plan(8, 1), self.plan(8, 1, (*PAIRS, ("state_layout", "vk"))))
        self.assertIsNot(self.plan(8, 1), self.plan(8, 1, plan_flags=serving.WHOLE_SEQUENCES))
        self.assertEqual(len(serving.plans()), 3)

    def test_what_0_stands_for_is_the_same_plan(self):
        said = dict(CONV, state_type="bf16", gate_type="bf16", a_log_type="fp32", dt_bias_type="fp32", x_alignment=16)
        left = dict(CONV, x_alignment=0)
        self.assertEqual(*(serving.key_of("conv1d_qkv", tuple(d.items())) for d in (said, left)))
        self.assertNotEqual(*(serving.key_of("conv1d_qkv", tuple({**CONV, "state_type": s}.items())) for s in (2, 3)))

    def test_what_is_reserved_serves_and_is_taken_as_it_is(self):
        size = serving.reserve("prefill", 777, 3, **SHAPE)
        held = self.plan(777, 3)
        self.assertEqual((held.tokens, held.seqs, held.workspace_size), (777, 3, size))
        serving.reserve("prefill", 100, 5, **SHAPE)
        self.assertEqual(self.bounds(), [(777, 5)])
        self.assertEqual(serving.reserve("conv1d_qkv", 777, 3, **CONV), 0)
        self.assertEqual(self.plan(778, 3)[1:3], (1024, 5))

    def test_a_plan_is_of_a_device_and_loaded_there(self):
        held = self.plan(8, 1)
        self.driver.make_current(0)
        at = dict(q=16, k=32, v=48, o=64, num_tokens=8, num_seqs=1)
        held.plan.execute(workspace=256, workspace_size=held.workspace_size, **at)
        self.assertEqual(self.driver.num_launches(), 1)

    def test_nothing_is_planned_while_a_stream_is_capturing(self):
        cuda = types.SimpleNamespace(is_available=lambda: True, is_current_stream_capturing=lambda: True)
        self.plan(256, 1)
        with unittest.mock.patch.dict(sys.modules, torch=types.SimpleNamespace(cuda=cuda)):
            self.plan(100, 200)
            with self.assertRaisesRegex(RuntimeError, r"prefill has no plan for 257 tokens .*capturing.*reserve\("):
                self.plan(257, 1)
        self.assertEqual(len(serving.plans()), 1)

    def test_a_refusal_says_the_reserve_that_is_missing(self):
        self.configure(plan_on_call=False)
        pairs = (*PAIRS, ("state_layout", "vk"), ("flags", ("qk_l2norm", "zero_padding")))
        with self.assertRaisesRegex(RuntimeError, "plan_on_call is False") as caught:
            self.plan(300, 2, pairs, plan_flags=serving.WHOLE_SEQUENCES)
        call = str(caught.exception).split("call gdn_jit.serving.")[1].split(" before,")[0]
        eval(call, {"reserve": serving.reserve})
        self.plan(300, 2, pairs, plan_flags=serving.WHOLE_SEQUENCES)

    def test_plan_flags_of_a_process_are_in_every_plan(self):
        self.configure(plan_flags="batch_invariant")
        self.plan(8, 1)
        self.assertEqual(serving.plans()[0]["plan_flags"], 32)

    def test_bounds_that_are_too_large_when_rounded_come_closer(self):
        def limited(*args, max_tokens, **more):
            made.append(max_tokens)
            if max_tokens > 330:
                raise gdn_jit.GdnError(11, why, "workspace, or what no cache has")
            return real(*args, max_tokens=max_tokens, **more)

        for why in serving.TRY_SMALLER_BOUNDS:
            self.configure()
            made, context = [], serving.serving().context
            real = context.plan_prefill
            with self.subTest(why), unittest.mock.patch.object(context, "plan_prefill", limited):
                self.assertEqual(self.plan(300, 1)[1:3], (320, 16))
                self.assertEqual(self.plan(321, 1).tokens, 321)
                self.assertEqual(made, [1024, 320, 1024, 384, 321])
                with self.assertRaises(gdn_jit.GdnError):
                    self.plan(331, 1)
                self.assertEqual(self.bounds(), [(321, 16)])
        self.assertIn("GDN_E_NO_NVRTC", serving.TRY_SMALLER_BOUNDS)

    def test_what_larger_bounds_do_not_mend_is_tried_once(self):
        made, context = [], serving.serving().context

        def failing(*_, max_tokens, **__):
            made.append(max_tokens)
            raise gdn_jit.GdnError(3, "GDN_E_COMPILE", "nvrtc says no")

        with unittest.mock.patch.object(context, "plan_prefill", failing), self.assertRaises(gdn_jit.GdnError):
            self.plan(300, 1)
        self.assertEqual(made, [1024])

    def test_threads_that_need_one_plan_make_one(self):
        found, gate = [], threading.Barrier(8)

        def call():
            gate.wait()
            found.append(self.plan(5000, 9))

        threads = [threading.Thread(target=call) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((len(found), len({id(h) for h in found}), len(serving.serving().made)), (8, 1, 1))

    def test_a_fork_is_told(self):
        self.plan(8, 1)
        for action, wanted in (
            (lambda: self.plan(8, 1), "is of process"),
            (lambda: serving.configure(cache_dir="", flags="no_env"), ""),
        ):
            self.assertIn(wanted, in_child(action))

    def test_a_fork_does_not_wait_for_a_lock_that_was_held(self):
        with serving._lock:
            holder = threading.Thread(target=lambda: in_child(serving.close))
            holder.start()
            holder.join(60)
            self.assertFalse(holder.is_alive())

    def test_a_context_that_is_given_stays_the_callers(self):
        serving.close()
        paths = dict(driver_path=self.driver.path, nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"])
        with gdn_jit.Context(cache_dir="", flags="no_env", **paths) as ctx:
            serving.configure(ctx)
            self.plan(8, 1)
            with self.assertRaisesRegex(TypeError, "cache_dir"):
                serving.close()
                serving.configure(ctx, cache_dir="")
            serving.configure(ctx)
            self.plan(8, 1)
            serving.close()
            self.assertTrue(ctx.handle)
            self.assertFalse(ctx._plans)

    def test_it_is_configured_before_it_is_used(self):
        self.plan(8, 1)
        with self.assertRaisesRegex(RuntimeError, "close"):
            serving.configure()


def in_child(action):
    """What action() raises in a fork, as text; "" where it returns."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
            text = ""
        except BaseException as e:  # noqa: B036
            text = repr(e)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


if __name__ == "__main__":
    unittest.main()
