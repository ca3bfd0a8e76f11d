# cJSON for the library: a static archive that can go into a shared library, else the shared one. Sets CJSON_INCLUDE_DIR,
# CJSON_LIBRARY, GDN_CJSON_SONAME, which is empty when the library needs no libcjson at run time, and GDN_CJSON_DIR, the folder
# of CJSON_LIBRARY where no linker looks by itself, else empty.
include_guard()

find_path(CJSON_INCLUDE_DIR cjson/cJSON.h)
find_library(CJSON_ARCHIVE libcjson.a)
find_library(CJSON_SHARED cjson)
mark_as_advanced(CJSON_INCLUDE_DIR CJSON_ARCHIVE CJSON_SHARED)

# Position-independent code: a distribution's archive may not be.
if(CJSON_INCLUDE_DIR AND CJSON_ARCHIVE)
    file(WRITE ${PROJECT_BINARY_DIR}/CMakeFiles/cjson_probe.c
         "#include <cjson/cJSON.h>\nvoid *probe(const char *text);\nvoid *probe(const char *text) { return cJSON_Parse(text); }\n")
    set(CMAKE_TRY_COMPILE_TARGET_TYPE EXECUTABLE)
    try_compile(CJSON_ARCHIVE_USABLE ${PROJECT_BINARY_DIR}/CMakeFiles/cjson_probe
                SOURCES ${PROJECT_BINARY_DIR}/CMakeFiles/cjson_probe.c
                CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${CJSON_INCLUDE_DIR}"
                COMPILE_DEFINITIONS -fPIC LINK_OPTIONS -shared LINK_LIBRARIES ${CJSON_ARCHIVE} m)
endif()

set(GDN_CJSON_SONAME "")
if(CJSON_ARCHIVE AND CJSON_ARCHIVE_USABLE)
    set(CJSON_LIBRARY ${CJSON_ARCHIVE})
    message(STATUS "cJSON: linked in (${CJSON_ARCHIVE}), its symbols hidden")
elseif(CJSON_INCLUDE_DIR AND CJSON_SHARED)
    set(CJSON_LIBRARY ${CJSON_SHARED})
    set(GDN_CJSON_SONAME libcjson.so.1)
    message(STATUS "cJSON: shared (${CJSON_SHARED}); no libcjson.a that may go into a shared library, so libgdnjit needs "
                   "${GDN_CJSON_SONAME} at run time")
else()
    message(FATAL_ERROR "cJSON not found: install cJSON 1.7 (Debian, Ubuntu: libcjson-dev).")
endif()

get_filename_component(GDN_CJSON_DIR ${CJSON_LIBRARY} DIRECTORY)
if(GDN_CJSON_DIR IN_LIST CMAKE_C_IMPLICIT_LINK_DIRECTORIES)
    set(GDN_CJSON_DIR "")
endif()
