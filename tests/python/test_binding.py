"""test_binding.py - python/gdn_jit without torch and without a GPU: its structs are the header's, its values reach
the library."""

import contextlib
import copy
import ctypes
import gc
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
import warnings
import weakref

import support

import gdn_jit
from gdn_jit import abi, library, nvrtc, values

import abi_layout

COMPILER = os.environ.get("CC", "cc")
INCLUDE = support.TOP / "include"
DESC = dict(
    io_type="f16", num_q_heads=1, num_k_heads=1, num_v_heads=2, head_dim_qk=64, head_dim_v=64, max_tokens=64, max_seqs=2
)


def on(ordinal, shape=(1,)):
    tensor = support.HostTensor(shape, "H")
    tensor.device = types.SimpleNamespace(index=ordinal)
    return tensor


def context(**config):
    return gdn_jit.Context(cache_dir="", flags="no_env", **config)


class Header(unittest.TestCase):
    def test_table_is_what_the_header_says(self):
        done = subprocess.run(
            [sys.executable, str(support.TOP / "python/make_abi.py"), "--check"], capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_sizes_offsets_numbers_and_initial_values_are_the_compilers(self):
        self.assertEqual(abi_layout.differences(COMPILER, str(INCLUDE)), [])

    def test_a_member_that_moved_is_seen(self):
        with tempfile.TemporaryDirectory() as room:
            shutil.copytree(INCLUDE, pathlib.Path(room) / "include")
            header = pathlib.Path(room) / "include/gdn_jit/gdn_jit.h"
            text, count = re.subn(
                r"\n    int64_t max_tokens;",
                "\n    int32_t sneaked_in[2];\n    int64_t max_tokens;",
                header.read_text(),
                count=1,
            )
            self.assertEqual(count, 1)
            header.write_text(text)
            found = abi_layout.differences(COMPILER, str(header.parents[1]))
        self.assertTrue(any("gdn_prefill_desc.max_tokens" in line for line in found), found)

    def test_every_function_of_the_header_is_bound(self):
        lib = library.load()
        for name in abi.FUNCTIONS:
            self.assertIsNotNone(getattr(lib, name).argtypes, name)


class Values(unittest.TestCase):
    def test_enums_take_numbers_names_and_torch_dtypes(self):
        for given in (2, "GDN_F16", "f16", "torch.float16", "fp16"):
            self.assertEqual(values.enum_value("gdn_dtype", given, "io_type"), 2, given)
        for given in (2, "i64", "torch.int64"):
            self.assertEqual(values.enum_value("gdn_index_type", given, "slot_type"), 2, given)

    def test_what_is_no_enum_is_refused_by_the_member_and_the_tensors_whose_dtype_it_is(self):
        for name, given, wanted in (
            ("prefill", dict(io_type="float8"), r"io_type is 'float8', which is no gdn_dtype: give one of .*GDN_BF16"),
            ("prefill", dict(gate_type="torch.int64"), "gate_type, the dtype of g, is .*no gdn_dtype"),
            ("prefill", dict(cu_seqlens_type="torch.float32"), "cu_seqlens_type, the dtype of cu_seqlens, is .*_I64"),
            ("prefill", dict(state_layout="cw"), "state_layout is 'cw'.*GDN_STATE_VK"),
            ("conv1d", dict(gate_type="torch.int64"), "gate_type, the dtype of a, b, is .*no gdn_dtype"),
            ("conv1d", dict(state_type="torch.int8"), "state_type, the dtype of state, is .*no gdn_dtype"),
            ("conv1d", dict(io_type=2**32 + 1), "io_type is 4294967297"),
        ):
            with self.subTest(wanted), self.assertRaisesRegex(ValueError, f"^{wanted}"):
                values.fill(f"gdn_{name}_desc", given)
        with context(nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"]) as ctx:
            with self.assertRaisesRegex(ValueError, "^kind is 'text'.*GDN_DUMP_JSON"):
                ctx.plan_prefill(ctx.target("H200"), **DESC).dump("text")

    def test_flags_by_name(self):
        self.assertEqual(values.flags_value("gdn_conv1d_desc", ("silu", "GDN_CONV_BIAS")), 3)
        with self.assertRaisesRegex(ValueError, "no flag 'sillu'"):
            values.flags_value("gdn_conv1d_desc", "sillu")

        with self.assertRaisesRegex(ValueError, "no flag 'GDN_CONV_L2_NORM'.*GDN_PREFILL_QK_L2NORM"):
            values.flags_value("gdn_prefill_desc", "GDN_CONV_L2_NORM")
        with self.assertRaisesRegex(ValueError, "no flag 'GDN_VERSION_MINOR'"):
            values.flags_value("gdn_plan", "GDN_VERSION_MINOR")

    def test_unknown_member_is_refused_with_the_known_ones(self):
        with self.assertRaisesRegex(TypeError, "no member 'num_heads'.*num_q_heads"):
            values.fill("gdn_prefill_desc", dict(num_heads=3))
        with self.assertRaisesRegex(TypeError, "gdn_strides has no member 'tokens'.*token, head"):
            values.fill("gdn_prefill_args", dict(q_strides=dict(tokens=64)))
        for wrong in (64, (0, 64, 0, 1)):
            with self.assertRaisesRegex(TypeError, "q_strides is .*: give a dict or a tuple of batch, token, head"):
                values.fill("gdn_prefill_args", dict(q_strides=wrong))

    def test_an_integer_that_its_member_does_not_hold_is_refused(self):
        """ctypes would take its lower bits: 2^32 + 16 heads would be 16."""
        for name, member, bits, signed in (
            ("gdn_prefill_desc", "num_q_heads", 32, True),
            ("gdn_prefill_desc", "flags", 32, False),
            ("gdn_prefill_desc", "max_tokens", 64, True),
            ("gdn_prefill_args", "q", 64, False),
            ("gdn_config", "flags", 32, False),
            ("gdn_config", "compile_wait_ms", 32, True),
            ("gdn_config", "compile_jobs", 32, True),
            ("gdn_config", "cache_max_bytes", 64, False),
        ):
            low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
            for right in (low, high):
                self.assertEqual(getattr(values.fill(name, {member: right}), member), right)
            for wrong in (low - 1, high + 1, 2**bits + 16):
                with self.assertRaisesRegex(ValueError, f"^{member} is {wrong}, .*: give {low} to {high}$"):
                    values.fill(name, {member: wrong})
        for strides in ((0, 2**64 + 64), dict(token=2**64 + 64)):
            with self.assertRaisesRegex(ValueError, f"^q_strides.token is {2**64 + 64}, "):
                values.fill("gdn_prefill_args", dict(q_strides=strides))
        for wrong in (None, 1.0, "1", support.HostTensor((1,), "i")):
            with self.assertRaisesRegex(TypeError, "num_q_heads is .*: give an int"):
                values.fill("gdn_prefill_desc", dict(num_q_heads=wrong))

    def test_a_tensor_with_strides_nobody_reads_is_refused(self):
        checkpoints = support.HostTensor((4, 3), "q", [0] * 16, stride=(4, 1))
        with self.assertRaisesRegex(ValueError, "checkpoints has strides"):
            values.fill("gdn_prefill_args", dict(checkpoints=checkpoints))

    def test_strides_come_from_the_tensor(self):
        def strides(**args):
            (name,) = args
            found = getattr(values.fill("gdn_prefill_args", args), f"{name}_strides")
            return found.batch, found.token, found.head

        def view(shape, stride):
            return support.HostTensor(shape, "H", [0], stride=stride)

        self.assertEqual(strides(q=support.HostTensor((4, 2, 64), "H")), (0, 0, 0))
        self.assertEqual(strides(q=view((4, 2, 64), (512, 64, 1))), (0, 512, 64))
        self.assertEqual(strides(k=view((3, 4, 2, 64), (512, 64, 256, 1))), (512, 64, 256))  # [B, H, T, D], transposed
        self.assertEqual(strides(k=view((1, 4, 2, 64), (512, 64, 256, 1))), (0, 64, 256))  # batch is 0 with cu_seqlens
        self.assertEqual(strides(g=view((4, 2), (16, 1))), (0, 16, 1))
        with self.assertRaisesRegex(ValueError, "the last must be 1"):
            strides(v=view((4, 2, 64), (128, 1, 2)))

    def test_an_expanded_tensor_is_refused(self):
        """0 is the header's word for packed."""
        for name, member, shape, stride, dim in (
            ("gdn_prefill_args", "q", (4, 2, 64), (64, 0, 1), 1),
            ("gdn_prefill_args", "v", (3, 4, 2, 64), (0, 128, 64, 1), 0),
            ("gdn_prefill_args", "g", (4, 2), (1, 0), 1),
            ("gdn_prefill_args", "slot_in", (4,), (0,), 0),
            ("gdn_prefill_args", "initial_state", (3, 1, 64, 64), (0, 4096, 64, 1), 0),
            ("gdn_conv1d_args", "x", (4, 96), (0, 1), 0),
            ("gdn_conv1d_args", "a", (4, 2), (0, 1), 0),
        ):
            tensor = support.HostTensor(shape, "H", [0], stride=stride)
            with self.assertRaisesRegex(ValueError, rf"{member} is expanded: dimension {dim} .*{member}\.contiguous"):
                values.fill(name, {member: tensor})
        one = support.HostTensor((4, 1, 64), "H", [0], stride=(128, 0, 1))
        self.assertEqual(values.fill("gdn_prefill_args", dict(q=one)).q_strides.token, 128)

    def test_a_pool_of_states_may_have_padded_lines(self):
        pool = support.HostTensor((3, 1, 64, 64), "f", [0], stride=(5000, 4096, 64, 1))
        args = values.fill("gdn_prefill_args", dict(initial_state=pool, final_state=pool))
        self.assertEqual((args.initial_slot_stride, args.final_slot_stride), (5000, 5000))
        torn = support.HostTensor((3, 1, 64, 64), "f", [0], stride=(8192, 4096, 1, 64))
        with self.assertRaisesRegex(ValueError, "final_state has strides"):
            values.fill("gdn_prefill_args", dict(final_state=torn))

    def test_a_call_is_of_one_gpu(self):
        """Its tensors, its workspace, and when it is called the current one."""
        self.assertEqual(values.one_gpu(dict(q=on(1), k=on(1), g=support.HostTensor((1,), "f"), o=None)), 1)
        self.assertIsNone(values.one_gpu(dict(g=support.HostTensor((1,), "f"), num_tokens=3)))
        with self.assertRaisesRegex(ValueError, "q on cuda:1 and k on cuda:0"):
            values.one_gpu(dict(q=on(1), k=on(0)))
        with context() as ctx:
            plan = ctx.plan_prefill(ctx.target("NVIDIA H200"), **DESC)
            with self.assertRaisesRegex(ValueError, "q on cuda:1 and workspace on cuda:0"):
                plan.bind(q=on(1, (64, 1, 64)), workspace=on(0))
            call = plan.bind(q=on(1, (64, 1, 64)), workspace=on(1))
            torch = types.SimpleNamespace(
                cuda=types.SimpleNamespace(is_available=lambda: True, current_device=lambda: 0)
            )
            with unittest.mock.patch.dict(sys.modules, torch=torch):
                for run in (call, lambda: ctx.prefill(DESC, q=on(1, (64, 1, 64)))):
                    with self.assertRaisesRegex(ValueError, r"on cuda:1 and the current GPU is cuda:0.*device\(1\)"):
                        run()

    def test_every_tensor_of_a_call_has_a_dtype(self):
        """A member added to the header needs a line in values.DTYPES, and what that line names must be there."""
        for name, dtypes in values.DTYPES.items():
            tensors = {member for member, kind in abi.STRUCTS[name] if kind == "gdn_devptr"}
            self.assertEqual(tensors - set(dtypes), set(), name)
            for member in tensors:
                last = dtypes[member][-1]
                self.assertTrue(
                    last in values.MEMBERS[values.DESC_OF[name]] or last in ("float32", "uint8", "int32", "int64"),
                    member,
                )

    def test_a_dtype_that_the_descriptor_does_not_say_is_refused(self):
        desc = values.fill("gdn_prefill_desc", DESC)
        check = lambda **args: values.check_tensors("gdn_prefill_args", args, desc, "cuda")  # noqa: E731
        check(
            q=support.HostTensor((1,), "H", dtype="torch.float16"),
            g=support.HostTensor((1,), "f", dtype="torch.float32"),
        )
        check(has_initial_state=support.HostTensor((1,), "B", dtype="torch.bool"))
        for member, dtype, said in (
            ("q", "torch.bfloat16", "GDN_F16"),
            ("final_state", "torch.float16", "GDN_F32"),
            ("cu_seqlens", "torch.int64", "GDN_INDEX_I32"),
            ("checkpoints", "torch.int32", "int64"),
        ):
            with self.assertRaisesRegex(ValueError, f"{member} is {dtype}, and the descriptor says {said}"):
                check(**{member: support.HostTensor((1,), "f", dtype=dtype)})

    def test_row_pitch_comes_from_the_tensor(self):
        x = support.HostTensor((4, 96), "H", [0] * 512, stride=(128, 1))
        args = values.fill("gdn_conv1d_args", dict(x=x))
        self.assertEqual((args.x, args.x_stride), (x.data_ptr(), 128))
        self.assertEqual(values.fill("gdn_conv1d_args", dict(x=x, x_stride=256)).x_stride, 256)


def tensor(*shape):
    return support.HostTensor(shape, "H")


class Shapes(unittest.TestCase):
    """What would be misread is refused by name, shape and what is wanted; counts follow from the rest."""

    CONV = dict(io_type="f16", num_q_heads=1, num_k_heads=1, num_v_heads=2, head_dim_qk=16, head_dim_v=16, width=4)

    def prefill(self, **given):
        args = {"q": tensor(8, 1, 64), **given}
        return gdn_jit.api.make_args("prefill", args, values.fill("gdn_prefill_desc", DESC))

    def conv(self, desc={}, **given):  # noqa: B006
        args = {"x": tensor(8, 64), **given}
        return gdn_jit.api.make_args("conv1d_qkv", args, values.fill("gdn_conv1d_desc", {**self.CONV, **desc}))

    def test_counts(self):
        args = self.prefill(q=tensor(2, 4, 1, 64), k=tensor(2, 4, 1, 64), v=tensor(8, 2, 64), g=tensor(2, 4, 2))
        self.assertEqual((args.num_tokens, args.num_seqs), (8, 2))
        args = self.prefill(cu_seqlens=tensor(4), o=tensor(9, 2, 64), num_tokens=7, final_state=tensor(3, 2, 64, 64))
        self.assertEqual((args.num_tokens, args.num_seqs), (7, 3))
        self.assertEqual(self.prefill(q=tensor(8, 64)).num_tokens, 8)  # heads and dim as one
        args = self.conv(x=tensor(8, 96), weight=tensor(64, 1, 4), q=tensor(8, 16), checkpoints=tensor(5, 3))
        self.assertEqual((args.num_tokens, args.num_seqs, args.num_checkpoints), (8, 1, 5))

    def test_a_count_that_follows_from_nothing_is_asked_for(self):
        """0 tokens would be a call of nothing, and one sequence the first of many."""
        for wanted, given in (
            ("q is an address: give num_tokens", dict(q=256)),
            ("q is not given: give num_tokens", dict(q=None)),
            ("q is an address: give num_seqs", dict(q=256, num_tokens=8)),
            ("cu_seqlens is an address: give num_seqs", dict(cu_seqlens=256)),
            ("cu_seqlens is an address: give num_seqs", dict(q=256, cu_seqlens=256, num_tokens=8, num_seqs=None)),
            ("checkpoints is an address: give num_checkpoints", dict(checkpoints=256)),
        ):
            with self.subTest(wanted), self.assertRaisesRegex(ValueError, wanted):
                self.prefill(**given)
            with self.subTest(f"conv1d: {wanted}"), self.assertRaisesRegex(ValueError, wanted.replace("q ", "x ")):
                self.conv(**{"x" if member == "q" else member: value for member, value in given.items()})
        args = self.prefill(q=256, cu_seqlens=256, checkpoints=256, num_tokens=8, num_seqs=3, num_checkpoints=2)
        self.assertEqual((args.num_tokens, args.num_seqs, args.num_checkpoints), (8, 3, 2))
        args = self.prefill(q=None, num_tokens=0, num_seqs=0, cu_seqlens=0)
        self.assertEqual((args.num_tokens, args.num_seqs, args.num_checkpoints), (0, 0, 0))
        self.assertEqual(self.prefill(num_tokens=None, num_seqs=None).num_tokens, 8)

    def test_prefill(self):
        for wanted, given in (
            (r"q has shape \(8, 2, 64\).*\[tokens, 1, 64\]", dict(q=tensor(8, 2, 64))),
            (r"q has shape \(\)", dict(q=tensor())),
            (r"v has shape \(8, 1, 64\).*\[tokens, 2, 64\]", dict(v=tensor(8, 1, 64))),
            (r"k has shape \(7, 1, 64\).*num_tokens 8", dict(k=tensor(7, 1, 64))),
            (r"o has shape \(2, 4, 2, 64\).*8 tokens in 1 seq", dict(o=tensor(2, 4, 2, 64))),
            (r"g has shape \(8, 1\)", dict(g=tensor(8, 1))),
            (r"beta has shape \(4, 2\)", dict(beta=tensor(4, 2))),
            (r"cu_seqlens has shape \(0,\).*num_seqs \+ 1", dict(cu_seqlens=tensor(0))),
            (r"cu_seqlens has shape \(1, 3\)", dict(cu_seqlens=tensor(1, 3))),
            (r"cu_seqlens has shape \(3,\).*num_seqs is 4", dict(cu_seqlens=tensor(3), num_seqs=4)),
            (r"final_state has shape \(1, 1, 64, 64\).*\[lines, 2, 64, 64\]", dict(final_state=tensor(1, 1, 64, 64))),
            (
                r"initial_state has shape \(1, 2, 64, 64\).*num_seqs 2.*slot_in",
                dict(initial_state=tensor(1, 2, 64, 64), cu_seqlens=tensor(3)),
            ),
            (r"slot_in has shape \(1,\).*num_seqs is 2", dict(slot_in=tensor(1), cu_seqlens=tensor(3))),
            (r"checkpoints has shape \(4, 2\)", dict(checkpoints=tensor(4, 2))),
            (r"checkpoints.*num_checkpoints is 5", dict(checkpoints=tensor(4, 3), num_checkpoints=5)),
            (r"a_log has shape \(3,\).*\[2\]", dict(a_log=tensor(3))),
        ):
            with self.subTest(wanted), self.assertRaisesRegex(ValueError, wanted):
                self.prefill(**given)

    def test_a_value_a_sequence_is_of_one_dimension(self):
        """Of a table [N, M] slots would be read as its first column, flags as its first N values."""
        for member in ("slot_in", "slot_out", "has_initial_state"):
            table = "; of a block table pass one column$" if member != "has_initial_state" else "$"
            wanted = rf"^{member} has shape \(5, 8\): this call takes \[num_seqs\], num_seqs is 5{table}"
            for make in (self.prefill, self.conv):
                with self.assertRaisesRegex(ValueError, wanted):
                    make(cu_seqlens=tensor(6), **{member: tensor(5, 8)})
                with self.assertRaisesRegex(ValueError, rf"{member} has shape \(5, 1\)"):
                    make(cu_seqlens=tensor(6), **{member: tensor(5, 1)})
        column = support.HostTensor((5,), "i", [0] * 40, stride=(8,))
        self.assertEqual(self.prefill(cu_seqlens=tensor(6), slot_in=column).slot_in_stride, 8)

    def test_conv(self):
        gates = dict(num_gate_heads=2)
        for wanted, desc, given in (
            (r"x has shape \(2, 8, 64\).*\[tokens, 64 or more\].*flatten.*num_seqs 2", {}, dict(x=tensor(2, 8, 64))),
            (r"x has shape \(8, 63\)", {}, dict(x=tensor(8, 63))),
            (
                r"x has shape \(8, 111\).*112",
                dict(x_layout="interleaved", num_q_heads=2, num_k_heads=2),
                dict(x=tensor(8, 111)),
            ),
            (r"v has shape \(8, 1, 16\)", {}, dict(v=tensor(8, 1, 16))),
            (r"weight has shape \(4, 64\)", {}, dict(weight=tensor(4, 64))),
            (r"a has shape \(8, 3\).*\[8, 2\]", gates, dict(a=tensor(8, 3))),
            (r"b has shape \(2, 4, 2\)", gates, dict(b=tensor(2, 4, 2))),
            (r"g has shape \(7, 2\)", gates, dict(g=tensor(7, 2))),
            (r"state has shape \(1, 3, 64\).*\[lines, 64, 3\]", {}, dict(state=tensor(1, 3, 64))),
            (r"state has shape \(1, 64, 2\).*3 or more", dict(state_layout=3), dict(state=tensor(1, 64, 2))),
        ):
            with self.subTest(wanted), self.assertRaisesRegex(ValueError, wanted):
                self.conv(desc, **given)
        self.conv(dict(state_layout=3), state=tensor(1, 64, 5))
        self.conv(dict(state_layout="wc"), state=tensor(1, 3, 64))

    def test_rows_of_a_conv_state_may_be_padded(self):
        """GDN_CONV_STATE_CW_STRIDED: whole lines, or a view of their first columns."""

        def strides(state, **given):
            args = self.conv(dict(state_layout="cw_strided"), state=state, **given)
            return args.state_channel_stride, args.state_slot_stride

        pool = support.HostTensor((5, 64, 8), "H", [0], stride=(1024, 16, 1))
        view = support.HostTensor((5, 64, 3), "H", [0], stride=(1024, 16, 1))
        for state in (pool, view):
            self.assertEqual(strides(state), (16, 1024))
            self.assertEqual(strides(state, state_slot_stride=4096), (16, 4096))
        self.assertEqual(strides(tensor(1, 64, 5)), (5, 0))
        with self.assertRaisesRegex(ValueError, "state has strides .*the last must be 1"):
            strides(support.HostTensor((5, 64, 3), "H", [0], stride=(512, 1, 64)))
        with self.assertRaisesRegex(ValueError, "no member for"):
            self.conv({}, state=view)

    def test_a_workspace_is_a_tensor_on_the_device_or_has_a_size(self):
        arguments = lambda *given: gdn_jit.api.workspace_arguments("gdn_execute_prefill", *given)  # noqa: E731
        room = tensor(64)
        self.assertEqual(arguments(room, None), (room.data_ptr(), 128))
        self.assertEqual(arguments(256, 0), (256, 0))
        with self.assertRaisesRegex(TypeError, "workspace_size"):
            arguments(256, None)
        for wrong in (129, -1):
            with self.assertRaisesRegex(ValueError, f"workspace_size is {wrong}.*128 bytes: give 0 to 128"):
                arguments(room, wrong)
        for member, given in (("workspace_size", (256, -1)), ("workspace", (2**64 + 256, 0))):
            with self.assertRaisesRegex(ValueError, f"^{member} is .*: give 0 to {2**64 - 1}"):
                arguments(*given)
        room.is_cuda, room.device = False, "cpu"
        with self.assertRaisesRegex(ValueError, "workspace is on cpu"):
            arguments(room, None)


class Wheels(unittest.TestCase):
    """NVRTC of a pip environment: where nothing is named and the loader has none."""

    CU13, CU12 = "nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"

    def setUp(self):
        self.room = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(unittest.mock.patch.object(sys, "path", [self.room]))
        self.enterContext(unittest.mock.patch.object(nvrtc, "NAMES", ("libnvrtc-none.so.13", "libnvrtc-none.so.12")))
        self.enterContext(unittest.mock.patch.dict(os.environ))
        os.environ.pop("GDN_JIT_NVRTC", None)

    def enterContext(self, manager):  # of unittest only since Python 3.11
        self.addCleanup(manager.__exit__, None, None, None)
        return manager.__enter__()

    def wheel(self, place, *beside):
        file = pathlib.Path(self.room, place)
        file.parent.mkdir(parents=True)
        file.symlink_to(os.environ["GDN_FAKE_NVRTC_PATH"])
        for name in beside:
            (file.parent / name).touch()
        return str(file)

    def test_a_wheel_serves_a_context_that_is_named_none(self):
        made = self.wheel(self.CU13)
        for flags in ("no_env", 0):
            with gdn_jit.Context(cache_dir="", flags=flags) as ctx, ctx.plan_prefill(ctx.target("H200"), **DESC):
                self.assertEqual(ctx._struct.nvrtc_path, os.fsencode(made))
                self.assertGreater(ctx.cache_stats()["compiles"], 0)

    def test_what_is_named_comes_first(self):
        made = self.wheel(self.CU13)
        with context(nvrtc_path="/none/libnvrtc.so") as ctx:
            self.assertEqual(ctx._struct.nvrtc_path, b"/none/libnvrtc.so")
        os.environ["GDN_JIT_NVRTC"] = "/none/libnvrtc.so"
        self.assertIsNone(nvrtc.path_for(True))
        self.assertEqual(nvrtc.path_for(False), made)  # a context that does not read the environment

    def test_what_the_loader_has_comes_before_a_wheel_unless_it_is_too_old(self):
        made = self.wheel(self.CU13)
        with unittest.mock.patch.object(nvrtc, "NAMES", ("none.so", os.environ["GDN_FAKE_NVRTC_PATH"])):
            self.assertIsNone(nvrtc.path_for(True))
            with unittest.mock.patch.object(nvrtc, "OLDEST", (99, 0)):
                self.assertFalse(nvrtc.loader_has_one())
                self.assertEqual(nvrtc.path_for(True), made)

    def test_13_comes_before_12_and_12_7_not_at_all(self):
        self.assertIsNone(nvrtc.path_for(True))
        old = self.wheel(self.CU12, "libnvrtc-builtins.so.12.7")
        self.assertIsNone(nvrtc.path_for(True))
        builtins = pathlib.Path(old).with_name("libnvrtc-builtins.so.12.7")
        builtins.rename(builtins.with_suffix(".8"))
        self.assertEqual(nvrtc.path_for(True), old)
        new = self.wheel(self.CU13, "libnvrtc-builtins.so.13.0")
        self.assertEqual(nvrtc.path_for(True), new)


class Rebinding(unittest.TestCase):
    """Call.rebind(): the call that bind() would make of the same arguments, checked anew only where it must be."""

    def setUp(self):
        ctx = context(nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"])
        self.addCleanup(ctx.close)
        self.plan = ctx.plan_prefill(ctx.target("H200"), **DESC)

    @staticmethod
    def step(tokens=8, seqs=2):
        """What an engine makes anew in each step."""
        return dict(
            q=tensor(tokens, 1, 64),
            k=tensor(tokens, 1, 64),
            v=tensor(tokens, 2, 64),
            o=tensor(tokens, 2, 64),
            g=tensor(tokens, 2),
            slot_in=tensor(seqs),
            cu_seqlens=tensor(seqs + 1),
        )

    def bound(self):
        pool = tensor(5, 2, 64, 64)
        self.held = dict(self.step(), initial_state=pool, final_state=pool, workspace=tensor(64))
        return self.plan.bind(**self.held).rebind(q=self.held["q"])

    def same(self, call, **given):
        made = self.plan.bind(**given)
        self.assertIs(call._fixed[1]._obj, call._struct)
        self.assertEqual(bytes(call._struct), bytes(made._struct))
        self.assertEqual((call._fixed[2:], call._gpu), (made._fixed[2:], made._gpu))

    def test_it_is_the_call_that_bind_would_make(self):
        call, held = self.bound(), self.held
        pitched = support.HostTensor((8, 1, 64), "H", [0], stride=(128, 64, 1))
        for given in (
            self.step(),
            self.step(12),
            self.step(12, 4),
            self.step(),
            dict(q=pitched),
            dict(q=support.HostTensor((8, 1, 64), "H", [0], stride=(128, 64, 1))),
            dict(q=tensor(8, 1, 64), workspace=tensor(64)),
            dict(workspace=tensor(128)),
            dict(workspace=tensor(128)),
            dict(slot_in=None),
            dict(slot_in=None, scale=0.5),
            dict(beta=tensor(8, 2)),
            dict(initial_state=256, final_state=256),
            dict(initial_state=512, final_state=0),
            dict(num_tokens=7),
            dict(k=256, cu_seqlens=512, num_seqs=2),
            dict(k=1024, cu_seqlens=2048),
        ):
            held.update(given)
            self.assertIs(call.rebind(**given), call)
            self.same(call, **held)

    def test_like_tensors_are_taken_unchecked_and_others_are_not(self):
        call = self.bound()
        for given, checks in (
            (self.step(), 0),
            (dict(workspace=tensor(64)), 0),
            (self.step(9), 1),
            (self.step(9), 0),
            (dict(slot_in=256), 1),
            (dict(slot_in=512), 0),
            (dict(slot_in=0), 1),
            (dict(num_tokens=8), 1),
        ):
            with unittest.mock.patch.object(gdn_jit.api, "make_args", wraps=gdn_jit.api.make_args) as made:
                call.rebind(**given)
            self.assertEqual(made.call_count, checks, given)

    def test_what_is_refused_leaves_the_call_as_it_was(self):
        call = self.bound()
        expanded = support.HostTensor((8, 1, 64), "H", [0], stride=(0, 64, 1))
        far = on(1, (8, 1, 64))
        for wanted, given in (
            ("k has shape", dict(k=tensor(7, 1, 64))),
            ("num_tokens 9", dict(q=tensor(9, 1, 64))),  # of those that were not named
            ("q is expanded", dict(q=expanded)),
            ("q is torch.int8", dict(q=support.HostTensor((8, 1, 64), "H", dtype="torch.int8"))),
            ("q on cuda:1 and k on cuda:0", dict(q=far, k=on(0, (8, 1, 64)))),
            ("num_seqs", dict(cu_seqlens=256)),
            ("workspace_size", dict(workspace=256)),
        ):
            with self.subTest(wanted), self.assertRaisesRegex((ValueError, TypeError), wanted):
                call.rebind(**{"g": tensor(8, 2), **given})
            self.same(call, **self.held)
        with self.assertRaisesRegex(TypeError, "no member 'queue'"):
            call.rebind(queue=3)
        with self.assertRaisesRegex(TypeError, "q is 'near': give an int"):
            call.rebind(q=256, num_tokens=8).rebind(q="near")
        self.same(call, **{**self.held, "q": 256, "num_tokens": 8})

    def test_execute_checks_each_layout_once_and_makes_the_same_call(self):
        self.bound()
        steps = [self.step(), self.step(), self.step(12), self.step(12, 4), self.step(), self.step(12)]
        steps += [dict(scale=0.5), dict(scale=0.25), dict(slot_in=None), dict(slot_in=0, num_seqs=2)]
        steps += [dict(beta=tensor(8, 2)), dict(q=256, num_tokens=8), dict(q=512, num_tokens=8)]
        steps += [dict(workspace=on(1, (64,))), dict(k=on(1, (8, 1, 64)))]
        steps += [dict(q_strides=dict(token=64)), dict(q_strides=dict(token=64)), dict(q_strides=(0, 64, 0))]
        checked, seen = [], mock_library()
        for given in steps:
            args = {**self.held, **given}
            with unittest.mock.patch.object(gdn_jit.api, "make_args", wraps=gdn_jit.api.make_args) as made:
                with unittest.mock.patch.object(self.plan, "lib", seen):
                    self.plan.execute(**args)
            checked.append(made.call_count)
            call = self.plan.bind(**args)
            self.assertEqual(seen.calls[-1], (bytes(call._struct), call._fixed[2:]), given)
        self.assertEqual(checked, [1, 0, 1, 1, 0, 0] + [1] * 5 + [1, 0, 1, 1] + [1, 1, 1])

    def test_execute_refuses_what_it_refused_before(self):
        self.bound()
        with unittest.mock.patch.object(self.plan, "lib", mock_library()):
            self.plan.execute(**self.held)
            self.plan.execute(**{**self.held, "k": 256})
            for wanted, given in (
                ("k has shape", dict(k=tensor(7, 1, 64))),
                ("q is torch.int8", dict(q=support.HostTensor((8, 1, 64), "H", dtype="torch.int8"))),
                ("q on cuda:1 and workspace on cuda:0", dict(q=on(1, (8, 1, 64)), workspace=on(0, (64,)))),
                ("workspace_size", dict(workspace=256)),
                ("workspace_size", dict(workspace_size=-1)),
                (f"k is {2**64 + 256}", dict(k=2**64 + 256)),  # the second time too, when others like it are known
            ):
                for _ in range(2):
                    with self.subTest(wanted), self.assertRaisesRegex((ValueError, TypeError), wanted):
                        self.plan.execute(**{**self.held, **given})

    def test_execute_remembers_no_more_layouts_than_it_says(self):
        self.bound()
        with unittest.mock.patch.object(gdn_jit.api, "LAYOUTS_KEPT", 3):
            with unittest.mock.patch.object(self.plan, "lib", mock_library()):
                for tokens in range(1, 9):
                    self.plan.execute(**{**self.held, **self.step(tokens)})
                    self.assertLessEqual(len(self.plan._layouts), 3)

    def test_it_holds_its_tensors_and_no_earlier_ones(self):
        call = self.bound()
        self.held = None
        for tokens in (8, 8, 9, 9):
            step = self.step(tokens)
            alive = [weakref.ref(t) for t in step.values()]
            call.rebind(**step)
            del step
            self.assertTrue(all(ref() for ref in alive))
            call.rebind(**self.step(tokens))
            self.assertFalse(any(ref() for ref in alive))

    def test_a_call_asks_once_whether_there_is_a_gpu(self):
        """torch asks the CUDA runtime each time."""
        call, cuda = self.bound(), unittest.mock.Mock()
        call._function = unittest.mock.Mock()
        cuda.current_stream().cuda_stream = 77
        with unittest.mock.patch.dict(sys.modules, torch=types.SimpleNamespace(cuda=cuda)):
            call()
            call(5)
        self.assertEqual([made.args[-1] for made in call._function.call_args_list], [77, 5])
        self.assertEqual(cuda.is_available.call_count, 2)


def mock_library():
    """A library that notes the calls of gdn_execute_prefill: bytes of the struct, workspace and its size."""
    calls = []

    def execute(_plan, struct, workspace, size, _stream):
        calls.append((bytes(struct._obj), (workspace, size)))

    return types.SimpleNamespace(gdn_execute_prefill=execute, calls=calls)


class Calls(unittest.TestCase):
    @contextlib.contextmanager
    def assertNoWarnings(self):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            yield
            gc.collect()
        self.assertEqual([str(w.message) for w in said], [])

    def test_errors_carry_status_name_and_sentence(self):
        with context() as ctx, self.assertRaises(gdn_jit.GdnError) as caught:
            ctx.plan_prefill(ctx.target("NVIDIA H200"), **{**DESC, "head_dim_qk": 100})
        self.assertEqual(caught.exception.status, abi.ENUMS["gdn_status"]["GDN_E_UNSUPPORTED"])
        self.assertEqual(caught.exception.name, "GDN_E_UNSUPPORTED")
        self.assertIn("head_dim_qk", caught.exception.sentence)

    def test_an_error_survives_pickle_and_copy(self):
        """A pool of processes hands it over so; one that cannot be unpickled breaks the pool."""
        made = gdn_jit.GdnError(31, "GDN_E_NO_NVRTC", "NVRTC was not found")
        made.rank = 3
        for error in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
            self.assertIs(type(error), gdn_jit.GdnError)
            self.assertEqual(str(error), "GDN_E_NO_NVRTC: NVRTC was not found")
            self.assertEqual(
                (error.status, error.name, error.sentence, error.rank),
                (31, "GDN_E_NO_NVRTC", "NVRTC was not found", 3),
            )

    def test_every_status_of_the_header_has_its_name(self):
        lib = ctypes.CDLL(os.environ["GDN_JIT_LIBRARY"])
        lib.gdn_status_name.restype = ctypes.c_char_p
        for name, number in abi.ENUMS["gdn_status"].items():
            self.assertEqual(lib.gdn_status_name(number).decode(), name)
        self.assertEqual(lib.gdn_status_name(999).decode(), "GDN_E_?")

    def test_targets(self):
        with context() as ctx:
            target = ctx.target("H200")
            self.assertEqual((target.gpu_name, target.arch, target.num_sms), ("NVIDIA H200", "sm_90a", 132))
            for call in (ctx.plan_prefill, ctx.plan_conv1d_qkv, gdn_jit.prefill_support, gdn_jit.conv1d_qkv_support):
                with self.assertRaisesRegex(TypeError, r"target is 'H200': give a Target, as Context.target\('H200'\)"):
                    call("H200", **DESC)
        self.assertIn(("NVIDIA H200", "sm_90a"), gdn_jit.target_names())

    def test_an_argument_that_its_function_does_not_take_is_refused(self):
        """Of ctypes the lower bits would be device 0, or no flags."""
        with context(nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"]) as ctx:
            target = ctx.target("H200")
            plan = ctx.plan_prefill(target, **DESC)
            for member, call in (
                ("device", lambda: ctx.target(device=2**32)),
                ("device", lambda: plan.load(2**32)),
                ("plan_flags", lambda: ctx.plan_prefill(target, plan_flags=2**32, **DESC)),
                ("plan_flags", lambda: gdn_jit.prefill_support(target, plan_flags=2**32, **DESC)),
                ("num_seqs", lambda: plan.cost(64, 2**64 + 1)),
            ):
                with self.subTest(member), self.assertRaisesRegex(ValueError, rf"^{member} is \d+, .*: give .* to \d+"):
                    call()

    def test_log_reaches_python(self):
        said = []
        with context(
            nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"],
            log=lambda level, text: said.append((level, text)),
            log_level=abi.CONSTANTS["GDN_LOG_INFO"],
        ) as ctx:
            ctx.plan_prefill(ctx.target("H200"), **DESC).close()
        self.assertTrue(any("compile" in text for _, text in said), said)

    def test_paths_are_the_file_systems_bytes(self):
        """One that is no UTF-8 too: as bytes, as os.fsdecode() makes it a str, or as a pathlib.Path."""
        with tempfile.TemporaryDirectory() as room:
            for folder in (os.fsencode(room) + b"/caf\xe9", room + "/caf\udce9", pathlib.Path(room, "caf\udce9")):
                fake = pathlib.Path(os.environ["GDN_FAKE_NVRTC_PATH"])
                with gdn_jit.Context(cache_dir=folder, flags="no_env", nvrtc_path=fake) as ctx:
                    ctx.plan_prefill(ctx.target("H200"), **DESC).close()
                    self.assertEqual(ctx.cache_dir(), room + "/caf\udce9")
                    self.assertTrue(ctx.cache_entries())
                    self.assertTrue(all(os.path.isfile(entry["path"]) for entry in ctx.cache_entries()))
        with context(nvrtc_path=b"/none/\xff.so") as ctx, self.assertRaisesRegex(gdn_jit.GdnError, "/none/\ufffd.so"):
            ctx.plan_prefill(ctx.target("H200"), **DESC)
        with self.assertRaisesRegex(TypeError, "cache_dir is 3: give a str, bytes or an os.PathLike"):
            gdn_jit.Context(cache_dir=3)
        with self.assertRaisesRegex(ValueError, "cache_dir is .*NUL"):
            gdn_jit.Context(cache_dir="a\0b")

    def test_bundle_dirs_are_one_path_or_several(self):
        """A str is one path, and no list of letters."""
        for given, wanted in (
            ("/none/a", ["/none/a"]),
            (b"/none/\xff", ["/none/\ufffd"]),
            (pathlib.Path("/none/a"), ["/none/a"]),
            (("/none/a", pathlib.Path("/none/b")), ["/none/a", "/none/b"]),
            (None, []),
        ):
            said = []
            with context(bundle_dirs=given, log=lambda _level, text: said.append(text)) as ctx:
                self.assertEqual(ctx._struct.num_bundle_dirs, len(wanted))
            self.assertEqual(len(said), len(wanted), said)
            for path, text in zip(wanted, said):
                self.assertIn(path, text)
        with self.assertRaisesRegex(TypeError, "bundle_dirs is 3"):
            context(bundle_dirs=["/none/a", 3])

    def test_a_call_whose_plan_is_closed_is_refused(self):
        tensors = dict(q=16, k=32, v=48, o=64, num_tokens=8, num_seqs=1)
        with context(nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"]) as ctx:
            plan = ctx.plan_prefill(ctx.target("H200"), **DESC)
            closed, left = plan.bind(**tensors), ctx.plan_prefill(ctx.target("H200"), **DESC).bind(**tensors)
            plan.close()
            self.assertFalse(closed._fixed[0])
            for use in (
                lambda: closed(0),
                lambda: closed.rebind(num_tokens=7),
                lambda: plan.bind(**tensors),
                lambda: plan.execute(stream=0, **tensors),
                lambda: plan.workspace_size,
            ):
                with self.assertRaisesRegex(ValueError, "the plan is closed: make another"):
                    use()
        with self.assertRaisesRegex(ValueError, "the context is closed"):
            ctx.cache_dir()
        with self.assertRaisesRegex(ValueError, "the plan is closed"):
            left(0)

    def test_a_closed_plan_leaves_its_context(self):
        with context(nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"]) as ctx:
            for _ in range(3):
                with ctx.plan_prefill(ctx.target("H200"), **DESC) as plan:
                    self.assertEqual(len(ctx._plans), 1)
                self.assertFalse(plan.handle)
                self.assertEqual(len(ctx._plans), 0)
            plan.close()  # again
            with self.assertRaisesRegex(gdn_jit.GdnError, "plan"):
                plan.load(0)

    def test_what_was_not_closed_is_warned_of_and_left_alone(self):
        """Nothing is unloaded from the garbage collector: kernels may be running."""
        ctx = context(nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"])
        with unittest.mock.patch.object(ctx, "lib", wraps=ctx.lib) as lib:
            left, plan = (ctx.plan_prefill(ctx.target("H200"), **DESC) for _ in range(2))
            with self.assertWarnsRegex(ResourceWarning, "a Plan was not closed.*until its context is closed"):
                del plan
            self.assertEqual((lib.gdn_plan_destroy.call_count, len(ctx._plans)), (0, 2))
            ctx.close()
            self.assertEqual((lib.gdn_plan_destroy.call_count, len(ctx._plans)), (2, 0))
            self.assertFalse(left.handle)
        with self.assertNoWarnings():
            del left, ctx, lib
        ctx = context()
        handle = ctypes.c_void_p(ctx.handle.value)
        with self.assertWarnsRegex(ResourceWarning, "a Context was not closed"):
            del ctx
        library.load().gdn_ctx_destroy(handle)  # was left alone
        with self.assertNoWarnings(), self.assertRaises(TypeError):
            gdn_jit.Context(no_member=1)

    def test_plan_load_and_execute_launch_once_with_the_tensors_addresses(self):
        driver = support.FakeDriver()
        driver.reset()
        with context(driver_path=driver.path, nvrtc_path=os.environ.get("GDN_JIT_NVRTC")) as ctx:
            if ctx.examine()["nvrtc_problem"]:
                self.skipTest(ctx.examine()["nvrtc_problem"])  # the fake driver wants a cubin as ptxas makes it
            plan = ctx.plan_prefill(ctx.target(device=0), **DESC)
            self.assertEqual(ctx.cache_stats()["compiles"], ctx.cache_stats()["misses"])
            self.assertGreater(ctx.cache_stats()["compiles"], 0)
            self.assertGreater(plan.cost(64, 1)["bytes"], 0)
            self.assertEqual(plan.dump()["op"], "gdn_prefill")
            self.assertIn("gdn-jit key", plan.dump("key"))
            driver.make_current(0)
            tensors = dict(q=16, k=32, v=48, o=64, final_state=80)
            with self.assertRaises(gdn_jit.GdnError) as caught:
                plan.execute(workspace=256, workspace_size=plan.workspace_size, num_tokens=8, num_seqs=1, **tensors)
            self.assertEqual(caught.exception.name, "GDN_E_NOT_LOADED")
            plan.load(0)
            call = plan.bind(workspace=256, workspace_size=plan.workspace_size, num_tokens=8, num_seqs=1, **tensors)
            call()
            call()
            self.assertEqual(driver.num_launches(), 2)
            call.rebind(q=96, o=112)()
            call.rebind(q=128, o=144)()
            self.assertEqual(driver.num_launches(), 4)
            with self.assertRaisesRegex(gdn_jit.GdnError, "num_tokens"):
                call.rebind(num_tokens=65)()
            ctx.prefill(DESC, workspace=256, workspace_size=1 << 30, num_tokens=8, num_seqs=1, **tensors)
            self.assertEqual(driver.num_launches(), 5)
            with self.assertRaisesRegex(gdn_jit.GdnError, "num_tokens"):
                plan.execute(workspace=256, workspace_size=plan.workspace_size, num_tokens=65, num_seqs=1, **tensors)

    def test_the_variant_of_a_call(self):
        """The smallest slot that holds its tokens, of these the narrowest for its sequences, of these who cuts."""

        def variant(kernel, *slots, cuts=False):
            chosen_by = [{"tokens": tokens, "seqs": seqs} for tokens, seqs in slots]
            return {"kernel": kernel, "chosen_by": chosen_by, "cuts": cuts}

        variants = [
            variant("pair", (256, 2), (1024, 2)),
            variant("one", (1024, 1)),
            variant("any", (256, 0), (1024, 0), (4096, 1)),  # serves few sequences too, where no other does
            variant("whole", (4096, 0)),
            variant("long", (4096, 0), cuts=True),
        ]
        for tokens, seqs, kernel in (
            (256, 1, "pair"),
            (256, 3, "any"),
            (257, 1, "one"),
            (257, 2, "pair"),
            (1024, 3, "any"),
            (1025, 1, "any"),
            (4096, 2, "long"),
            (4097, 2, "long"),
        ):
            self.assertEqual(gdn_jit.api.variant_of(variants, tokens, seqs)["kernel"], kernel, (tokens, seqs))

    def test_support_is_told_before_a_plan(self):
        with context() as ctx:
            found = gdn_jit.prefill_support(ctx.target("H200"), **DESC)
            self.assertTrue(found["kernel"].startswith("gdn_prefill") and found["reason"], found)
            with self.assertRaisesRegex(gdn_jit.GdnError, "head_dim"):
                gdn_jit.prefill_support(ctx.target("H200"), **{**DESC, "head_dim_qk": 1})
            found = gdn_jit.prefill_support(ctx.target("H200"), plan_flags="generic", **DESC)
            self.assertEqual(found["kernel"], "gdn_prefill_generic")
            conv = {**Shapes.CONV, "max_tokens": 64, "max_seqs": 2}
            self.assertEqual(gdn_jit.conv1d_qkv_support(ctx.target("H200"), **conv)["kernel"], "conv1d_qkv")
            with self.assertRaisesRegex(gdn_jit.GdnError, "flags is"):
                gdn_jit.conv1d_qkv_support(ctx.target("H200"), plan_flags="generic", **conv)

    def test_workspaces_are_those_of_the_documents(self):
        """README.md, "Embedding", and docs/prefill.md, "Workspace": on an H200, in MB, and from which bounds on."""
        with context(nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"]) as ctx:

            def room(heads, tokens, seqs, dim=128, **more):
                members = dict.fromkeys(("num_q_heads", "num_k_heads", "num_v_heads"), heads)
                members.update(head_dim_qk=dim, head_dim_v=dim, max_tokens=tokens, max_seqs=seqs)
                with ctx.plan_prefill(ctx.target("NVIDIA H200"), **members, **more) as plan:
                    return plan.workspace_size, any(v["cuts"] for v in plan.dump()["variants"])

            whole = dict(plan_flags="whole_sequences")
            for call, more, wanted, cuts in (
                ((21, 4096, 1), {}, 36, False),
                ((8, 131072, 1), {}, 104, True),
                ((8, 131072, 1), whole, 428, False),
                ((4, 131072, 1), {}, 104, True),
                ((4, 131072, 1), whole, 214, False),
                ((8, 131072, 1, 64), {}, 181, False),
            ):
                found = room(*call, **more)
                self.assertEqual((round(found[0] / 1e6), found[1]), (wanted, cuts), (call, more))
            for heads in (22, 32, 64, 96):
                dealt = 8655872 if 48 * heads >= 32 * 132 else 5120  # even shares, from 32 chunks an SM on
                self.assertEqual((room(heads, 1024, 256), room(heads, 1024, 1)), ((dealt, False), (0, False)), heads)
            one = [(11, 2112), (12, 4160), (21, 4160), (22, 2112), (44, 2112), (45, 8256), (67, 1728)]
            one += [(58, 8256), (59, 16448), (66, 16448)]
            one += [(88, 2688), (99, 4736), (105, 6784), (110, 10624), (165, 1408), (198, 2432), (220, 5888)]
            several = [(1, 1088), (66, 1088), (126, 1408), (127, 1728), (131, 8448), *one[-3:]]
            for seqs, table in ((1, one), (256, several)):
                for heads, first in table:
                    self.assertFalse(room(heads, first - 64, seqs)[1], (heads, seqs, first))
                    self.assertTrue(room(heads, first, seqs)[1], (heads, seqs, first))
            for heads, seqs in ((120, 1), (132, 1), (132, 256), (256, 1), (256, 256)):
                self.assertFalse(room(heads, 16384, seqs)[1], (heads, seqs))
            self.assertTrue(room(99, 6336, 2)[1])

    def test_nothing_imports_torch(self):
        code = "import sys, gdn_jit; gdn_jit.version(); sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
        env = {**os.environ, "PYTHONPATH": str(support.TOP / "python")}
        self.assertEqual(subprocess.run([sys.executable, "-c", code], env=env).returncode, 0)


class Reference(unittest.TestCase):
    def test_prefill_of_two_sequences_is_the_recurrence(self):
        """Two sequences of 2 and 1 tokens, one k head, two v heads; counts and scale follow from the tensors."""
        d, tokens, hv = 64, 3, 2
        number = lambda i: ((i * 37) % 101 - 50) / 128  # noqa: E731, exact in fp16
        q, k = ([number(i + s) for i in range(tokens * d)] for s in (0, 7))
        v = [number(i + 3) for i in range(tokens * hv * d)]
        g, beta = [-0.25 * (i % 3) for i in range(tokens * hv)], [0.5 + 0.25 * (i % 2) for i in range(tokens * hv)]
        half = lambda shape, x: support.HostTensor(shape, "H", support.fp16(x))  # noqa: E731
        o, state = support.HostTensor((tokens, hv, d), "H"), support.HostTensor((2, hv, d, d), "f")
        gdn_jit.reference_prefill(
            DESC,
            q=half((tokens, 1, d), q),
            k=half((tokens, 1, d), k),
            v=half((tokens, hv, d), v),
            o=o,
            final_state=state,
            g=support.HostTensor((tokens, hv), "f", g),
            beta=support.HostTensor((tokens, hv), "f", beta),
            scale=0.5,
            cu_seqlens=support.HostTensor((3,), "i", [0, 2, 3]),
        )
        import math

        for n, (first, last) in enumerate(((0, 2), (2, 3))):
            for h in range(hv):
                s = [[0.0] * d for _ in range(d)]
                for t in range(first, last):
                    kt, qt, decay = k[t * d : (t + 1) * d], q[t * d : (t + 1) * d], math.exp(g[t * hv + h])
                    for j in range(d):
                        column = [s[i][j] * decay for i in range(d)]
                        u = beta[t * hv + h] * (v[(t * hv + h) * d + j] - sum(a * b for a, b in zip(kt, column)))
                        for i in range(d):
                            s[i][j] = column[i] + kt[i] * u
                        wanted = 0.5 * sum(qt[i] * s[i][j] for i in range(d))
                        found = support.from_fp16([o.memory[(t * hv + h) * d + j]])[0]
                        self.assertAlmostEqual(
                            found, wanted, delta=abs(wanted) * 2**-10 + 1e-7, msg=f"o t={t} h={h} j={j}"
                        )
                for i in range(d):
                    for j in range(d):
                        found = state.memory[((n * hv + h) * d + i) * d + j]
                        self.assertAlmostEqual(
                            found, s[i][j], delta=abs(s[i][j]) * 1e-6 + 1e-9, msg=f"state n={n} h={h}"
                        )

    def test_conv_of_a_pitched_row(self):
        """Width 2, weights 1 and 2, no SiLU: y[t] = x[t-1] + 2 x[t]; columns past the channels are not read."""
        desc = dict(
            io_type="f16", num_q_heads=1, num_k_heads=1, num_v_heads=1, head_dim_qk=16, head_dim_v=16, width=2, flags=0
        )
        rows, pitch, channels = 3, 64, 48
        x = [(t * 8 + c % 8) / 16 if c < channels else 9.0 for t in range(rows) for c in range(pitch)]
        outs = {n: support.HostTensor((rows, 1, 16), "H") for n in "qkv"}
        gdn_jit.reference_conv1d_qkv(
            desc,
            x=support.HostTensor((rows, channels), "H", support.fp16(x), stride=(pitch, 1)),
            weight=support.HostTensor((channels, 2), "H", support.fp16([1.0, 2.0] * channels)),
            **outs,
        )
        for i, n in enumerate("qkv"):
            found = support.from_fp16(outs[n].memory)
            wanted = [
                (x[(t - 1) * pitch + c] if t else 0.0) + 2 * x[t * pitch + c]
                for t in range(rows)
                for c in range(16 * i, 16 * i + 16)
            ]
            self.assertEqual(found, wanted, n)


    def test_a_line_that_a_pool_does_not_have_is_refused(self):
        """The reference would read and write what lies behind the pool; lines that no sequence uses may be any."""
        numbers = lambda *given: support.HostTensor((len(given),), "i", list(given))  # noqa: E731
        flags = lambda *given: support.HostTensor((len(given),), "B", list(given))  # noqa: E731
        rows = lambda *given: support.HostTensor((len(given), 3), "q", sum(given, []))  # noqa: E731
        starts = numbers(0, 64, 128, 128)
        shape = dict(io_type="f16", head_dim_v=64, num_v_heads=1)

        def prefill(initial, final, **given):
            half = lambda: support.HostTensor((128, 1, 64), "H")  # noqa: E731
            state = lambda count: count and support.HostTensor((count, 1, 64, 64), "f")  # noqa: E731
            desc = dict(shape, num_q_heads=1, num_k_heads=1, head_dim_qk=64)
            desc["flags"] = ("checkpoints",) if "checkpoints" in given else ()
            call = dict(q=half(), k=half(), v=half(), o=half(), initial_state=state(initial), final_state=state(final))
            gdn_jit.reference_prefill(desc, cu_seqlens=starts, **{**call, **given})

        def conv(count, **given):
            x, y, weight = (support.HostTensor(s, "H") for s in ((128, 64), (128, 1, 64), (64, 2)))
            desc = dict(shape, width=2, flags=("checkpoints",) if "checkpoints" in given else ())
            state = support.HostTensor((count, 64, 1), "H")
            gdn_jit.reference_conv1d_qkv(desc, x=x, weight=weight, v=y, state=state, cu_seqlens=starts, **given)

        far = 1 << 24  # lines, so that what is not refused ends the process
        pitched = support.HostTensor((3,), "i", [0, 9, far, 9, 1, 9], stride=(2,))
        for wanted, call, counts, given in (
            (rf"slot_in\[2\] is {far}, and initial_state has 4", prefill, (4, 5), dict(slot_in=numbers(0, 3, far))),
            (r"slot_in\[1\] is 4, and final_state has 4 lines", prefill, (5, 4), dict(slot_in=numbers(0, 4, 1))),
            (r"slot_out\[0\] is 3, and final_state has 3", prefill, (3, 3), dict(slot_out=numbers(3, 0, 1))),
            (rf"slot_in\[1\] is {far}", prefill, (3, 3), dict(slot_in=pitched)),
            ("sequence 2's line without slot_in is 2", prefill, (2, 3), dict(has_initial_state=flags(1, 1, 1))),
            (rf"checkpoints\[1\] is {far}", prefill, (0, 4), dict(checkpoints=rows([0, 64, 3], [1, 64, far]))),
            (rf"slot_in\[1\] is {far}, and state has 8 .* -1", conv, (8,), dict(slot_in=numbers(0, far, 1))),
            (rf"slot_out\[1\] is {far}, and state has 8", conv, (8,), dict(slot_out=numbers(3, far, 4))),
            ("sequence 1's line without slot_in is 1", conv, (1,), dict(slot_out=numbers(0, 0, -1))),
            (r"slot_out\[2\] is 9", conv, (8,), dict(slot_in=numbers(0, 1, 2), slot_out=numbers(0, 1, 9))),
            (r"the line of checkpoints\[0\] is 8", conv, (8,), dict(checkpoints=rows([1, 7, 8]))),
        ):
            with self.subTest(wanted), self.assertRaisesRegex(ValueError, wanted):
                call(*counts, **given)
        prefill(4, 4, slot_in=numbers(-1, 3, -1))
        prefill(4, 4, slot_in=numbers(far, 3, -1), slot_out=numbers(-1, 2, far))
        prefill(2, 3, has_initial_state=flags(1, 1, 0))
        unused = [[0, 63, far], [0, 64, 3], [0, 128, far], [1, 64, -1], [2, 64, far], [3, 64, far], [-1, 64, far]]
        prefill(0, 4, checkpoints=rows(*unused))
        conv(8, slot_in=numbers(7, -1, far))  # an empty sequence's line stays as it is
        conv(8, slot_in=numbers(7, 6, far), slot_out=numbers(7, 6, 5), has_initial_state=flags(1, 0, 0))


class Finding(unittest.TestCase):
    def test_the_name_that_the_loader_is_asked_for_is_the_librarys(self):
        built = pathlib.Path(os.environ["GDN_JIT_LIBRARY"]).resolve()
        self.assertEqual((built.parent / library.SONAME).resolve(), built)
        self.assertTrue((built.parent / library.SONAME).is_file())

    def test_the_named_file_is_the_one_that_is_tried(self):
        code = "import gdn_jit; gdn_jit.version()"
        env = {**os.environ, "PYTHONPATH": str(support.TOP / "python"), "GDN_JIT_LIBRARY": "/nonexistent/libgdnjit.so"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/nonexistent/libgdnjit.so", done.stderr)
        self.assertIn("GDN_JIT_LIBRARY", done.stderr)


    def test_another_version_is_named_before_what_it_lacks(self):
        for source, said in (
            ("int gdn_version(void) { return 900; }", "is version 0.9"),
            ("int other(void) { return 0; }", "no gdn_version"),
        ):
            with self.subTest(said), tempfile.TemporaryDirectory() as room:
                (pathlib.Path(room) / "other.c").write_text(source)
                made = f"{room}/libother.so"
                subprocess.run([COMPILER, "-shared", "-fPIC", "-o", made, f"{room}/other.c"], check=True)
                env = {**os.environ, "PYTHONPATH": str(support.TOP / "python"), "GDN_JIT_LIBRARY": made}
                done = subprocess.run(
                    [sys.executable, "-c", "import gdn_jit; gdn_jit.version()"], env=env, capture_output=True, text=True
                )
            self.assertIn("OSError", done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
