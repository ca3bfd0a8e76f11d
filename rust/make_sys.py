#!/usr/bin/env python3
"""make_sys.py - writes rust/src/sys.rs from the public header, which python/make_abi.py reads.

Owns how the header's words look in Rust. A type that it does not know is an error, never left out.

    make_sys.py             rewrites src/sys.rs
    make_sys.py --check     exit 1 when src/sys.rs is not what the header says (CI runs this)
    make_sys.py --layout    prints a program that tells sizes, offsets, numbers and initial values, as
                            tests/python/abi_layout.py has them of C
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))
sys.dont_write_bytecode = True
import make_abi  # noqa: E402

OUT = HERE / "src" / "sys.rs"
PLAIN = {
    "void": "c_void",
    "char": "c_char",
    "int": "c_int",
    "float": "f32",
    "double": "f64",
    "size_t": "usize",
    "int32_t": "i32",
    "int64_t": "i64",
    "uint32_t": "u32",
    "uint64_t": "u64",
}


class Types:
    """The header's types in Rust."""

    def __init__(self, abi):
        self.own = {*abi["ENUMS"], *abi["ALIASES"], *abi["HANDLES"], *abi["CALLBACKS"], *abi["STRUCTS"]}

    def name(self, word):
        if word in self.own:
            return word
        if word not in PLAIN:
            raise make_abi.Unreadable(f"type {word!r}")
        return PLAIN[word]

    def of(self, text):
        """'const char * const *' -> '*const *const c_char'; 'char[64]' -> '[c_char; 64]'."""
        if isinstance(text, dict):
            return self.function(text)
        dims = re.findall(r"\[(\d+)\]", text)
        found, constant = None, False
        for word in re.sub(r"\[\d+\]", "", text).split():
            if word == "const":
                constant = True
            elif word == "*":
                found, constant = ("*const " if constant else "*mut ") + found, False
            elif word != "struct":
                found = self.name(word)
        for dim in reversed(dims):
            found = f"[{found}; {dim}]"
        return found

    @staticmethod
    def parameter(name):
        return {"fn": "function"}.get(name, name)

    def returns(self, text):
        return "" if text == "void" else f" -> {self.of(text)}"

    def function(self, form):
        args = ", ".join(self.of(a) for a in form["args"])
        return f'Option<unsafe extern "C" fn({args}){self.returns(form["returns"])}>'


def constant(name, value):
    """Flags and versions are unsigned; levels of the log are ints, as the callback has them."""
    return f"pub const {name}: {'c_int' if name.startswith('GDN_LOG_') else 'u32'} = {value};"


def initial(abi, struct):
    """Assignments of what is not zero in the _INIT macro."""
    lines = []
    for (member, kind), value in zip(abi["STRUCTS"][struct], abi["INITS"][struct]):
        if value == "sizeof":
            lines.append(f"x.{member} = std::mem::size_of::<{struct}>();")
        elif value:
            names = [name for name, number in abi["ENUMS"].get(kind, {}).items() if number == value]
            lines.append(f"x.{member} = {names[0] if names else value};")
    return lines


def render_struct(abi, types, struct):
    lines = ["", "#[repr(C)]", "#[derive(Clone, Copy, Debug)]", f"pub struct {struct} {{"]
    lines += [f"    pub {member}: {types.of(kind)}," for member, kind in abi["STRUCTS"][struct]]
    lines += ["}"]
    plain = all("*" not in kind for _, kind in abi["STRUCTS"][struct]) and struct not in abi["INITS"]
    if struct in abi["INITS"]:
        lines += ["", f"/// {struct.upper()}_INIT.", f"impl Default for {struct} {{", "    fn default() -> Self {"]
        lines += ["        // SAFETY: numbers, arrays of them, pointers and optional functions: all may be zero."]
        lines += [f"        let mut x: {struct} = unsafe {{ std::mem::zeroed() }};"]
        lines += [f"        {line}" for line in initial(abi, struct)]
        lines += ["        x", "    }", "}"]
    elif plain:
        lines[3:3] = ["#[derive(Default)]"]
    return lines


def render(abi):
    types = Types(abi)
    lines = [
        "//! The public header, `gdn_jit.h`, in Rust: its names, numbers and types. What they mean it says itself.",
        "//!",
        "//! What a callback is given may be an older library's, and shorter: look at `struct_size` by the pointer",
        "//! before making a reference of it.",
        "//!",
        "//! Written by rust/make_sys.py: do not edit, run it again.",
        "",
        "use std::os::raw::{c_char, c_int, c_uint, c_void};",
        "",
    ]
    lines += [constant(name, value) for name, value in abi["CONSTANTS"].items()]
    for enum, values in abi["ENUMS"].items():
        lines += ["", f"pub type {enum} = c_uint;"]
        lines += [f"pub const {name}: {enum} = {value};" for name, value in values.items()]
    lines += [""]
    lines += [f"pub type {name} = {types.of(kind)};" for name, kind in abi["ALIASES"].items()]
    for name, kind in abi["HANDLES"].items():
        if kind == "void":
            lines += ["", "#[repr(C)]", "#[derive(Debug)]", f"pub struct {name} {{", "    opaque: [u8; 0],", "}"]
        else:
            lines += ["", f"pub type {name} = *mut c_void;"]
    lines += [""]
    lines += [f"pub type {name} = {types.function(form)};" for name, form in abi["CALLBACKS"].items()]
    for struct in abi["STRUCTS"]:
        lines += render_struct(abi, types, struct)
    lines += ["", 'extern "C" {']
    for name, form in abi["FUNCTIONS"].items():
        given = zip(abi["NAMES"][name], form["args"])
        args = ", ".join(f"{types.parameter(called)}: {types.of(kind)}" for called, kind in given)
        lines.append(f"    pub fn {name}({args}){types.returns(form['returns'])};")
    return "\n".join([*lines, "}", ""])


def render_layout(abi):
    lines = [
        "use gdn_jit::sys::*;",
        "use std::mem::{size_of, MaybeUninit};",
        "use std::ptr::addr_of;",
        "",
        "fn size_of_pointed<T>(_: *const T) -> usize {",
        "    size_of::<T>()",
        "}",
        "",
        "fn bytes<T>(name: &str, x: &T) {",
        "    let p = x as *const T as *const u8;",
        '    let hex: String = (0..size_of::<T>()).map(|i| format!("{:02x}", unsafe { p.add(i).read() })).collect();',
        '    println!("{name} {hex}");',
        "}",
        "",
        "fn main() {",
    ]
    for values in (abi["CONSTANTS"], *abi["ENUMS"].values()):
        lines += [f'    println!("{name} {{}}", {name});' for name in values]
    for struct, members in abi["STRUCTS"].items():
        lines.append(f'    println!("sizeof({struct}) {{}}", size_of::<{struct}>());')
        for member, _ in members:
            lines += [
                "    unsafe {",
                f"        let x = MaybeUninit::<{struct}>::uninit();",
                f"        let at = addr_of!((*x.as_ptr()).{member});",
                "        let offset = at as usize - x.as_ptr() as usize;",
                f'        println!("{struct}.{member} {{offset}}+{{}}", size_of_pointed(at));',
                "    }",
            ]
    for struct in abi["INITS"]:
        lines.append(f'    bytes("init({struct})", &{struct}::default());')
    return "\n".join([*lines, "}", ""])


def main():
    abi = make_abi.read()
    if "--layout" in sys.argv[1:]:
        print(render_layout(abi), end="")
        return 0
    text = render(abi)
    if "--check" not in sys.argv[1:]:
        OUT.write_text(text)
        return 0
    if OUT.read_text() == text:
        print("sys.rs says what the header says")
        return 0
    print("rust/src/sys.rs is not what include/gdn_jit/gdn_jit.h says: run python3 rust/make_sys.py and commit it")
    return 1


if __name__ == "__main__":
    sys.exit(main())
