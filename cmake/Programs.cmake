# Programs of one source file each: examples (shared library, as an embedder builds), benchmarks (static, so that one file
# can be carried to a GPU machine), and the support code that tests and benchmarks share.
include_guard()

file(GLOB support CONFIGURE_DEPENDS tests/support/*.c)
add_library(gdn_support INTERFACE)
if(support)
    list(APPEND support tests/fakenvrtc/fake_cubin.c) # tests look into what stand-ins for NVRTC made
    add_library(gdn_support_objects STATIC ${support})
    target_include_directories(gdn_support_objects PRIVATE tests tests/support examples src)
    target_link_libraries(gdn_support_objects PUBLIC gdnjit_static m)
    target_compile_options(gdn_support_objects PRIVATE ${GDN_C_WARNINGS})
    target_compile_definitions(gdn_support_objects PUBLIC GDN_TEST_DATA_DIR="${PROJECT_SOURCE_DIR}/tests/data")
    target_link_libraries(gdn_support INTERFACE gdn_support_objects)
endif()
target_link_libraries(gdn_support INTERFACE gdnjit_static Threads::Threads ${CMAKE_DL_LIBS} m)
target_include_directories(gdn_support INTERFACE tests tests/support examples) # examples: cuda_mini.h

if(GDN_BUILD_EXAMPLES)
    file(GLOB sources CONFIGURE_DEPENDS examples/*.c)
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME_WE)
        # A longer example keeps its other files in a folder of its name.
        file(GLOB parts CONFIGURE_DEPENDS examples/${name}/*.c)
        add_executable(${name} ${source} ${parts})
        target_link_libraries(${name} PRIVATE gdnjit Threads::Threads ${CMAKE_DL_LIBS} m)
        target_include_directories(${name} PRIVATE examples)
        target_compile_options(${name} PRIVATE ${GDN_C_WARNINGS})
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    endforeach()
endif()

if(GDN_BUILD_BENCH)
    file(GLOB common CONFIGURE_DEPENDS bench/common/*.c)
    file(GLOB sources CONFIGURE_DEPENDS bench/*.c)
    foreach(source IN LISTS sources)
        get_filename_component(name ${source} NAME_WE)
        add_executable(${name} ${source} ${common})
        target_include_directories(${name} PRIVATE bench)
        target_link_libraries(${name} PRIVATE gdn_support)
        target_compile_options(${name} PRIVATE ${GDN_C_WARNINGS})
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
    endforeach()
endif()
