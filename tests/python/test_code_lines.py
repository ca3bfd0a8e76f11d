#!/usr/bin/env python3
"""test_code_lines.py - what bench/code_lines.py counts in ncu's tables. The numbers are made up."""

import os
import subprocess
import sys
import tempfile
import unittest

from support import TOP

import code_lines

PROGRAM = str(TOP / "bench/code_lines.py")


def source(*rows):
    lines = ['"Kernel Name","k",', '"Address","Source","# Samples","Instructions Executed"']
    return "\n".join(lines + [f'"0x{address:x}","NOP","1","{n}"' for address, n in rows]) + "\n"


class CodeLines(unittest.TestCase):
    def run_program(self, files, *options):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                with open(os.path.join(folder, name), "w") as f:
                    f.write(text)
            return subprocess.run([sys.executable, PROGRAM, *options], cwd=folder, capture_output=True, text=True)

    def test_lines_count_once_and_only_where_nearly_every_chunk_runs_them(self):
        lines = code_lines.lines_run([(0x1000, 100), (0x1010, 80), (0x1080, 79), (0x1100, 400)], 100)
        self.assertEqual(dict(lines), {0x1000 // 128: 2, 0x1100 // 128: 1})

    def test_what_runs_every_second_chunk_counts_if_asked_for(self):
        done = self.run_program({"s.csv": source((0x1000, 10), (0x1080, 5), (0x1100, 2))}, "s.csv", "--chunks", "10",
                                "--least", "0.3")
        self.assertEqual(done.stdout, "2 instructions in 2 lines of 256, 0 of them too many for their sets\n")

    def test_what_one_set_has_beyond_its_ways_is_too_many(self):
        apart = 64 * 128  # of the same set
        one_set = [(0x700 + i * apart) // 128 for i in range(7)]
        self.assertEqual(code_lines.beyond_ways(one_set), 3)
        self.assertEqual(code_lines.beyond_ways(one_set[:4]), 0)
        self.assertEqual(code_lines.beyond_ways(range(256)), 0, "a piece as long as the cache fits")
        self.assertEqual(code_lines.beyond_ways(range(260)), 4)

    def test_misses_are_said_for_each_chunk(self):
        files = {"s.csv": source((0x7F00, 10), (0x7F10, 10), (0x8000, 1)),
                 "r.csv": '"ID","sm__icc_requests_lookup_miss.sum"\n"",""\n"0","1,205"\n'}
        done = self.run_program(files, "s.csv", "--chunks", "10", "--raw", "r.csv")
        self.assertEqual(done.stdout, "2 instructions in 1 lines of 256, 0 of them too many for their sets\n"
                                      "120.5 misses a chunk\n")

    def test_a_table_that_is_another_is_refused_by_name(self):
        for files, options, says in (
            ({"s.csv": '"ID","Kernel Name"\n'}, [], "s.csv: no columns Address"),
            ({"s.csv": source(), "r.csv": '"ID"\n""\n"0"\n'}, ["--raw", "r.csv"], "r.csv: no sm__icc_requests"),
            ({"s.csv": source()}, ["--chunks", "0"], "--chunks 0"),
            ({"s.csv": source()}, ["--least", "0"], "--least 0"),
        ):
            done = self.run_program(files, "s.csv", "--chunks", "10", *options)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)


if __name__ == "__main__":
    unittest.main()
