# Installation in three components: runtime (shared library, licences), dev (headers, static library, CMake and pkg-config
# files, the man page of the interface), tools (gdn-jit-cache, presets, the other man pages: cmake/Tools.cmake,
# cmake/ManPages.cmake). A fourth, python, is what a wheel takes (pyproject.toml) and nobody else: the library under the name
# by which the package looks for it in its own folder, since a wheel holds no links; and the tool (cmake/Tools.cmake).
include_guard()
include(CMakePackageConfigHelpers)

install(TARGETS gdnjit gdnjit_static EXPORT GdnJitTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(PROGRAMS $<TARGET_FILE:gdnjit> RENAME $<TARGET_SONAME_FILE_NAME:gdnjit> DESTINATION gdn_jit COMPONENT python
        EXCLUDE_FROM_ALL)
install(FILES include/gdn_jit/gdn_jit.h include/gdn_jit/version.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gdn_jit COMPONENT dev)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/GdnJit)
install(EXPORT GdnJitTargets NAMESPACE GdnJit:: DESTINATION ${package_dir} COMPONENT dev)
configure_package_config_file(cmake/GdnJitConfig.cmake.in ${PROJECT_BINARY_DIR}/GdnJitConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Below 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/GdnJitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/GdnJitConfig.cmake ${PROJECT_BINARY_DIR}/GdnJitConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT dev)

# Relative to the .pc file, so that the installation can be moved; a folder that was given as a full path is where it is.
file(RELATIVE_PATH pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(pc_prefix "\${pcfiledir}/${pc_to_prefix}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
    set(pc_prefix ${CMAKE_INSTALL_PREFIX})
endif()
foreach(name LIBDIR INCLUDEDIR)
    string(TOLOWER pc_${name} pc_name)
    set(${pc_name} "\${prefix}/${CMAKE_INSTALL_${name}}")
    if(IS_ABSOLUTE "${CMAKE_INSTALL_${name}}")
        set(${pc_name} ${CMAKE_INSTALL_${name}})
    endif()
endforeach()
# Not as Requires.private, which pkg-config wants to find for the shared library's users too.
set(pc_cjson -lcjson)
if(GDN_CJSON_DIR)
    set(pc_cjson "-L${GDN_CJSON_DIR} -lcjson")
endif()
configure_file(cmake/gdn-jit.pc.in ${PROJECT_BINARY_DIR}/gdn-jit.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gdn-jit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

set(doc_dir ${CMAKE_INSTALL_DOCDIR})
if(NOT PROJECT_IS_TOP_LEVEL) # else the parent's, with a LICENSE of its own
    set(doc_dir ${CMAKE_INSTALL_DATAROOTDIR}/doc/${PROJECT_NAME})
endif()
install(FILES LICENSE THIRD_PARTY_NOTICES DESTINATION ${doc_dir} COMPONENT runtime)
