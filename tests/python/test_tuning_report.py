#!/usr/bin/env python3
"""test_tuning_report.py - what bench/tuning_report.py makes of a tuning file. The numbers are made up."""

import io
import json
import os
import tempfile
import unittest

from support import TOP  # noqa: F401  (puts bench on the path)

import tuning_report


def slot(tokens, median, heuristic, tile):
    return {"tokens": tokens, "seqs": 0, "params": {"tile_tokens": tile, "cta_threads": 128}, "median_ns": median,
            "mad_ns": 100, "heuristic_ns": heuristic, "samples": 50, "run": 1}


def table(*slots):
    return {"schema": 1, "space": "00", "arch": "sm_90a", "gpu": "NVIDIA H200", "num_sms": 132,
            "runs": [{"id": 1, "driver": "CUDA 13.0", "nvrtc": "13.0", "sm_mhz": 0, "mem_mhz": 0, "date": "2026-11-22",
                      "code": "00"}],
            "problems": [{"kernel": "conv1d_qkv", "io_type": "bf16", "head_dim_qk": 128, "head_dim_v": 128,
                          "num_q_heads": 16, "num_k_heads": 16, "num_v_heads": 32, "l2norm": False, "width": 4,
                          "slots": list(slots)}]}


def times(case, variant, cold, warm, mad=0.05):
    return [{"case": case, "dtype": "bf16", "variant": variant, "l2": l2, "median_us": us, "mad_us": mad * us}
            for l2, us in (("cold", cold), ("warm", warm))]


class HeldOut(unittest.TestCase):
    def report_of(self, *lines):
        out = io.StringIO()
        good = tuning_report.print_held_out(tuning_report.held_out([x for pair in lines for x in pair]), out)
        return good, out.getvalue()

    def test_geometric_mean_is_over_calls_that_differ_and_the_worst_is_named(self):
        good, text = self.report_of(
            times("gdn_a", "tuned", 9, 7), times("gdn_a", "heuristic", 12, 8), times("conv_b", "same", 30, 10),
            times("gdn_c", "tuned", 20, 20, 0), times("gdn_c", "heuristic", 19.8, 19.8, 0))
        self.assertTrue(good)
        self.assertIn("| gdn_a | bf16 | 10.00 | 8.00 | 1.250 | 10.0 % |", text)
        self.assertNotIn("| conv_b", text)
        mean = (1.25 * 0.99) ** (1 / 2)
        self.assertIn("2 calls that were not tuned run otherwise with the table; "
                      "1 faster and 0 slower by more than the tie band; "
                      f"geometric mean of heuristic / tuned {mean:.3f}; worst 0.990 (gdn_c, bf16)", text)

    def test_a_call_that_is_slower_by_more_than_band_and_noise_fails(self):
        slow = times("gdn_c", "tuned", 20, 20, 0), times("gdn_c", "heuristic", 19.5, 19.5, 0)
        self.assertFalse(self.report_of(*slow)[0])
        self.assertIn("0 faster and 1 slower", self.report_of(*slow)[1])
        noisy = times("gdn_c", "tuned", 20, 20, 0.02), times("gdn_c", "heuristic", 19.5, 19.5, 0.02)
        self.assertTrue(self.report_of(*noisy)[0])
        self.assertTrue(self.report_of()[0], "no call runs otherwise")

    def test_a_run_that_was_cut_short_is_no_result(self):
        with self.assertRaises(SystemExit) as refused:
            self.report_of(times("gdn_c", "tuned", 20, 20), times("gdn_c", "heuristic", 20, 20)[:1])
        self.assertIn("gdn_c, bf16: no warm line of the variant heuristic", str(refused.exception))


class Report(unittest.TestCase):
    def slots_of(self, content):
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            json.dump(content, file)
        self.addCleanup(os.unlink, file.name)
        return tuning_report.read(file.name)

    def test_table_has_times_gain_and_the_worst_case(self):
        out = io.StringIO()
        content = table(slot(1024, 8000, 10000, 8), slot(4194304, 10000, 10000, 4))
        tuning_report.print_table(*self.slots_of(content), out)
        text = out.getvalue()
        self.assertIn("### conv1d_qkv bf16 heads 16/16/32 dims 128/128 width 4", text)
        self.assertIn("| <= 1024, any | 10.00 | 8.00 | 1.2 % | 20.0 % | 50 | tile_tokens=8 cta_threads=128 |", text)
        self.assertIn("| > 1048576, any | 10.00 | 10.00 | 1.0 % | 0.0 % |", text)
        self.assertIn("2 slots; 1 faster by more than the tie band; geometric mean of ", text)
        self.assertIn("heuristic / tuned 1.118; worst 1.000", text)

    def test_tunings_agree_within_the_tie_band_and_disagree_outside_of_it(self):
        first = self.slots_of(table(slot(256, 5000, 6000, 4), slot(1024, 8000, 10000, 8)))[1]
        near = self.slots_of(table(slot(256, 5000, 6000, 4), slot(1024, 8100, 10000, 16)))[1]
        far = self.slots_of(table(slot(256, 5000, 6000, 4), slot(1024, 8200, 10000, 16)))[1]
        out = io.StringIO()
        self.assertTrue(tuning_report.compare(first, near, out))
        self.assertIn("2 slots in both: 1 choose alike, 1 differ within the tie band, 0 outside of it", out.getvalue())
        out = io.StringIO()
        self.assertFalse(tuning_report.compare(first, far, out))
        wanted = "tile_tokens=8 cta_threads=128 (8.00 us) and tile_tokens=16 cta_threads=128 (8.20 us)"
        self.assertIn(wanted, out.getvalue())
        self.assertFalse(tuning_report.compare(first, [], io.StringIO()))

    def test_another_schema_is_refused(self):
        with self.assertRaises(SystemExit) as refused:
            self.slots_of({"schema": 2})
        self.assertIn('"schema" is 2', str(refused.exception))


if __name__ == "__main__":
    unittest.main()
