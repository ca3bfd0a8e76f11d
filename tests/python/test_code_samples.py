#!/usr/bin/env python3
"""test_code_samples.py - what bench/code_samples.py makes of ncu's samples. The numbers are made up."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from support import TOP

PROGRAM = str(TOP / "bench/code_samples.py")
COLUMNS = "Address Source #.Samples Instructions.Executed stall_wait stall_mio stall_wait.(Not.Issued)"
NAMES = '"Kernel Name","k",\n' + ",".join(f'"{name}"'.replace(".", " ") for name in COLUMNS.split()) + "\n"


def source(*rows):
    lines = (f'"0x{16 * i:x}","{t}","{s}","{n}","{w}","{m}","9"\n' for i, (t, s, n, w, m) in enumerate(rows))
    return NAMES + "".join(lines)


# 1000 samples: what runs 8 times has 600, 100 and 500; what runs 4 times 300 of them; the last is a piece of its own.
CODE = source(
    ("A", 100, 8, 60, 0), ("B", 500, 8, 100, 300), ("C", 300, 4, 0, 250), ("D", 99, 8, 9, 0), ("E", 1, 1, 0, 0)
)


class CodeSamples(unittest.TestCase):
    def run_program(self, text, *options):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "s.csv"), "w") as f:
                f.write(text)
            return subprocess.run(
                [sys.executable, PROGRAM, "s.csv", *options], cwd=folder, capture_output=True, text=True
            )

    def test_instructions_that_run_alike_are_a_piece_with_its_share_and_largest_stalls(self):
        found = json.loads(self.run_program(CODE, "--json").stdout)
        self.assertEqual(
            [(p["first"], p["last"], p["executed"], p["share"]) for p in found],
            [(0, 1, 8, 0.6), (2, 2, 4, 0.3), (3, 3, 8, 0.099)],
        )
        self.assertEqual(found[0]["stalls"], {"mio": 0.3, "wait": 0.16})
        self.assertEqual(list(found[0]["stalls"]), ["mio", "wait"], "the largest first")
        self.assertEqual(found[2]["stalls"], {"wait": 0.009})

    def test_small_pieces_are_told_of_if_asked_for(self):
        self.assertEqual(len(json.loads(self.run_program(CODE, "--json", "--least", "0").stdout)), 4)
        self.assertEqual(len(self.run_program(CODE, "--least", "0.3").stdout.splitlines()), 2)

    def test_instructions_are_told_one_by_one(self):
        said = self.run_program(CODE, "--from", "1", "--to", "2").stdout.splitlines()
        self.assertEqual(said[1].split(), ["1", "8", "5000.0", "B", "mio", "3000.0", "wait", "1000.0"])
        self.assertEqual(said[2].split(), ["2", "4", "3000.0", "C", "mio", "2500.0"])
        self.assertEqual(len(said), 3)

    def test_what_cannot_be_is_refused_with_what_there_is(self):
        for text, options, says in (
            ('"ID","Kernel Name"\n', [], "s.csv: no columns Address"),
            (CODE, ["--from", "1"], "--from and --to"),
            (CODE, ["--from", "1", "--to", "5"], "instructions 0 to 4"),
            (CODE, ["--from", "2", "--to", "1"], "instructions 0 to 4"),
        ):
            done = self.run_program(text, *options)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)


if __name__ == "__main__":
    unittest.main()
