# gdn-jit-cache: of the library the public header, src/text, src/json and src/env, linked with the shared library. In the build
# tree it stands in bin/ and its model presets in share/gdn-jit/presets, as after an installation.
include_guard()

file(GLOB sources CONFIGURE_DEPENDS src/cli/*.c src/text/*.c src/json/*.c src/env/*.c)
file(GLOB presets CONFIGURE_DEPENDS tuning/presets/*.json)

set(built_presets)
foreach(preset IN LISTS presets)
    get_filename_component(name ${preset} NAME)
    set(built ${PROJECT_BINARY_DIR}/share/gdn-jit/presets/${name})
    add_custom_command(OUTPUT ${built} COMMAND ${CMAKE_COMMAND} -E copy ${preset} ${built} DEPENDS ${preset} VERBATIM)
    list(APPEND built_presets ${built})
endforeach()
add_custom_target(gdnjit_presets ALL DEPENDS ${built_presets})
if(GDN_INSTALL)
    install(FILES ${presets} DESTINATION ${CMAKE_INSTALL_DATADIR}/gdn-jit/presets COMPONENT tools)
endif()

if(NOT sources)
    return()
endif()

find_package(PkgConfig REQUIRED)
pkg_check_modules(CJSON IMPORTED_TARGET libcjson)
pkg_check_modules(SMARTCOLS IMPORTED_TARGET smartcols)
pkg_check_modules(ARCHIVE IMPORTED_TARGET libarchive)
if(NOT CJSON_FOUND OR NOT SMARTCOLS_FOUND OR NOT ARCHIVE_FOUND)
    message(FATAL_ERROR "gdn-jit-cache needs cJSON's pkg-config file, libsmartcols and libarchive: install them (Debian, "
                        "Ubuntu: libcjson-dev libsmartcols-dev libarchive-dev) or configure with -DGDN_BUILD_TOOLS=OFF.")
endif()

add_executable(gdn-jit-cache ${sources})
target_include_directories(gdn-jit-cache PRIVATE src)
# In a wheel it stands among Python's scripts, from where the way to the package's library is another in each Python.
set(tool_library gdnjit)
if(SKBUILD)
    set(tool_library gdnjit_static)
    install(TARGETS gdn-jit-cache DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python EXCLUDE_FROM_ALL)
    install(FILES ${presets} DESTINATION ${SKBUILD_DATA_DIR}/share/gdn-jit/presets COMPONENT python EXCLUDE_FROM_ALL)
endif()
target_link_libraries(gdn-jit-cache PRIVATE ${tool_library} PkgConfig::CJSON PkgConfig::SMARTCOLS PkgConfig::ARCHIVE
                                            Threads::Threads)
target_compile_options(gdn-jit-cache PRIVATE ${GDN_C_WARNINGS})
target_compile_definitions(gdn-jit-cache PRIVATE GDN_JIT_PRESET_DIR="${CMAKE_INSTALL_FULL_DATADIR}/gdn-jit/presets")
file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
# The build ID is made of the file as it is linked: without a path of the build folder it is the same for the same source.
set_target_properties(gdn-jit-cache PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin
                                               BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
add_dependencies(gdn-jit-cache gdnjit_presets)
if(GDN_INSTALL)
    install(TARGETS gdn-jit-cache DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()
