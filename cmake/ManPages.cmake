# docs/man/<page>.<section>.scd -> man pages, where scdoc is installed.
include_guard()

find_program(SCDOC scdoc)
file(GLOB pages CONFIGURE_DEPENDS docs/man/*.scd)
if(NOT SCDOC)
    if(pages)
        message(STATUS "scdoc not found: no man pages (Debian, Ubuntu: scdoc)")
    endif()
    return()
endif()

set(built_pages)
foreach(source IN LISTS pages)
    get_filename_component(page ${source} NAME_WLE)
    string(REGEX REPLACE ".*\\." "" section ${page})
    if(section EQUAL 1 AND NOT GDN_BUILD_TOOLS) # of a tool that is not there
        continue()
    endif()
    set(component dev)
    if(GDN_BUILD_TOOLS AND NOT section EQUAL 3) # tuning files: the tool writes them, the library reads them
        set(component tools)
    endif()
    set(built ${PROJECT_BINARY_DIR}/man/${page})
    add_custom_command(OUTPUT ${built}
                       COMMAND ${CMAKE_COMMAND} -D "SCDOC=${SCDOC}" -D "SOURCE=${source}" -D "OUTPUT=${built}"
                               -P ${PROJECT_SOURCE_DIR}/cmake/RunScdoc.cmake
                       DEPENDS ${source} ${PROJECT_SOURCE_DIR}/cmake/RunScdoc.cmake
                       COMMENT "Man page ${page}" VERBATIM)
    list(APPEND built_pages ${built})
    install(FILES ${built} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT ${component})
endforeach()
if(built_pages)
    add_custom_target(gdnjit_man ALL DEPENDS ${built_pages})
endif()
