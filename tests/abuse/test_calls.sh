#!/usr/bin/env bash
# No call to the file system slips past the shim: what libgdnjit.a takes from libc, as far as it can reach a file, is what
# the linker wraps for the abuse tests. A call that the library begins to make fails here until the shim knows it.
#
#   test_calls.sh LIBRARY.a WRAPPED...
set -euo pipefail
library=$1
shift
# Everything of POSIX and Linux that takes a path or makes, moves, reads, writes or judges a file; and the clock.
reach='access|chdir|chmod|chown|close|closedir|close_range|copy_file_range|creat|dup[23]?|euidaccess|faccessat|fallocate|fchdir'
reach+='|fchmod|fchmodat|fchown|fchownat|fcntl|fdatasync|fdopendir|fdopen|fgetxattr|flock|fopen|fread|freopen|fsetxattr|fstat'
reach+='|fstatat|fstatfs|fstatvfs|fsync|ftruncate|fts_open|ftw|futimens|fwrite|getdents64|glob|ioctl|lchown|link|linkat|lockf|lseek'
reach+='|lstat|mkdir|mkdirat|mkdtemp|mkfifo|mknod|mkostemp|mkstemp|mmap|msync|nftw|open|open_by_handle_at|openat|openat2'
reach+='|opendir|posix_fallocate|posix_fadvise|pread|preadv|pwrite|pwritev|read|readdir|readlink|readlinkat|readv|realpath'
reach+='|remove|rename|renameat|renameat2|rewinddir|rmdir|scandir|sendfile|splice|stat|statfs|statvfs|statx|symlink|symlinkat|sync'
reach+='|sync_file_range|syncfs|syscall|telldir|tmpfile|truncate|unlink|unlinkat|utime|utimensat|utimes|write|writev|time'
reach+='|clock_gettime|gettimeofday'
# closedir frees what fdopendir took; nothing of ours looks at what it returns.
exempt='closedir'

called=$(nm -u "$library" 2>/dev/null | awk 'NF == 2 && $1 == "U" { print $2 }' | sed -E 's/64$//; s/@.*//' |
    grep -Ex -- "$reach" | grep -Evx -- "$exempt" | sort -u)
wrapped=$(printf '%s\n' "$@" | sort -u)
[ "$(wc -l <<<"$called")" -ge 15 ] || { echo "only these calls were found in $library, which cannot be right: $called"; exit 1; }
missing=$(comm -23 <(echo "$called") <(echo "$wrapped"))
[ -z "$missing" ] || { echo "the library calls what tests/abuse/fs_shim.c does not stand before:" $missing; exit 1; }
echo "$(wc -l <<<"$called") calls, each behind the shim:" $called
