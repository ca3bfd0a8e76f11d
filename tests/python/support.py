"""support.py - what the Python tests share: paths, host memory that looks like a tensor, the fake driver's controls."""

import array
import ctypes
import os
import pathlib
import re
import struct
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "python"), str(TOP / "bench")]
sys.dont_write_bytecode = True
FAKE_HEADER = TOP / "tests/fakecuda/fakecuda.h"


def fake_control_names():
    """Members of struct fake_controls, all pointers to functions, in their order."""
    body = re.search(r"struct fake_controls \{(.*?)\n\};", FAKE_HEADER.read_text(), re.S).group(1)
    return re.findall(r"^ {4}\w[\w ]*[ *]\(\*(\w+)\)\(", body, re.M)  # a function that one takes has its brackets later


class HostTensor:
    """Numbers in host memory with the few methods that the binding asks of a tensor."""

    def __init__(self, shape, code, values=None, stride=None, dtype=""):
        self.dtype = dtype
        count = 1
        for n in shape:
            count *= n
        self.shape, self.memory = tuple(shape), array.array(code, values if values is not None else [0] * count)
        dense = [1] * len(shape)
        for i in reversed(range(len(shape) - 1)):
            dense[i] = dense[i + 1] * shape[i + 1]
        self._dense, self._stride = tuple(dense), tuple(stride or dense)

    def data_ptr(self):
        return self.memory.buffer_info()[0]

    def stride(self, dim=None):
        return self._stride if dim is None else self._stride[dim]

    def is_contiguous(self):
        return self._stride == self._dense

    def dim(self):
        return len(self.shape)

    def numel(self):
        return len(self.memory)

    def element_size(self):
        return self.memory.itemsize


def fp16(values):
    """Bits of IEEE half precision, rounded to nearest even."""
    return [struct.unpack("<H", struct.pack("<e", v))[0] for v in values]


def from_fp16(bits):
    return [struct.unpack("<e", struct.pack("<H", b))[0] for b in bits]


class FakeDriver:
    """libfakecuda, a driver that executes nothing and counts: its controls that return no struct."""

    def __init__(self):
        self.path = os.environ["GDN_FAKE_CUDA_PATH"]
        library = ctypes.CDLL(self.path)
        kinds = {
            "reset": (None,),
            "make_current": (None, ctypes.c_int),
            "num_launches": (ctypes.c_int,),
            "calls": (ctypes.c_int, ctypes.c_char_p),
        }
        names = fake_control_names()
        table = (ctypes.c_void_p * len(names)).in_dll(library, "fake_controls")
        for i, name in enumerate(names):
            if name in kinds:
                setattr(self, name, ctypes.CFUNCTYPE(*kinds[name])(table[i]))
