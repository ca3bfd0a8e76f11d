# Warnings, sanitizers and floating-point rules of everything that is compiled here.
include_guard()

set(GDN_WARNINGS -Wall -Wextra -Wshadow -Wconversion)
set(GDN_C_WARNINGS ${GDN_WARNINGS} -Wstrict-prototypes -Wmissing-prototypes)
if(GDN_WERROR)
    list(APPEND GDN_WARNINGS -Werror)
    list(APPEND GDN_C_WARNINGS -Werror)
endif()

# -std=c11 alone hides POSIX and GNU declarations. 1, as -D_GNU_SOURCE is, so that both may stand: a parent project may have it.
add_compile_definitions($<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE=1>)

# a * b + c is two roundings on every machine: the host reference gives the same bits on all of them.
add_compile_options(-ffp-contract=off)

if(GDN_FUZZ AND NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "GDN_FUZZ needs clang, which has libFuzzer: configure with CC=clang, or use the preset `fuzz`.")
endif()
if(GDN_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
    add_link_options(-fsanitize=fuzzer-no-link)
endif()
if(GDN_SANITIZE)
    set(sanitize -fsanitize=${GDN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_compile_options(${sanitize})
    add_link_options(${sanitize})
endif()
