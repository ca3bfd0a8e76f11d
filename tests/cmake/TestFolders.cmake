# One function per kind of test folder.
include_guard()

# The fake driver answers as libnvidia-ml too, opened by that name.
function(gdn_also_nvml library)
    add_custom_command(TARGET ${library} POST_BUILD VERBATIM
                       COMMAND ${CMAKE_COMMAND} -E create_symlink "$<TARGET_FILE_NAME:${library}>"
                               "$<TARGET_FILE_DIR:${library}>/libnvidia-ml.so.1")
endfunction()

# What every test program sees: the library's internals, the support code, the fake driver.
function(gdn_test_program name)
    add_executable(${name} ${ARGN})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_include_directories(${name} SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR})
    target_link_libraries(${name} PRIVATE gdn_support)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:C>:${GDN_C_WARNINGS}>
                                           $<$<COMPILE_LANGUAGE:CXX>:${GDN_WARNINGS}>)
    target_compile_definitions(${name} PRIVATE GDN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    if(TARGET fakecuda)
        target_compile_definitions(${name} PRIVATE GDN_FAKE_CUDA_PATH="$<TARGET_FILE:fakecuda>")
        add_dependencies(${name} fakecuda)
    endif()
    if(TARGET fakenvrtc)
        target_compile_definitions(${name} PRIVATE GDN_FAKE_NVRTC_PATH="$<TARGET_FILE:fakenvrtc>"
                                                   GDN_FAKE_NVRTC_NEXT_PATH="$<TARGET_FILE:fakenvrtc_next>")
        add_dependencies(${name} fakenvrtc fakenvrtc_next)
    endif()
endfunction()

# A test about threads has the label `concurrency` as well: those are what ThreadSanitizer runs, and all that is built for it.
function(gdn_is_concurrent out label name)
    set(${out} FALSE PARENT_SCOPE)
    if("${label} ${name}" MATCHES "concurr|stress|race|thread|registry|onecall|programs|compile")
        set(${out} TRUE PARENT_SCOPE)
    endif()
endfunction()

function(gdn_is_left_out out label name)
    gdn_is_concurrent(concurrent "${label}" ${name})
    set(${out} FALSE PARENT_SCOPE)
    if(GDN_SANITIZE MATCHES "thread" AND NOT concurrent)
        set(${out} TRUE PARENT_SCOPE)
    endif()
endfunction()

# Where the tests' own caches lie. Builds that name one folder compile what their tests share once: entries are found by their
# source and compiler, whoever made them.
set(GDN_TEST_CACHE_HOME "" CACHE PATH "XDG_CACHE_HOME of the tests; empty: in the build folder")

# Nothing that a test writes goes to the user's own cache. Without times of an earlier run ctest begins with what costs most.
function(gdn_register name label timeout)
    add_test(NAME ${name} COMMAND ${ARGN})
    gdn_is_concurrent(concurrent "${label}" ${name})
    if(concurrent)
        list(APPEND label concurrency)
    endif()
    set(cache_home ${CMAKE_CURRENT_BINARY_DIR}/cache-home)
    if(GDN_TEST_CACHE_HOME)
        set(cache_home ${GDN_TEST_CACHE_HOME})
    endif()
    set(sanitizers ${CMAKE_CURRENT_SOURCE_DIR}/sanitizers)
    set(environment "XDG_CACHE_HOME=${cache_home}"
                    "LSAN_OPTIONS=suppressions=${sanitizers}/lsan.supp:print_suppressions=0"
                    "TSAN_OPTIONS=suppressions=${sanitizers}/tsan.supp:halt_on_error=1"
                    "UBSAN_OPTIONS=print_stacktrace=1")
    set_tests_properties(${name} PROPERTIES LABELS "${label}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77
                                            ENVIRONMENT "${environment}")
    if(name MATCHES "matrix|strict|tune|valgrind|fs_faults|execute|bad_input|test_plan$|driver_paths|conv_host|warm|show|lint")
        set_tests_properties(${name} PROPERTIES COST 20) # the longest
    endif()
endfunction()

# Criterion; with ThreadSanitizer, which Criterion cannot run under, the little that stands in for it.
function(gdn_test_framework)
    add_library(test_framework INTERFACE)
    if(GDN_SANITIZE MATCHES "thread")
        add_library(mini_criterion STATIC sanitizers/runner.c)
        target_include_directories(mini_criterion PUBLIC sanitizers)
        target_compile_options(mini_criterion PRIVATE ${GDN_C_WARNINGS})
        target_link_libraries(mini_criterion PUBLIC m)
        target_link_libraries(test_framework INTERFACE mini_criterion)
        gdn_test_program(planted_faults sanitizers/planted_faults.c)
        target_link_libraries(planted_faults PRIVATE mini_criterion)
        gdn_register(tsan_sees_planted_races tsan 60 planted_faults)
        set_tests_properties(tsan_sees_planted_races PROPERTIES PASS_REGULAR_EXPRESSION "5 tests, 4 failed")
    else()
        target_link_libraries(test_framework INTERFACE PkgConfig::CRITERION)
    endif()
endfunction()

# Tests of the host's side of plans, and of the tool where it is to be complete or to choose: what they compile is nothing to
# them, and NVRTC would take most of their time. That it compiles what they ask for is shown by the matrix, by test_compile,
# test_dump, cli_test_warm and cli_test_show, and on the host GPU.
set(GDN_TESTS_OF_HOSTS test_plan test_onecall test_tune test_execute test_layer cli_test_strict cli_test_tune)

function(gdn_compiled_by_stand_in name)
    if(name IN_LIST GDN_TESTS_OF_HOSTS AND TARGET fakenvrtc)
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "GDN_JIT_NVRTC=$<TARGET_FILE:fakenvrtc>"
                                                              "XDG_CACHE_HOME=${CMAKE_CURRENT_BINARY_DIR}/cache-of-hosts")
    endif()
endfunction()

# <folder>/test_*.c: one Criterion executable each.
function(gdn_criterion_tests folder)
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/test_*.c)
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME_WE)
        gdn_is_left_out(left_out ${folder} ${name})
        if(left_out)
            continue()
        endif()
        gdn_test_program(${name} ${source})
        target_link_libraries(${name} PRIVATE test_framework)
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${folder})
        gdn_register(${name} ${folder} 600 ${name})
        gdn_compiled_by_stand_in(${name})
        if(folder STREQUAL "nvrtc") # compile times are held against a limit; the whole matrix takes long
            set_tests_properties(${name} PROPERTIES RUN_SERIAL ON TIMEOUT 3600)
        endif()
    endforeach()
endfunction()

# abuse/: tests and a soak over a file system that fails when told to. The calls that the shim stands before are read from its
# own table: one list, for the shim, for the linker and for test_calls.sh.
function(gdn_wrapped_calls out)
    set(calls open openat fcntl fsync syncfs stat fstat fstatat read pread write utimensat time clock_gettime)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS abuse/fs_calls.def)
    file(STRINGS abuse/fs_calls.def rows REGEX "^FS_CALL")
    foreach(row IN LISTS rows)
        string(REGEX REPLACE "^FS_CALL\\([^,]*, ([a-z]+),.*" "\\1" call "${row}")
        list(APPEND calls ${call})
    endforeach()
    set(${out} ${calls} PARENT_SCOPE)
endfunction()

function(gdn_abuse_program name)
    gdn_wrapped_calls(calls)
    list(TRANSFORM calls PREPEND "-Wl,--wrap=")
    gdn_test_program(${name} ${ARGN} abuse/fs_shim.c)
    target_link_options(${name} PRIVATE ${calls})
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/abuse)
endfunction()

# A third of the driver's failures once more under valgrind, where there is one, with the small runner: Criterion's own process
# would be watched too.
function(gdn_valgrind_test)
    find_program(VALGRIND valgrind)
    if(NOT VALGRIND OR GDN_SANITIZE)
        return()
    endif()
    gdn_abuse_program(test_driver_paths_plain abuse/test_driver_paths.c sanitizers/runner.c)
    target_include_directories(test_driver_paths_plain BEFORE PRIVATE sanitizers)
    gdn_register(valgrind_driver_paths abuse 900 ${VALGRIND} -q --error-exitcode=9 --leak-check=full
                 --errors-for-leak-kinds=definite,indirect --child-silent-after-fork=no
                 $<TARGET_FILE:test_driver_paths_plain>)
    set_property(TEST valgrind_driver_paths APPEND PROPERTY ENVIRONMENT "GDN_TEST_SLOW_MACHINE=1" "GDN_TEST_BRIEF=3")
endfunction()

function(gdn_abuse_tests)
    file(GLOB sources CONFIGURE_DEPENDS abuse/test_*.c)
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME_WE)
        gdn_is_left_out(left_out abuse ${name})
        if(left_out)
            continue()
        endif()
        gdn_abuse_program(${name} ${source})
        target_link_libraries(${name} PRIVATE test_framework)
        gdn_register(${name} abuse 1200 ${name})
    endforeach()
    execute_process(COMMAND test -w /dev/shm RESULT_VARIABLE not_writable)
    if(NOT GDN_SANITIZE AND not_writable EQUAL 0) # ten thousand small folders; AddressSanitizer's run is the one on a disk
        set_property(TEST test_fs_faults APPEND PROPERTY ENVIRONMENT "TMPDIR=/dev/shm")
    endif()
    gdn_valgrind_test()
    gdn_abuse_program(soak_cache abuse/soak_cache.c)
    gdn_register(soak_cache_few_rounds stress 300 soak_cache --rounds 12)
    if(NOT GDN_SANITIZE) # a sanitizer's library has calls of its own
        gdn_wrapped_calls(calls)
        gdn_register(abuse_calls_are_behind_the_shim abuse 60 bash ${CMAKE_CURRENT_SOURCE_DIR}/abuse/test_calls.sh
                     $<TARGET_FILE:gdnjit_static> ${calls})
    endif()
endfunction()

# What of the tool reads text that others wrote; for fuzz/fuzz_cli_*.c, without the libraries that the tool prints with.
function(gdn_cli_readers target)
    set(readers cli json mem record shapes text)
    list(TRANSFORM readers PREPEND ${PROJECT_SOURCE_DIR}/src/cli/)
    list(TRANSFORM readers APPEND .c)
    target_sources(${target} PRIVATE ${readers})
    target_include_directories(${target} SYSTEM PRIVATE ${CJSON_INCLUDE_DIR})
    target_link_libraries(${target} PRIVATE ${CJSON_LIBRARY})
endfunction()

# fuzz/fuzz_<name>.c with the corpus in fuzz/corpus/<name>/: replayed in every build; with GDN_FUZZ also fuzzed for a while.
function(gdn_fuzz_targets)
    file(GLOB sources CONFIGURE_DEPENDS fuzz/fuzz_*.c)
    foreach(source IN LISTS sources)
        get_filename_component(target ${source} NAME_WE)
        string(REGEX REPLACE "^fuzz_" "" name ${target})
        gdn_is_left_out(left_out fuzz ${target})
        if(left_out)
            continue()
        endif()
        set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name})
        if(GDN_FUZZ)
            gdn_test_program(${target} ${source})
            target_link_options(${target} PRIVATE -fsanitize=fuzzer)
            set(found ${CMAKE_CURRENT_BINARY_DIR}/fuzz/found/${name})
            file(MAKE_DIRECTORY ${found})
            gdn_register(${target} fuzz 600 ${target} -max_total_time=30 -artifact_prefix=${found}/ ${found} ${corpus})
        else()
            gdn_test_program(${target} ${source} fuzz/replay_main.c)
            gdn_register(${target} fuzz 600 ${target} ${corpus})
        endif()
        if(name MATCHES "^cli_")
            gdn_cli_readers(${target})
        endif()
        set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fuzz)
    endforeach()
endfunction()

# gpu/*.c: plain programs, built everywhere; they exit 77 where there is no device.
function(gdn_gpu_programs)
    file(GLOB sources CONFIGURE_DEPENDS gpu/*.c)
    foreach(source IN LISTS sources)
        get_filename_component(file ${source} NAME_WE)
        set(name gpu_${file}) # unit tests have the same names
        gdn_is_left_out(left_out gpu ${name})
        if(left_out)
            continue()
        endif()
        gdn_test_program(${name} ${source})
        set_target_properties(${name} PROPERTIES OUTPUT_NAME ${file}
                              RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/gpu)
        gdn_register(${name} gpu 1200 ${name})
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endforeach()
endfunction()

# What cli/ needs besides the tool: its parts as a library for cli/test_*.c, and, for the scripts, a driver with one GPU
# that is found as libcuda.so.1, an engine that finds its kernels or fails, and what fills
# a cache and a tuning file.
function(gdn_cli_support)
    file(GLOB parts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.c)
    list(FILTER parts EXCLUDE REGEX "gdn_jit_cache\\.c$")
    add_library(gdn_cli_parts STATIC ${parts})
    target_include_directories(gdn_cli_parts PUBLIC ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(gdn_cli_parts PUBLIC gdnjit_static PkgConfig::CJSON PkgConfig::SMARTCOLS
                          PkgConfig::ARCHIVE Threads::Threads)
    target_compile_options(gdn_cli_parts PRIVATE ${GDN_C_WARNINGS})
    target_compile_definitions(gdn_cli_parts PUBLIC GDN_JIT_PRESET_DIR="${PROJECT_SOURCE_DIR}/tuning/presets")

    add_library(fake_driver SHARED cli/one_h200.c fakecuda/fakecuda.c)
    target_include_directories(fake_driver PRIVATE . ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(fake_driver PRIVATE Threads::Threads)
    target_compile_options(fake_driver PRIVATE ${GDN_C_WARNINGS})
    set_target_properties(fake_driver PROPERTIES C_VISIBILITY_PRESET default OUTPUT_NAME cuda SUFFIX .so.1
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cli/driver)

    add_library(env_nvrtc SHARED cli/env_nvrtc.c fakenvrtc/fakenvrtc.c fakenvrtc/fake_cubin.c)
    target_include_directories(env_nvrtc PRIVATE . ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(env_nvrtc PRIVATE Threads::Threads)
    target_compile_options(env_nvrtc PRIVATE ${GDN_C_WARNINGS})
    target_link_options(env_nvrtc PRIVATE -Wl,--build-id)
    set_target_properties(env_nvrtc PROPERTIES C_VISIBILITY_PRESET default
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cli)

    add_executable(preset_engine cli/preset_engine.c)
    target_include_directories(preset_engine PRIVATE .)
    target_link_libraries(preset_engine PRIVATE gdnjit ${CMAKE_DL_LIBS})
    target_compile_options(preset_engine PRIVATE ${GDN_C_WARNINGS})
    gdn_test_program(many_entries cli/many_entries.c)
    gdn_test_program(make_tuning cli/make_tuning.c)
    set_target_properties(preset_engine many_entries make_tuning PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cli)
endfunction()

# A driver whose one GPU computes, by the host reference, and takes the time that GDN_FAKE_TIMES says: for `tune`.
function(gdn_cli_gpu)
    add_library(fake_gpu SHARED cli/tuning_gpu.c fakecuda/fakecuda.c support/fake_kernels.c support/rng.c)
    target_include_directories(fake_gpu PRIVATE . support ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(fake_gpu PRIVATE gdnjit_static Threads::Threads m)
    target_compile_options(fake_gpu PRIVATE ${GDN_C_WARNINGS})
    set_target_properties(fake_gpu PROPERTIES C_VISIBILITY_PRESET default OUTPUT_NAME cuda SUFFIX .so.1
                          LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cli/gpu)
    gdn_also_nvml(fake_gpu)
endfunction()

# cli/test_*.c: Criterion executables over the tool's parts. cli/test_*.sh: scripts that run the tool, whose path is in
# GDN_JIT_CACHE_TOOL; the folder of the fake libcuda.so.1 is in GDN_FAKE_DRIVER_DIR, of the one that computes in
# GDN_FAKE_GPU_DIR, the engine in GDN_PRESET_ENGINE, what fills a cache in GDN_MANY_ENTRIES, and what writes a tuning file in
# GDN_MAKE_TUNING; the fake libnvrtc is GDN_FAKE_NVRTC.
function(gdn_cli_tests)
    if(NOT TARGET gdn-jit-cache)
        return()
    endif()
    gdn_cli_support()
    gdn_cli_gpu()
    file(GLOB sources CONFIGURE_DEPENDS cli/test_*.c)
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME_WE)
        add_executable(${name} ${source})
        target_link_libraries(${name} PRIVATE gdn_cli_parts test_framework)
        target_compile_options(${name} PRIVATE ${GDN_C_WARNINGS})
        target_compile_definitions(${name} PRIVATE GDN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cli)
        gdn_register(${name} cli 600 ${name})
    endforeach()
    file(GLOB scripts CONFIGURE_DEPENDS cli/test_*.sh)
    foreach(script IN LISTS scripts)
        get_filename_component(name ${script} NAME_WE)
        gdn_register(cli_${name} cli 1800 bash ${script}) # some compile every preset, on a machine that may do more
        set_property(TEST cli_${name} APPEND PROPERTY ENVIRONMENT "GDN_JIT_CACHE_TOOL=$<TARGET_FILE:gdn-jit-cache>"
                     "GDN_FAKE_DRIVER_DIR=$<TARGET_FILE_DIR:fake_driver>" "GDN_PRESET_ENGINE=$<TARGET_FILE:preset_engine>"
                     "GDN_FAKE_GPU_DIR=$<TARGET_FILE_DIR:fake_gpu>" "GDN_MANY_ENTRIES=$<TARGET_FILE:many_entries>" "GDN_MAKE_TUNING=$<TARGET_FILE:make_tuning>"
                     "GDN_FAKE_NVRTC=$<TARGET_FILE:env_nvrtc>")
        gdn_compiled_by_stand_in(cli_${name})
        if(GDN_SANITIZE) # a time that is promised is that of the tool as it is shipped
            set_property(TEST cli_${name} APPEND PROPERTY ENVIRONMENT "GDN_LIST_MS=60000")
        endif()
    endforeach()
endfunction()

# bounds/make_bounds.c writes tests/data/bounds.tsv; a unit test tells when it has to be run again.
function(gdn_bounds_program)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/bounds/make_bounds.c)
        gdn_test_program(make_bounds bounds/make_bounds.c)
        set_target_properties(make_bounds PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/bounds)
    endif()
endfunction()

# conv_host/: the conv template compiled as C++ for the host, run warp by warp. Its own include/ stands for what is generated
# or is inline PTX. Each kernel is a row of support/conv_variants.h and the lanes of a head, 0 for rows without the norm.
function(gdn_host_kernel_tests)
    gdn_is_left_out(left_out unit test_conv_host)
    if(left_out OR NOT CMAKE_CXX_COMPILER OR NOT EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/conv_host/kernel.cc.in)
        return()
    endif()
    set(kernel_sources)
    set(kernels
        0:0 1:4 1:16 2:4 2:16 3:4 3:16 4:0 5:4 5:16 6:0 7:0 8:4 8:16
        9:4 9:16 10:4 10:16 11:4 11:16 12:4 12:16 13:4 13:16 14:4 14:16 15:4 15:16
        16:4 16:16 17:0 18:4 18:16 19:4 19:16 20:0 21:0 22:4 22:16 23:4 23:16 24:4
        24:16 25:4 25:16 1:2 1:8 1:32)
    foreach(kernel IN LISTS kernels)
        string(REGEX MATCH "^([0-9]+):([0-9]+)$" matched ${kernel})
        set(KERNEL_ROW ${CMAKE_MATCH_1})
        set(KERNEL_LANES ${CMAKE_MATCH_2})
        set(source ${CMAKE_CURRENT_BINARY_DIR}/conv_host/kernel_${KERNEL_ROW}_${KERNEL_LANES}.cc)
        configure_file(conv_host/kernel.cc.in ${source} @ONLY)
        list(APPEND kernel_sources ${source})
    endforeach()
    gdn_test_program(test_conv_host conv_host/test_conv_host.c conv_host/warp.c ${kernel_sources})
    set(options -Wno-unknown-pragmas -Wno-sign-conversion -Wno-unused-function -Wno-unused-variable
                -Wno-maybe-uninitialized) # as NVRTC
    if(GDN_SANITIZE) # a sanitizer's checks are much to optimise, for a program that runs once
        list(APPEND options -O1)
    endif()
    set_source_files_properties(${kernel_sources} PROPERTIES COMPILE_OPTIONS "${options}")
    target_link_libraries(test_conv_host PRIVATE test_framework)
    target_include_directories(test_conv_host BEFORE PRIVATE conv_host conv_host/include)
    target_include_directories(test_conv_host PRIVATE ${PROJECT_SOURCE_DIR}/templates ${PROJECT_SOURCE_DIR}/templates/include)
    set_target_properties(test_conv_host PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
                          RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/conv_host)
    gdn_register(test_conv_host unit 600 test_conv_host)
endfunction()

# host_gpu/: a driver and a compiler that run the kernels' own text on the host, under which programs of gpu/ run as they are.
# A row: the test's name, the program, its options. The kernels are compiled by the C++ compiler, into the tests' cache.
function(gdn_host_gpu_tests)
    gdn_is_left_out(left_out host_gpu host_gpu)
    if(left_out OR GDN_SANITIZE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # a sanitizer does not follow lanes' stacks
        return()
    endif()
    file(GLOB headers CONFIGURE_DEPENDS host_gpu/kernel/*.h host_gpu/host_gpu.h fakecuda/fake_map.h)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
    set(version ${CMAKE_CXX_COMPILER_VERSION})
    foreach(header IN LISTS headers)
        file(SHA256 ${header} hash)
        string(APPEND version ${hash})
    endforeach()
    string(SHA256 version ${version})
    add_library(host_gpu_nvrtc SHARED host_gpu/nvrtc.cc host_gpu/translate.cc fakenvrtc/fake_cubin.c)
    target_include_directories(host_gpu_nvrtc PRIVATE . ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
    target_compile_definitions(host_gpu_nvrtc PRIVATE HOST_GPU_CXX="${CMAKE_CXX_COMPILER}"
                                                      HOST_GPU_TESTS="${CMAKE_CURRENT_SOURCE_DIR}"
                                                      HOST_GPU_VERSION="${version}")
    target_compile_options(host_gpu_nvrtc PRIVATE ${GDN_WARNINGS})
    target_link_options(host_gpu_nvrtc PRIVATE -Wl,--build-id)
    add_library(host_gpu SHARED host_gpu/driver.c host_gpu/open.c fakecuda/fakecuda.c fakenvrtc/fake_cubin.c)
    target_include_directories(host_gpu PRIVATE . ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
                                                ${XXHASH_INCLUDE_DIR})
    target_link_libraries(host_gpu PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
    target_compile_options(host_gpu PRIVATE ${GDN_C_WARNINGS})
    set_target_properties(host_gpu PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 C_VISIBILITY_PRESET default)
    set_target_properties(host_gpu_nvrtc PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_VISIBILITY_PRESET default)
    set_target_properties(host_gpu host_gpu_nvrtc PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/host_gpu)
    set(runner bash ${CMAKE_CURRENT_SOURCE_DIR}/host_gpu/run.sh ${PROJECT_BINARY_DIR})
    file(STRINGS host_gpu/tests.txt rows REGEX "^[a-z]")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS host_gpu/tests.txt)
    foreach(row IN LISTS rows)
        separate_arguments(words UNIX_COMMAND "${row}")
        list(POP_FRONT words name)
        gdn_register(host_gpu_${name} host_gpu 600 ${runner} ${words})
    endforeach()
    if(GDN_BUILD_EXAMPLES)
        foreach(name IN ITEMS minimal fused_prologue) # those that compare what they compute
            gdn_register(host_gpu_example_${name} host_gpu 300 ${runner} ../../examples/${name})
        endforeach()
    endif()
    foreach(name IN ITEMS test_host_gpu test_cuts)
        gdn_test_program(${name} host_gpu/${name}.c host_gpu/open.c fakenvrtc/fake_cubin.c)
        target_link_libraries(${name} PRIVATE test_framework)
        target_compile_definitions(${name} PRIVATE HOST_GPU_NVRTC="$<TARGET_FILE:host_gpu_nvrtc>")
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/host_gpu)
        add_dependencies(${name} host_gpu_nvrtc)
        gdn_register(${name} host_gpu 300 ${name})
    endforeach()
endfunction()

# lint/, elf/, install/: scripts on the tree and on what was built.
function(gdn_script_tests)
    gdn_register(lint_layers lint 120 bash ${CMAKE_CURRENT_SOURCE_DIR}/lint/layers.sh)
    gdn_register(lint_sees_planted_violations lint 300 bash ${CMAKE_CURRENT_SOURCE_DIR}/lint/test_layers.sh)
    gdn_register(lint_fuzz_script_tells_errors lint 60 bash ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/test_script.sh
                 ${PROJECT_SOURCE_DIR})
    gdn_register(elf_check_sees_planted_faults elf 120 bash ${CMAKE_CURRENT_SOURCE_DIR}/elf/test_check_elf.sh
                 ${CMAKE_C_COMPILER})
    if(GDN_SANITIZE OR GDN_FUZZ) # a sanitized library is not the one that is shipped
        return()
    endif()
    gdn_register(elf_shared_library elf 60 bash ${CMAKE_CURRENT_SOURCE_DIR}/elf/check_elf.sh $<TARGET_FILE:gdnjit>
                 ${PROJECT_SOURCE_DIR}/include/gdn_jit/gdn_jit.h libgdnjit.so.${GDN_SOVERSION} ${GDN_CJSON_SONAME})
    if(CMAKE_CXX_COMPILER AND GDN_INSTALL)
        gdn_register(install_and_embed install 300 bash ${CMAKE_CURRENT_SOURCE_DIR}/install/run.sh ${PROJECT_BINARY_DIR}
                     ${PROJECT_VERSION} ${CMAKE_COMMAND} ${CMAKE_GENERATOR} ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER}
                     ${CJSON_LIBRARY})
    endif()
    gdn_register(install_as_subproject install 300 bash ${CMAKE_CURRENT_SOURCE_DIR}/install/subproject.sh
                 ${PROJECT_SOURCE_DIR} ${CMAKE_COMMAND} ${CMAKE_GENERATOR} ${CMAKE_C_COMPILER} ${CJSON_LIBRARY})
endfunction()

# Examples and the demo run to their end without a device too: they say that nothing was executed.
function(gdn_example_tests)
    foreach(name IN ITEMS minimal varlen_state cuda_graph prewarmed_strict demo_layer)
        if(TARGET ${name})
            gdn_register(example_${name} examples 600 ${name})
        endif()
    endforeach()
endfunction()

# python/test_*.py: the binding and what of bench/ needs neither torch nor a GPU; Python's own library is enough. The package
# as a wheel; and, where there is a cargo, the Rust crate, whose numbers Python reads from the header. Bindings open the shared
# library, so not in a sanitized build, whose runtime must be in the process from its start.
function(gdn_python_tests)
    find_package(Python3 3.9 COMPONENTS Interpreter)
    if(NOT Python3_FOUND OR GDN_SANITIZE OR GDN_FUZZ)
        return()
    endif()
    file(GLOB scripts CONFIGURE_DEPENDS python/test_*.py)
    foreach(script IN LISTS scripts)
        get_filename_component(name ${script} NAME_WE)
        gdn_register(python_${name} python 120 ${Python3_EXECUTABLE} -B ${script})
        set_property(TEST python_${name} APPEND PROPERTY ENVIRONMENT "GDN_JIT_LIBRARY=$<TARGET_FILE:gdnjit>"
                     "GDN_FAKE_CUDA_PATH=$<TARGET_FILE:fakecuda>" "GDN_FAKE_NVRTC_PATH=$<TARGET_FILE:fakenvrtc>"
                     "CC=${CMAKE_C_COMPILER}" "PYTHONDONTWRITEBYTECODE=1")
    endforeach()
    gdn_register(install_as_wheel install 300 bash ${CMAKE_CURRENT_SOURCE_DIR}/install/wheel.sh ${PROJECT_SOURCE_DIR}
                 ${PROJECT_VERSION} libgdnjit.so.${GDN_SOVERSION} ${Python3_EXECUTABLE})
    find_program(CARGO cargo)
    mark_as_advanced(CARGO)
    if(CARGO AND GDN_INSTALL)
        gdn_register(rust_crate rust 300 bash ${CMAKE_CURRENT_SOURCE_DIR}/rust/run.sh ${PROJECT_SOURCE_DIR}
                     ${PROJECT_BINARY_DIR} ${CMAKE_COMMAND} ${CARGO} ${CMAKE_C_COMPILER} ${Python3_EXECUTABLE})
    endif()
endfunction()
