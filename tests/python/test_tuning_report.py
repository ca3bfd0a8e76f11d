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
