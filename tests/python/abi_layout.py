"""abi_layout.py - the binding's structs, numbers and initial values against what a C compiler makes of the public
header.

abi_layout.py CC INCLUDE_FOLDER exit 1 and a line for each difference
abi_layout.py --c CC INCLUDE_FOLDER     what C says, a line each
"""

import ctypes
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from gdn_jit import abi, ctypes_abi  # noqa: E402


def c_program():
    lines = [
        "#include <stddef.h>",
        "#include <stdio.h>",
        "#include <gdn_jit/gdn_jit.h>",
        "static void bytes(const char *name, const void *p, size_t n)",
        "{",
        '    printf("%s ", name);',
        '    for (size_t i = 0; i < n; ++i) printf("%02x", ((const unsigned char *)p)[i]);',
        "    putchar('\\n');",
        "}",
        "int main(void)",
        "{",
    ]
    for values in (abi.CONSTANTS, *abi.ENUMS.values()):
        lines += [f'    printf("{name} %lld\\n", (long long){name});' for name in values]
    for struct, members in abi.STRUCTS.items():
        lines.append(f'    printf("sizeof({struct}) %zu\\n", sizeof({struct}));')
        for member, _ in members:
            lines.append(
                f'    printf("{struct}.{member} %zu+%zu\\n", offsetof({struct}, {member}), '
                f"sizeof((({struct} *)0)->{member}));"
            )
    for struct in abi.INITS:
        lines.append(
            f'    {{ static const {struct} x = {struct.upper()}_INIT; bytes("init({struct})", &x, sizeof x); }}'
        )
    return "\n".join([*lines, "    return 0;", "}", ""])


def python_says():
    said = {}
    for values in (abi.CONSTANTS, *abi.ENUMS.values()):
        said.update({name: str(value) for name, value in values.items()})
    for struct, members in abi.STRUCTS.items():
        kind = ctypes_abi.STRUCTS[struct]
        said[f"sizeof({struct})"] = str(ctypes.sizeof(kind))
        for member, _ in members:
            field = getattr(kind, member)
            said[f"{struct}.{member}"] = f"{field.offset}+{field.size}"
    for struct in abi.INITS:
        said[f"init({struct})"] = bytes(ctypes_abi.new(struct)).hex()
    return said


def c_says(compiler, include):
    with tempfile.TemporaryDirectory() as room:
        source, program = pathlib.Path(room) / "layout.c", pathlib.Path(room) / "layout"
        source.write_text(c_program())
        subprocess.run([compiler, "-std=c11", "-I", include, "-o", str(program), str(source)], check=True)
        out = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return dict(line.split(" ", 1) for line in out.splitlines())


def differences(compiler, include):
    c, python = c_says(compiler, include), python_says()
    return [
        f"{name}: C says {c.get(name)}, Python says {python.get(name)}"
        for name in sorted(c.keys() | python.keys())
        if c.get(name) != python.get(name)
    ]


def main():
    if sys.argv[1] == "--c":
        print("\n".join(f"{name} {value}" for name, value in c_says(*sys.argv[2:4]).items()))
        return 0
    found = differences(*sys.argv[1:3])
    print("\n".join(found) or f"{len(python_says())} sizes, offsets, numbers and initial values agree")
    if found:
        print("run python3 python/make_abi.py and commit what it writes")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
