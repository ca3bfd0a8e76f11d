"""test_bench.py - what of bench/ runs without torch and without a GPU: rows, schema, selection, tables from recorded
results."""

import argparse
import os
import pathlib
import py_compile
import re
import subprocess
import sys
import tempfile
import unittest

import support

import in_turns
import report
from core import rows, schema
from impls import registry

RECORDED = pathlib.Path(__file__).resolve().parent / "data" / "results.jsonl"
FOLDERS = ("python", "rust", "bench", "tests/python")
LINE = dict(
    op="gdn_prefill",
    impl="fla",
    dtype="bf16",
    num_seqs=1,
    tokens=64,
    lens=[64],
    hq=1,
    hk=1,
    hv=1,
    dk=128,
    dv=128,
    case="x",
    method="graph",
    l2="cold",
    median_us=5.0,
    mad_us=0.1,
    samples=7,
    gpu="G",
    driver="1",
    versions={},
    commit="c",
    date="d",
)


def recorded(**changes):
    """The recorded lines, with members of the generic kernel's on 1x32768_16 changed."""
    lines = schema.read([RECORDED])
    for line in lines:
        if line["impl"] == "gdn-jit-generic" and line["case"] == "1x32768_16" and line["method"] == "graph":
            line.update(changes)
    return lines


def row_of(text, start):
    return next(line for line in text.splitlines() if line.startswith(start))


class Rows(unittest.TestCase):
    def test_keys_are_unique(self):
        keys = [rows.key(row) for row in rows.ROWS]
        self.assertEqual(len(keys), len(set(keys)), [k for k in keys if keys.count(k) > 1])

    def test_prompts_are_those_of_the_c_benchmark(self):
        self.assertEqual((len(rows.MIXED), sum(rows.MIXED), min(rows.MIXED), max(rows.MIXED)), (32, 16384, 37, 4000))
        text = (support.TOP / "bench/gdn_bench.c").read_text()
        listed = re.search(r"mixed_prompts\[\] = \{([^}]*)\}", text).group(1)
        self.assertEqual(tuple(int(n) for n in listed.replace(",", " ").split()), rows.MIXED)

    def test_skewed_batch_has_its_even_twin(self):
        self.assertEqual((len(rows.SKEWED), sum(rows.SKEWED)), (len(rows.EVEN), sum(rows.EVEN)))

    def test_goals_ask_for_more_than_the_best_peer(self):
        for row in rows.GDN_ROWS:
            if row.goal:
                self.assertGreater(row.best_exact / row.goal, 1.0, rows.key(row))

    def test_packings_are_eight_of_16384_tokens(self):
        self.assertEqual({sum(lens) for lens in rows.PACKED}, {16384})
        self.assertEqual(len(set(rows.PACKED)), 8)
        self.assertEqual(len(rows.select("", "packed")), 16)
        self.assertEqual(rows.name_of(rows.PACKED[7], 16, 32), "packed8_16_32")

    def test_each_length_is_there_once_with_each_number_of_heads(self):
        found = [(r.tokens, r.hv, r.gates) for r in rows.select("", "lengths")]
        tokens, heads = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072), (4, 8, 16, 32, 64)
        self.assertEqual(sorted(found), sorted((t, h, g) for t in tokens for h in heads for g in ("decay", "zero")))
        goal = next(r for r in rows.select("1x32768_16 fp16 decay") if r.op == "gdn_prefill")
        self.assertTrue({"table", "lengths"} <= set(goal.tags))

    def test_normed_rows_are_not_taken_for_others(self):
        normed = rows.select("", "norms")
        self.assertTrue(all(r.normed and rows.key(r).endswith(" decay+qk_l2norm") for r in normed))
        self.assertEqual([r for r in rows.GDN_ROWS if r.normed], normed)
        plain = next(r for r in rows.select("4x8192_16_32 bf16 decay$"))
        self.assertFalse(plain.normed)
        line = {**plain.fields(), "features": [*plain.features, rows.NORM]}
        self.assertEqual(report.place_of(line), "gdn_prefill 4x8192_16_32 bf16 decay+qk_l2norm")

    def test_floor_counts_each_byte_once(self):
        row = rows.gdn([1024], 16, 64, "bf16", "decay", "")
        self.assertTrue(row.h0)
        self.assertEqual(row.floor_bytes(), 1024 * (2 * 16 + 2 * 64) * 128 * 2 + 1024 * 64 * 8 + 2 * 64 * 128 * 128 * 4)
        conv = rows.conv(512, (128, 128, 256))
        self.assertEqual(conv.floor_bytes(), 2 * 512 * 512 * 2 + 512 * 4 * 2 + 2 * 512 * 3 * 2)

    def test_conv_tag_holds_what_is_asked_of_the_operator(self):
        have = {(r.lens[0] if len(r.lens) == 1 else r.case.split("_")[0], (r.q_dim, r.k_dim, r.v_dim), r.features)
                for r in rows.select("", "conv")}  # fmt: skip
        main, plain = (2048, 2048, 2048), ("silu", "state")
        norm, checkpoints = (*plain, "norm", "gates"), (*plain, "checkpoints")
        wanted = {(t, main, f) for t in (512, 1024, 2048, 4096, 8192, 16384) for f in (plain, norm)}
        wanted |= {(t, dims, plain) for t in (512, 4096, 16384) for dims in ((2048, 2048, 4096), (1024, 1024, 2048))}
        tp8 = ((256, 256, 512), (256, 256, 256), (128, 128, 256))
        wanted |= {(t, dims, plain) for t in (512, 8192) for dims in tp8}
        wanted |= {(name, main, f) for name in ("skewed64", "even64") for f in (plain, norm)}
        wanted |= {(8192, main, checkpoints)}
        self.assertEqual(wanted - have, set())
        self.assertEqual({r.op for r in rows.select("", "conv")}, {"conv1d_qkv"})

    def test_a_row_beside_another_names_one_that_is_there(self):
        known = {(r.case, r.features) for r in rows.CONV_ROWS}
        found = [r for r in rows.CONV_ROWS if r.beside]
        self.assertEqual({r.beside[:2] for r in found} - known, set())
        limits = {rows.key(r): round(r.beside[2], 4) for r in found}
        self.assertEqual(limits["conv1d_qkv T8192_2048_2048_2048 bf16 silu+state+norm+gates"], 1.03)
        self.assertEqual(limits["conv1d_qkv skewed64_2048_2048_2048 bf16 silu+state"], 1.05)
        # 128 lines of 36864 bytes and as many rows of a list, over 201 MB
        self.assertEqual(limits["conv1d_qkv T8192_2048_2048_2048 bf16 silu+state+checkpoints"], 1.0541)

    def test_checkpoints_are_bytes(self):
        plain, row = (rows.conv((100, 63, 128), (128, 128, 256), f) for f in (rows.PLAIN, rows.CHECKPOINTS))
        self.assertEqual((plain.num_checkpoints, row.num_checkpoints), (0, 1 + 0 + 2))
        self.assertEqual(row.floor_bytes() - plain.floor_bytes(), 3 * (512 * 3 * 2 + 24))

    def test_bytes_and_products_are_the_librarys(self):
        """gdn_plan_cost() counts the states as read and written, so a row with h0 is what it is compared on."""
        import gdn_jit

        cases = [(rows.gdn(lens, 16, 64, "bf16", "decay", ""), "plan_prefill") for lens in ([1024], rows.MIXED)]
        cases += [(rows.conv(lens, (256, 256, 512)), "plan_conv1d_qkv") for lens in (512, rows.SKEWED)]
        with gdn_jit.Context(cache_dir="", flags="no_env", nvrtc_path=os.environ["GDN_FAKE_NVRTC_PATH"]) as ctx:
            for row, make in cases:
                heads = (row.hk, row.hk, row.hv) if row.op == "gdn_prefill" else (2, 2, 4)
                desc = dict(zip(("num_q_heads", "num_k_heads", "num_v_heads"), heads), head_dim_qk=128, head_dim_v=128)
                bounds = dict(max_tokens=row.tokens, max_seqs=len(row.lens))
                with getattr(ctx, make)(ctx.target("H200"), **bounds, **desc) as plan:
                    cost = plan.cost(row.tokens, len(row.lens))
                self.assertEqual((cost["bytes"], cost["flops"]), (row.floor_bytes(), row.flops()), rows.key(row))

    def test_chunk_cost_of_a_full_gpu(self):
        """132 heads on 132 SMs: the time divided by the chunks of one sequence."""
        row = rows.gdn([32768], 132, 132, "bf16", "decay", "")
        self.assertAlmostEqual(row.chunk_us(2.45 * 512, 132), 2.45)

    def test_selection(self):
        self.assertEqual({r.case for r in rows.select("1x256_16_64;mixed32_16_64")}, {"1x256_16_64", "mixed32_16_64"})
        self.assertEqual(len(rows.select("T4096_2048_2048_2048 bf16 silu+state$")), 1)
        self.assertTrue(all("steady" in r.tags for r in rows.select("", "steady")))
        self.assertEqual(len(rows.select()), len(rows.ROWS))
        with self.assertRaisesRegex(ValueError, "no row has the tag stead"):
            rows.select("", "stead")


class Schema(unittest.TestCase):
    def test_committed_results_are_valid(self):
        for path in [*(support.TOP / "bench/results").glob("*.jsonl"), RECORDED]:
            for number, line in enumerate(schema.read([path]), 1):
                self.assertEqual(
                    schema.problems(line, strict="first_version" not in path.name), [], f"{path.name}:{number}"
                )

    def test_what_is_wrong_is_named(self):
        self.assertEqual(schema.problems(LINE), [])
        for change, said in (
            ({"impl": "flaa"}, "impl is 'flaa'"),
            ({"median_us": -1.0}, "positive"),
            ({"speed": 1}, "unknown field"),
            ({"method": "guess"}, "method is"),
            ({"tokens": "many"}, "wrong type"),
            ({"h0": 1}, "wrong type"),
            ({"samples": True}, "wrong type"),
        ):
            self.assertTrue(any(said in p for p in schema.problems({**LINE, **change})), change)
        for name in ("hv", "median_us", "commit"):
            self.assertIn(f"{name} is missing", schema.problems({k: v for k, v in LINE.items() if k != name}))

    def test_a_failure_needs_no_time(self):
        line = {k: v for k, v in LINE.items() if k not in schema.MEASURED}
        self.assertEqual(schema.problems({**line, "error": "RuntimeError: no"}), [])

    def test_write_then_read(self):
        with tempfile.TemporaryDirectory() as room:
            path = pathlib.Path(room) / "r.jsonl"
            schema.write(
                path,
                {**LINE, "err_o": float("inf"), "err_state": None, "maxabs_o": float("nan"), "median_us": 1.23456789},
            )
            found = schema.read([path])[0]
            self.assertEqual((found["err_o"], found["median_us"]), (float("inf"), 1.2346))
            self.assertNotIn("err_state", found)
            self.assertNotIn("maxabs_o", found)
            with self.assertRaisesRegex(ValueError, "unknown field 'speed'"):
                schema.write(path, {**LINE, "speed": 1})
            self.assertEqual(len(schema.read([path])), 1)

    def test_long_lists_of_lengths_are_hashed_as_in_c(self):
        """FNV-1a over 32-bit words: the offset basis, then (h ^ n) * prime each, modulo 2^64."""
        self.assertEqual(schema.lens_field([1] * 64), [1] * 64)
        wanted = 14695981039346656037
        for n in (7,) * 65:
            wanted = ((wanted ^ n) * 1099511628211) % 2**64
        self.assertEqual(schema.lens_field((7,) * 65), f"{wanted:016x}")


class Report(unittest.TestCase):
    def test_best_exact_peer_and_ratio(self):
        """FlashQLA 382.53 us sustained; TileOPs is faster and does not count."""
        line = row_of(report.tables(recorded(sustained_us=191.265)), "| 1x32768_16 fp16 decay")
        self.assertIn("| flashqla:auto | 2.00 of 2.03: missed |", line)
        line = row_of(report.tables(recorded(sustained_us=180.0)), "| 1x32768_16 fp16 decay")
        self.assertIn("| 2.13 of 2.03: reached |", line)

    def test_curves_by_length_are_of_what_was_measured(self):
        lines = [
            dict(LINE, impl=impl, dtype="fp16", gates="decay", case=f"1x{t}_16", median_us=us)
            for impl, t, us in (("gdn-jit", 4096, 60.0), ("gdn-jit", 1024, 40.0), ("gdn-jit-whole", 4096, 200.0))
        ]
        curves = report.lengths_curves(report.Results(lines), "decay")
        self.assertEqual(
            curves, [(16, "gdn-jit", [(1024, 0.04), (4096, 0.06)]), (16, "gdn-jit-whole", [(4096, 0.2)])]
        )
        self.assertEqual(report.lengths_curves(report.Results(lines), "zero"), [])

    def test_calls_apart_have_a_table_where_there_are_any(self):
        title = "## Microseconds of calls apart, gdn_prefill"
        self.assertNotIn(title, report.tables(recorded()))
        text = report.tables(recorded(apart_us=201.26))
        self.assertIn("| 201.3 |", row_of(text[text.index(title) :], "| 1x32768_16 fp16 decay"))

    def test_losing_rows_are_shown(self):
        text = report.tables(recorded())
        self.assertIn("0.21 of 2.03: missed", row_of(text, "| 1x32768_16 fp16 decay"))
        self.assertIn("1.790 (1.793)", row_of(text, "| 1x32768_16 fp16 decay"))

    def test_generic_beside_fla(self):
        text = report.tables(recorded()).split("## The generic kernel beside FLA")[1]
        self.assertIn("0.69 of 1.00: missed", row_of(text, "| 1x32768_16 fp16 decay"))
        self.assertIn("2.89 of 1.00: reached", row_of(text, "| 1x256_16_64 bf16 decay"))

    def test_conv_beside_the_copy(self):
        line = row_of(report.tables(recorded()), "| T8192_2048_2048_2048")
        self.assertIn("134.3 / 135.0 (0.37) | 49.7 / 50.1 | 60.1 / 60.3 (0.83)", line)
        self.assertTrue(line.endswith("| 0.83 of 0.88: missed |"), line)

    def test_conv_beside_the_plain_row(self):
        """The recorded row of 8192 tokens, once more with norm and gates, 4 % slower and as fast."""
        for factor, said in ((1.04, "0.96 of 0.97: missed"), (1.0, "1.00 of 0.97: reached")):
            lines = recorded()
            for line in recorded():
                if line["impl"] == "gdn-jit" and line["case"] == "T8192_2048_2048_2048":
                    more = {f: line[f] * factor for f in ("median_us", "sustained_us") if f in line}
                    lines.append({**line, **more, "features": ["silu", "state", "norm", "gates"]})
            text = report.tables(lines).split("## conv1d-QKV, what a row costs beside another")[1]
            line = row_of(text, "| T8192_2048_2048_2048 bf16 silu+state+norm+gates, cold")
            self.assertIn("| T8192_2048_2048_2048 silu+state |", line)
            self.assertTrue(line.endswith(f"| {said} |"), line)

    def test_a_peer_with_broken_numbers_is_not_the_best(self):
        lines = recorded()
        for line in lines:
            if line["impl"] == "flashqla":
                line["err_o"] = float("inf")
        self.assertIn("| flashinfer-cp |", row_of(report.tables(lines), "| 1x32768_16 fp16 decay"))

    def test_later_lines_replace_earlier_ones_and_failures_are_listed(self):
        broken = {k: v for k, v in recorded()[-1].items() if k not in (*schema.MEASURED, "sustained_us", "l2")}
        broken.update(case="T512_2048_2048_2048", error="RuntimeError: out of luck")
        text = report.tables([*recorded(sustained_us=1.0), *recorded(sustained_us=180.0), broken])
        self.assertIn("2.13 of 2.03", row_of(text, "| 1x32768_16 fp16 decay"))
        self.assertIn("out of luck", text.split("## What failed")[1])

    def test_command_line_without_torch(self):
        """A torch that cannot be imported stands in front of any other."""
        with tempfile.TemporaryDirectory() as room:
            for name in ("torch", "triton", "numpy", "matplotlib"):
                (pathlib.Path(room) / f"{name}.py").write_text(f"raise ImportError('{name} was asked for')")
            env = {**os.environ, "PYTHONPATH": room, "PYTHONDONTWRITEBYTECODE": "1"}
            for command in (
                [str(support.TOP / "bench/report.py"), str(RECORDED)],
                [str(support.TOP / "bench/run.py"), "--list"],
            ):
                done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("1x32768_16 fp16 decay", done.stdout)
            for program, rows_text, sentence in (
                ("run.py", "no such row", "no row matches"),
                ("repeat.py", "conv1d_qkv", "no row of prefill matches"),
            ):
                command = [sys.executable, str(support.TOP / "bench" / program), "--rows", rows_text]
                done = subprocess.run(command, env=env, capture_output=True, text=True)
                self.assertIn(sentence, done.stderr)


class InTurns(unittest.TestCase):
    def test_no_library_is_always_first(self):
        """What comes first meets a cooler card."""
        self.assertEqual(in_turns.in_turns(["a", "b"], 3), ["a", "b", "b", "a", "a", "b"])

    def test_rows(self):
        row = in_turns.row_of("4x8192,16,64,bf16,decay")
        self.assertEqual((tuple(row.lens), row.hv, row.dtype, row.gates), ((8192,) * 4, 64, "bf16", "decay"))
        self.assertEqual(tuple(in_turns.row_of("m,16,64,bf16,decay").lens), rows.MIXED)

    def test_a_row_of_unknown_gates_or_dtype_is_refused(self):
        """It was measured with gates that decay, under the other name."""
        with self.assertRaisesRegex(ValueError, "gates g0: there are decay, zero"):
            in_turns.row_of("1x64,1,1,bf16,g0")
        with self.assertRaisesRegex(ValueError, "dtype half: there are bf16"):
            in_turns.row_of("1x64,1,1,half,decay")

    def test_conv_rows(self):
        row = in_turns.row_of("conv,2x4096,1024,1024,2048,fp16,silu+state+norm+gates")
        self.assertEqual((row.op, row.lens, row.dtype, row.channels), ("conv1d_qkv", (4096, 4096), "fp16", 4096))
        self.assertEqual((row.features, row.gate_heads), (rows.ALL, 16))
        one = in_turns.row_of("conv,1x4096,1024,1024,2048,fp16,silu+state+norm+gates")
        self.assertNotEqual(rows.key(row), rows.key(one), "a plan is kept by its row's key")
        self.assertEqual(in_turns.row_of("conv,m,256,256,512,bf16,silu").lens, rows.MIXED)
        for text, sentence in (
            ("conv,1x64,128,128,128,bf16,silu+gate", "feature gate: there are silu, state, norm"),
            ("conv,1x64,128,128,128,half,silu", "dtype half: there are bf16"),
        ):
            with self.assertRaisesRegex(ValueError, sentence):
                in_turns.row_of(text)

    def test_every_feature_of_a_listed_row_may_be_asked_for(self):
        self.assertEqual({f for row in rows.CONV_ROWS for f in row.features}, set(rows.CONV_FEATURES))

    def test_line_has_medians_and_what_differs(self):
        a = dict(burst_us=[3.0, 1.0, 2.0], apart_us=[], sustained_us=[4.0], kernel="k", sums=[2.0, 8.0], bits=[5, 7])
        b = dict(burst_us=[1.5, 1.5, 9.0], apart_us=[6.0], sustained_us=[5.0], kernel="k", sums=[2, 8.08], bits=[5, 8])
        line = in_turns.line_of(dict(row="x", libraries=dict(a=a, b=b)))
        self.assertIn("a 2.00 (4.00), 0e+00, same bits | b 1.50 (5.00), apart 6.00, 1e-02, other bits", line)

    def worker(self, answers):
        """A process that answers commands by their first word; of one that is not there: it ends."""
        program = "import sys; a = %r\nfor line in sys.stdin: print(a[line.split()[0]], flush=True)" % answers
        pipe = subprocess.PIPE
        worker = subprocess.Popen(
            [sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        self.addCleanup(worker.__exit__, None, None, None)  # closes its pipes and waits for it
        self.addCleanup(worker.kill)
        return worker

    def measured(self, workers):
        args = argparse.Namespace(turns=3, pause=0, sustained=0.1, sustained_turns=2, apart_turns=1)
        return in_turns.measure({name: self.worker(answers) for name, answers in workers.items()}, "x", args)

    def test_every_turn_is_kept(self):
        answers = {"row": '{"kernel": "k", "sums": [1, 2]}', "free": "{}"}
        answers |= {"burst": '{"us": 3}', "sustained": '{"us": 4}', "apart": '{"us": 5}'}
        of_each = dict(burst_us=[3, 3, 3], apart_us=[5], sustained_us=[4, 4], kernel="k", sums=[1, 2])
        self.assertEqual(self.measured(dict(a=answers, b=answers))["libraries"], dict(a=of_each, b=of_each))

    def test_a_turn_that_fails_and_a_process_that_ends_are_said(self):
        answers = {"row": '{"kernel": "k", "sums": [1, 2]}', "burst": '{"error": "out of luck"}', "free": "{}"}
        self.assertEqual(self.measured(dict(a=answers))["error"], {"turns": "out of luck"})
        self.assertEqual(self.measured(dict(a=answers, b={}))["error"], {"b": "its process has ended"})

    def test_what_fails_is_said(self):
        program = str(support.TOP / "bench/in_turns.py")
        with tempfile.TemporaryDirectory() as room:
            (pathlib.Path(room) / "torch.py").write_text("raise ImportError('torch was asked for')")
            env = {**os.environ, "PYTHONPATH": room, "PYTHONDONTWRITEBYTECODE": "1"}
            command = [sys.executable, program, "--libraries", "a=none.so", "--rows", "1x64,1,1,bf16,decay"]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, "1x64,1,1,bf16,decay .*'a': .*torch was asked for")


class Sources(unittest.TestCase):
    def sources(self):
        return sorted(p for f in FOLDERS for p in (support.TOP / f).rglob("*.py"))

    def test_every_file_compiles(self):
        with tempfile.TemporaryDirectory() as room:
            for path in self.sources():
                py_compile.compile(str(path), cfile=str(pathlib.Path(room) / "x.pyc"), doraise=True)

    def test_form(self):
        """Lines of at most 120 columns, no tabs, no trailing blanks; a first docstring that names the file."""
        found = []
        for path in self.sources():
            lines = path.read_text().splitlines()
            found += [
                f"{path}:{i}"
                for i, line in enumerate(lines, 1)
                if len(line) > 120 or "\t" in line or line != line.rstrip()
            ]
            head = "\n".join(lines[:2])
            if path.name != "__init__.py" and f'"""{path.name} - ' not in head:
                found.append(f'{path}:1: does not begin with """{path.name} - what it owns')
        self.assertEqual(found, [])

    def test_every_implementation_has_its_file_and_name(self):
        for name, place in registry.MODULES.items():
            module, cls = place.split(":")
            text = (support.TOP / "bench/impls" / f"{module}.py").read_text()
            self.assertIn(f"class {cls}(", text)
            self.assertIn(f'name = "{name}"', text)
            self.assertIn(name, schema.IMPLS)


if __name__ == "__main__":
    unittest.main()
