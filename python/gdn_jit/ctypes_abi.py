"""ctypes_abi.py - abi.py as ctypes: one Structure a struct, one prototype a function. Knows no shared library and no
tensor.

Every pointer to a struct that callers fill is a pointer type of its own; handles, callbacks' user data and raw memory
are void pointers; a device address is an integer.
"""

import ctypes
import functools
import re

from . import abi

SCALARS = {
    "void": None,
    "char": ctypes.c_char,
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "int8_t": ctypes.c_int8,
    "uint8_t": ctypes.c_uint8,
    "int16_t": ctypes.c_int16,
    "uint16_t": ctypes.c_uint16,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "bool": ctypes.c_bool,
}
STRUCTS = {}
CALLBACKS = {}
INTEGERS = {}  # struct -> {member: ctypes type} of its members that are integers, enums and addresses among them


def type_of(text):
    """ctypes type of 'const gdn_target *', 'char[64]', 'gdn_devptr', ..."""
    array = re.fullmatch(r"(.*?)((?:\[\d+\])+)", text)
    if array:
        kind = type_of(array.group(1))
        for size in reversed(re.findall(r"\d+", array.group(2))):
            kind = kind * int(size)
        return kind
    name = " ".join(w for w in text.split() if w not in ("const", "struct", "*"))
    depth = text.count("*")
    if name in abi.HANDLES:
        name, depth = "void", depth + abi.HANDLES[name].count("*")
    name = abi.ALIASES.get(name, name)
    if name in abi.ENUMS:
        name = "int"
    if not depth:
        return CALLBACKS.get(name) or STRUCTS.get(name) or SCALARS[name]
    kind = {"char": ctypes.c_char_p, "void": ctypes.c_void_p}.get(name)
    if kind is None:
        kind = ctypes.POINTER(STRUCTS.get(name) or SCALARS[name])
    for _ in range(depth - 1):
        kind = ctypes.POINTER(kind)
    return kind


def function_type(form):
    return ctypes.CFUNCTYPE(result_of(form), *(argument_of(a) for a in form["args"]))


def result_of(form):
    return type_of(form["returns"])


def argument_of(arg):
    return function_type(arg) if isinstance(arg, dict) else type_of(arg)


for _name in abi.STRUCTS:
    STRUCTS[_name] = type(_name, (ctypes.Structure,), {})
for _name, _form in abi.CALLBACKS.items():
    CALLBACKS[_name] = function_type(_form)
for _name, _members in abi.STRUCTS.items():
    STRUCTS[_name]._fields_ = [(member, type_of(kind)) for member, kind in _members]
_integers = {kind for word, kind in SCALARS.items() if word.startswith(("int", "uint", "size_t"))}
for _name, _struct in STRUCTS.items():
    INTEGERS[_name] = {member: kind for member, kind in _struct._fields_ if kind in _integers}


@functools.lru_cache(maxsize=None)
def initial(name):
    """Bytes of new()."""
    struct = STRUCTS[name]()
    for (member, _), value in zip(abi.STRUCTS[name], abi.INITS.get(name, ())):
        if value is not None:
            setattr(struct, member, ctypes.sizeof(struct) if value == "sizeof" else value)
    return bytes(struct)


def new(name):
    """A struct as its _INIT macro makes it; zeroed where it has none."""
    return STRUCTS[name].from_buffer_copy(initial(name))
