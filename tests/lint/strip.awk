# C source with comments removed and the contents of literals emptied, line for line: what a search for calls should
# see. #include lines keep their file names.
{
    if (!in_comment && $0 ~ /^[ \t]*#[ \t]*include/) { print; next }
    out = ""
    n = length($0)
    i = 1
    while (i <= n) {
        c = substr($0, i, 1)
        two = substr($0, i, 2)
        if (in_comment) {
            if (two == "*/") { in_comment = 0; i += 2; out = out " " } else i++
        } else if (two == "/*") {
            in_comment = 1
            i += 2
        } else if (two == "//") {
            break
        } else if (c == "\"" || c == "'") {
            for (j = i + 1; j <= n && substr($0, j, 1) != c; j++)
                if (substr($0, j, 1) == "\\") j++
            out = out c c
            i = j + 1
        } else {
            out = out c
            i++
        }
    }
    print out
}
