#!/usr/bin/env python3
"""make_abi.py - writes python/gdn_jit/abi.py from the public header.

Owns the reading of include/gdn_jit/*.h: a C header of one style (typedef'd enums, structs and function types, _INIT
macros, GDN_API functions), read by regular expressions, so that it needs nothing but Python. What it does not
understand is an error, never left out. Knows nothing of ctypes: types stay the header's words.

    make_abi.py             rewrites abi.py
    make_abi.py --check     exit 1 when abi.py is not what the header says (CI runs this)
"""

import pathlib
import pprint
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = HERE.parent / "include" / "gdn_jit"
OUT = HERE / "gdn_jit" / "abi.py"


class Unreadable(Exception):
    pass


def strip(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", " ", text)
    return text.replace("\\\n", " ")


def words(text):
    """One space between words, '*' a word of its own: 'const char * const *'."""
    return " ".join(text.replace("*", " * ").split())


def split(text):
    """Splits at commas outside brackets."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += c in "({["
        depth -= c in ")}]"
        if c == "," and not depth:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return [*parts, part.strip()] if part.strip() else parts


def number(text, names):
    text = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text)
    if not re.fullmatch(r"[\w\s+*/|<>()-]+", text):
        raise Unreadable(f"no integer expression: {text!r}")
    return int(eval(text, {"__builtins__": {}}, dict(names)))  # constants of our own header, and nothing else


def read_enum(body, names):
    values, last = {}, -1
    for item in split(body):
        name, _, value = (s.strip() for s in item.partition("="))
        last = number(value, names) if value else last + 1
        values[name] = names[name] = last
    return values


def read_member(line, names):
    """'const char *a, *b[2]' -> [(name, type)], type with its '*' and '[n]'."""
    first, *others = split(line)
    match = re.fullmatch(r"((?:const |struct |unsigned |signed )*\w+)((?:\s|\*|const\b)*)(\w+)((?:\[[^]]*\])*)", first)
    if not match:
        raise Unreadable(f"member {line!r}")
    base = match.group(1)
    found = []
    for declarator in [first[len(base) :], *others]:
        m = re.fullmatch(r"((?:\s|\*|const\b)*)(\w+)((?:\[[^]]*\])*)", declarator.strip())
        if not m:
            raise Unreadable(f"member {line!r}")
        dims = "".join(f"[{number(d, names)}]" for d in re.findall(r"\[([^]]*)\]", m.group(3)))
        found.append((m.group(2), words(base + " " + m.group(1)) + dims))
    return found


def read_parameters(text):
    """[(name, type)] of a parameter list; None for one without a name."""
    if words(text) in ("void", ""):
        return []
    found = []
    for arg in split(text):
        pointer = re.fullmatch(r"(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)", arg, re.S)
        if pointer:
            found.append((pointer.group(2), {"returns": words(pointer.group(1)), "args": read_args(pointer.group(3))}))
            continue
        m = re.fullmatch(r"(.*?[\s*])(\w+)", arg, re.S)
        found.append((m.group(2), words(m.group(1))) if m else (None, words(arg)))
    return found


def read_args(text):
    return [kind for _, kind in read_parameters(text)]


def read_init(text, names):
    """'{ sizeof(x), GDN_BF16, { 0 }, NULL, 0.0f }' -> values; 'sizeof' is kept, nested braces must be zero."""
    values = []
    for item in split(text.strip()[1:-1]):
        item = re.sub(r"^(\.\w+\s*=)?\s*(\(\w+\)\s*)?", "", item)  # a designator, a cast
        if item.startswith("sizeof"):
            values.append("sizeof")
        elif item.startswith("{"):
            if re.sub(r"[\s,0{}]", "", item):
                raise Unreadable(f"a nested initializer that is not zero: {item}")
            values.append(None)
        elif item == "NULL":
            values.append(None)
        elif re.fullmatch(r"-?[\d.]+f?", item) and "." in item:
            values.append(float(item.rstrip("f")))
        else:
            values.append(number(item, names))
    return values


def read_header(text):
    names = {"UINT64_MAX": 2**64 - 1, "INT64_MAX": 2**63 - 1, "UINT32_MAX": 2**32 - 1, "INT32_MAX": 2**31 - 1}
    abi = dict(
        ENUMS={}, CONSTANTS={}, STRUCTS={}, INITS={}, CALLBACKS={}, FUNCTIONS={}, HANDLES={}, ALIASES={}, NAMES={}
    )
    macros = dict(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)_INIT\b[ \t]*(\{.*?\})[ \t]*$", text, re.M))
    for name, value in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(GDN_\w+)[ \t]+(\S.*)$", text, re.M):
        if name != "GDN_API" and not name.endswith("_INIT"):
            abi["CONSTANTS"][name] = names[name] = number(value.strip(), names)
    text = re.sub(r"^[ \t]*#.*$", "", text, flags=re.M)
    text = text.replace('extern "C" {', "")
    seen = 0
    for m in re.finditer(
        r"typedef\s+enum\s+(\w+)\s*\{(.*?)\}\s*(\w+)\s*;|(?<!typedef )\benum\s*\{(.*?)\}\s*;", text, re.S
    ):
        seen += 1
        if m.group(3):
            abi["ENUMS"][m.group(3)] = read_enum(m.group(2), names)
        else:
            abi["CONSTANTS"].update(read_enum(m.group(4), names))
    if seen != len(re.findall(r"\benum\b", text)):
        raise Unreadable("an enum of a form that is not known")
    for m in re.finditer(r"typedef\s+struct\s+(\w+)\s*\{(.*?)\}\s*(\w+)\s*;", text, re.S):
        members = [x for line in m.group(2).split(";") if line.strip() for x in read_member(words_keep(line), names)]
        abi["STRUCTS"][m.group(3)] = members
    if len(abi["STRUCTS"]) != len(re.findall(r"\bstruct\s+\w*\s*\{", text)):
        raise Unreadable("a struct of a form that is not known")
    for m in re.finditer(r"typedef\s+struct\s+\w+\s*(\*?)\s*(\w+)\s*;", text):
        abi["HANDLES"][m.group(2)] = "void *" if m.group(1) else "void"
    for m in re.finditer(r"typedef\s+(\w+)\s+(\w+)\s*;", text):
        abi["ALIASES"][m.group(2)] = m.group(1)
    for m in re.finditer(r"typedef\s+([\w\s*]+?)\(\s*\*\s*(\w+)\s*\)\s*\((.*?)\)\s*;", text, re.S):
        abi["CALLBACKS"][m.group(2)] = {"returns": words(m.group(1)), "args": read_args(m.group(3))}
    for m in re.finditer(r"GDN_API\s+([\w\s*]+?)\b(gdn_\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*;", text, re.S):
        abi["FUNCTIONS"][m.group(2)] = {"returns": words(m.group(1)), "args": read_args(m.group(3))}
        abi["NAMES"][m.group(2)] = [name for name, _ in read_parameters(m.group(3))]
    if len(abi["FUNCTIONS"]) != len(re.findall(r"\bGDN_API\b", text)):
        raise Unreadable("a GDN_API declaration of a form that is not known")
    for name, init in macros.items():
        struct = name.lower()
        if struct not in abi["STRUCTS"]:
            raise Unreadable(f"{name}_INIT belongs to no struct")
        abi["INITS"][struct] = read_init(init, names)
    return abi


def words_keep(line):
    return " ".join(line.split())


def render(abi):
    lines = [
        '"""abi.py - the public header as data: names, numbers and types, in the header\'s own words.',
        "",
        "Written by python/make_abi.py from include/gdn_jit/: do not edit, run it again.",
        '"""',
    ]
    for name in ("CONSTANTS", "ENUMS", "ALIASES", "HANDLES", "CALLBACKS", "STRUCTS", "INITS", "FUNCTIONS"):
        lines.append(f"{name} = " + pprint.pformat(abi[name], width=100, sort_dicts=False, compact=True))
    return "\n".join(lines) + "\n"


def read():
    return read_header("\n".join(strip((HEADERS / name).read_text()) for name in ("version.h", "gdn_jit.h")))


def data(text):
    """Names of the module and their values: another Python may break the lines elsewhere."""
    names = {}
    exec(text, names)
    return {name: value for name, value in names.items() if name.isupper()}


def main():
    text = render(read())
    if "--check" not in sys.argv[1:]:
        OUT.write_text(text)
        return 0
    if data(OUT.read_text()) == data(text):
        print("abi.py says what the header says")
        return 0
    print(
        "python/gdn_jit/abi.py is not what include/gdn_jit/gdn_jit.h says: run python3 python/make_abi.py and commit it"
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
