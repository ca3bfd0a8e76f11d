# libgdnjit: compiled once, linked twice (shared and static). Needs libc, libm, libdl and pthread, and cJSON where that is
# there as a shared library only: CUDA and NVRTC are opened at run time, xxHash is used as a header.
include_guard()

find_package(Threads REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(NOT XXHASH_INCLUDE_DIR)
    message(FATAL_ERROR "xxhash.h not found: install xxHash 0.8 or newer (Debian, Ubuntu: libxxhash-dev).")
endif()

include(CheckSymbolExists)
set(CMAKE_REQUIRED_DEFINITIONS -D_GNU_SOURCE)
check_symbol_exists(strerrordesc_np string.h GDN_HAVE_STRERRORDESC_NP)
unset(CMAKE_REQUIRED_DEFINITIONS)
if(NOT GDN_HAVE_STRERRORDESC_NP)
    message(FATAL_ERROR "This libc has no strerrordesc_np(): glibc 2.32 or newer is needed.")
endif()

include(${CMAKE_CURRENT_LIST_DIR}/CJson.cmake)

file(GLOB sources CONFIGURE_DEPENDS src/text/*.c src/json/*.c src/env/*.c src/base/*.c src/codegen/*.c src/runtime/*.c
     src/reference/*.c src/tuner/*.c)

# gdn_embed(OUTPUT HEADER STRUCT SYMBOL COUNT FILES...): files as an array of the library
function(gdn_embed output header struct symbol count)
    add_custom_command(
        OUTPUT ${output}
        COMMAND ${CMAKE_COMMAND} -D "OUTPUT=${output}" -D "FILES=${ARGN}" -D HEADER=${header} -D STRUCT=${struct}
                -D SYMBOL=${symbol} -D COUNT=${count} -P ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
        DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
        COMMENT "Embedding ${symbol}"
        VERBATIM)
endfunction()

file(GLOB templates CONFIGURE_DEPENDS templates/*.cu templates/include/*.cuh)
file(GLOB tables CONFIGURE_DEPENDS tuning/sm_*/*.json)
set(embedded_templates ${PROJECT_BINARY_DIR}/templates_embed.c)
set(embedded_tables ${PROJECT_BINARY_DIR}/tuning_embed.c)
gdn_embed(${embedded_templates} codegen/unit.h gdni_template gdni_templates gdni_num_templates ${templates})
gdn_embed(${embedded_tables} runtime/tuning_shipped.h gdni_shipped_table gdni_shipped_tables gdni_num_shipped_tables ${tables})

add_library(gdnjit_objects OBJECT ${sources} ${embedded_templates} ${embedded_tables})
target_include_directories(gdnjit_objects PRIVATE src include)
target_include_directories(gdnjit_objects SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR} ${CJSON_INCLUDE_DIR})
target_compile_options(gdnjit_objects PRIVATE ${GDN_C_WARNINGS})
set_target_properties(gdnjit_objects PROPERTIES UNITY_BUILD OFF) # a parent's: files have static functions of the same name
target_compile_definitions(gdnjit_objects PRIVATE $<$<BOOL:${GDN_CHECKED_KERNELS}>:GDN_CHECKED_KERNELS>)

if(GDN_FUZZ) # libFuzzer learns from comparisons, of which printing makes many, none of them with what an input holds
    set_source_files_properties(src/base/strbuf.c src/runtime/dump.c PROPERTIES COMPILE_OPTIONS -fno-sanitize-coverage=trace-cmp)
endif()

add_library(gdnjit SHARED $<TARGET_OBJECTS:gdnjit_objects>)
add_library(gdnjit_static STATIC $<TARGET_OBJECTS:gdnjit_objects>)
add_library(GdnJit::gdnjit ALIAS gdnjit)
add_library(GdnJit::gdnjit_static ALIAS gdnjit_static)

foreach(library gdnjit gdnjit_static)
    set_target_properties(${library} PROPERTIES OUTPUT_NAME gdnjit LINKER_LANGUAGE C)
    target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${library} PRIVATE Threads::Threads ${CMAKE_DL_LIBS} m)
endforeach()
# An absolute path would bind the installed package to this machine: GdnJitConfig.cmake looks for cJSON where it is used.
target_link_libraries(gdnjit PRIVATE ${CJSON_LIBRARY})
target_link_libraries(gdnjit_static PRIVATE $<BUILD_INTERFACE:${CJSON_LIBRARY}> $<INSTALL_INTERFACE:GdnJit::cjson>)
target_compile_definitions(gdnjit_static INTERFACE GDN_STATIC)

set(version_script ${PROJECT_SOURCE_DIR}/cmake/gdnjit.map)
# As the CMake package has it (Install.cmake): below 1.0 a minor version may change the interface.
set(GDN_SOVERSION ${PROJECT_VERSION_MAJOR})
if(PROJECT_VERSION VERSION_LESS 1.0)
    set(GDN_SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
set_target_properties(gdnjit PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${GDN_SOVERSION}
                                        LINK_DEPENDS ${version_script})
target_link_options(gdnjit PRIVATE -Wl,--version-script=${version_script} -Wl,--as-needed -Wl,-z,relro -Wl,-z,now)
# A sanitizer's run-time library comes with the executable when clang links.
if(NOT GDN_SANITIZE AND NOT GDN_FUZZ)
    target_link_options(gdnjit PRIVATE -Wl,--no-undefined)
endif()
