"""library.py - finds and opens libgdnjit, and turns a status into an exception. One library a process.

Looked for in this order: GDN_JIT_LIBRARY (a file), the package's own folders (an editable installation has one
beside the source), the build folders of a source tree around it (build, build/release), then the loader
(libgdnjit.so.<major>.<minor>, from 1.0 on libgdnjit.so.<major>).
"""

import ctypes
import os
import pathlib
import sys
import threading

from . import abi, ctypes_abi

_major, _minor = abi.CONSTANTS["GDN_VERSION_MAJOR"], abi.CONSTANTS["GDN_VERSION_MINOR"]
SONAME = f"libgdnjit.so.{_major}" if _major else f"libgdnjit.so.0.{_minor}"
_lock = threading.Lock()
_library = None


class GdnError(RuntimeError):
    """A call that failed: status (the number), name ("GDN_E_INVALID") and sentence (field, value, remedy)."""

    def __init__(self, status, name, sentence):
        super().__init__(f"{name}: {sentence}")
        self.status, self.name, self.sentence = status, name, sentence

    def __reduce__(self):
        """An exception is made anew from its args, of which there is one here: pickle and copy ask for this instead."""
        return type(self), (self.status, self.name, self.sentence), self.__dict__


def candidates():
    """Files to try, then the name that the loader is asked for."""
    named = os.environ.get("GDN_JIT_LIBRARY")
    if named:
        return [named]
    tree = pathlib.Path(__file__).resolve().parents[2]
    own = [pathlib.Path(folder) for folder in sys.modules[__package__].__path__]
    folders = [*own, tree / "build", tree / "build" / "release"]
    return [str(f / SONAME) for f in folders if (f / SONAME).is_file()] + [SONAME]


def _open():
    problems = []
    for name in candidates():
        try:
            return ctypes.CDLL(name)
        except OSError as e:
            problems.append(str(e))
    raise OSError("libgdnjit was not found: " + "; ".join(problems) + "; name the file in GDN_JIT_LIBRARY")


def _check_version(lib):
    """Before any prototype is set: another version may lack a function."""
    if not hasattr(lib, "gdn_version"):
        raise OSError(f"{lib._name} has no gdn_version(): it is no libgdnjit; name the file in GDN_JIT_LIBRARY")
    found = lib.gdn_version()
    major, minor = abi.CONSTANTS["GDN_VERSION_MAJOR"], abi.CONSTANTS["GDN_VERSION_MINOR"]
    if found // 100 != major * 100 + minor:
        raise OSError(
            f"{lib._name} is version {found // 10000}.{found // 100 % 100}, this package is written for "
            f"{major}.{minor}: install the two together"
        )


def _raise_on_failure(lib):
    def check(status, _function, _args):
        if status:
            sentence = lib.gdn_last_error().decode(errors="replace")  # may quote a path that is no UTF-8
            raise GdnError(status, lib.gdn_status_name(status).decode(), sentence)
        return status

    return check


def load():
    """The library with every prototype set; functions that return a gdn_status raise GdnError."""
    global _library
    with _lock:
        if _library is None:
            lib = _open()
            _check_version(lib)
            for name, form in abi.FUNCTIONS.items():
                function = getattr(lib, name)
                function.restype = ctypes_abi.result_of(form)
                function.argtypes = [ctypes_abi.argument_of(a) for a in form["args"]]
                if form["returns"] == "gdn_status":
                    function.errcheck = _raise_on_failure(lib)
            _library = lib
        return _library
