"""nvrtc.py - the NVRTC of a pip environment, whose folder the loader does not know. Knows NVIDIA's wheels and the
library's own order: libnvrtc.so.13, then libnvrtc.so.12 of 12.8 or newer (src/runtime/nvrtc.c).
"""

import ctypes
import os
import re
import sys

NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")  # as the library asks the loader for them, in its order
WHEELS = ("nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
OLDEST = (12, 8)


def in_wheels(folders):
    """The first file of WHEELS that is in one of the folders and new enough; None where none is."""
    for wheel in WHEELS:
        for folder in folders:
            file = os.path.join(folder, wheel)
            if os.path.isfile(file) and is_new_enough(file):
                return file
    return None


def is_new_enough(file):
    """By the names of the builtins beside it, so that an old one is not opened; true where none is there."""
    names = os.listdir(os.path.dirname(file))
    found = [re.fullmatch(r"libnvrtc-builtins\.so\.(\d+)\.(\d+)", name) for name in names]
    versions = [tuple(map(int, match.groups())) for match in found if match]
    return not versions or max(versions) >= OLDEST


def loader_has_one():
    """Whether what the library would open by name is new enough: it takes the first that there is, old or not."""
    for name in NAMES:
        try:
            lib = ctypes.CDLL(name)
        except OSError:
            continue
        major, minor, version = ctypes.c_int(), ctypes.c_int(), getattr(lib, "nvrtcVersion", None)
        if version is None or version(ctypes.byref(major), ctypes.byref(minor)):
            return False
        return (major.value, minor.value) >= OLDEST
    return False


def path_for(reads_environment):
    """nvrtc_path of a context that is given none: a wheel's NVRTC where the library would find none; else None. The
    loader is asked last, since what it finds stays loaded.
    """
    if reads_environment and os.environ.get("GDN_JIT_NVRTC"):
        return None
    found = in_wheels([folder for folder in sys.path if isinstance(folder, str)])
    return None if found is None or loader_has_one() else found
