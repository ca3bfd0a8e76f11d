# Prints "file:line name lines" of each function that is longer than `limit` lines, its signature included. A function
# starts at a line in column 0 that has a '(' and ends at a '}' in column 0; initialisers and types are told apart by '='
# and by their words.
FNR == 1 { start = 0; body = 0 }
/^[A-Za-z_]/ && !/^(struct|union|enum|typedef)[^(]*\{/ { start = FNR; signature = $0; body = 0 }
start && !body && FNR > start { signature = signature " " $0 }
start && !body && /;[ \t]*$/ { start = 0 }
start && !body && /\{/ { body = signature ~ /\(/ && signature !~ /=[ \t]*\{/; if (!body) start = 0 }
start && body && /^\}/ {
    lines = FNR - start + 1
    if (lines > limit) {
        name = signature
        sub(/\(.*/, "", name)
        sub(/[ \t]*$/, "", name)
        sub(/.*[ \t*]/, "", name)
        printf "%s:%d %s %d\n", FILENAME, start, name, lines
    }
    start = 0
}
