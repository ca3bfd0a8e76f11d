# libgdnjit: compiled once, linked twice (shared and static). Needs libc, libm, libdl and pthread, and cJSON where that is
# there as a shared library only: CUDA and NVRTC are opened at run time, xxHash is used as a header.
include_guard()

find_package(Threads REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(NOT XXHASH_INCLUDE_DIR)
    message(FATAL_ERROR "xxhash.h not found: install xxHash 0.8 or newer (Debian, Ubuntu: libxxhash-dev).")
endif()

include(${CMAKE_CURRENT_LIST_DIR}/CJson.cmake)

file(GLOB sources CONFIGURE_DEPENDS src/base/*.c src/codegen/*.c src/runtime/*.c src/reference/*.c
     src/tuner/*.c)
file(GLOB templates CONFIGURE_DEPENDS templates/*.cu templates/include/*.cuh)
set(embedded ${PROJECT_BINARY_DIR}/templates_embed.c)
add_custom_command(
    OUTPUT ${embedded}
    COMMAND ${CMAKE_COMMAND} -D "OUTPUT=${embedded}" -D "TEMPLATES=${templates}"
            -P ${PROJECT_SOURCE_DIR}/cmake/EmbedTemplates.cmake
    DEPENDS ${templates} ${PROJECT_SOURCE_DIR}/cmake/EmbedTemplates.cmake
    COMMENT "Embedding templates"
    VERBATIM)

add_library(gdnjit_objects OBJECT ${sources} ${embedded})
target_include_directories(gdnjit_objects PRIVATE src include)
target_include_directories(gdnjit_objects SYSTEM PRIVATE ${XXHASH_INCLUDE_DIR} ${CJSON_INCLUDE_DIR})
target_compile_options(gdnjit_objects PRIVATE ${GDN_C_WARNINGS})

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
# An absolute path would bind the installed package to this machine.
target_link_libraries(gdnjit PRIVATE ${CJSON_LIBRARY})
target_link_libraries(gdnjit_static PRIVATE $<BUILD_INTERFACE:${CJSON_LIBRARY}> $<INSTALL_INTERFACE:cjson>)
target_compile_definitions(gdnjit_static INTERFACE GDN_STATIC)

set(version_script ${PROJECT_SOURCE_DIR}/cmake/gdnjit.map)
set_target_properties(gdnjit PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                                        LINK_DEPENDS ${version_script})
target_link_options(gdnjit PRIVATE -Wl,--version-script=${version_script} -Wl,--as-needed -Wl,-z,relro -Wl,-z,now)
# A sanitizer's run-time library comes with the executable when clang links.
if(NOT GDN_SANITIZE AND NOT GDN_FUZZ)
    target_link_options(gdnjit PRIVATE -Wl,--no-undefined)
endif()
