# scdoc reads stdin and writes stdout; a failed run must leave no page behind. Make, unlike Ninja, makes no folder for a rule.
get_filename_component(folder ${OUTPUT} DIRECTORY)
file(MAKE_DIRECTORY ${folder})
execute_process(COMMAND ${SCDOC} INPUT_FILE ${SOURCE} OUTPUT_FILE ${OUTPUT} RESULT_VARIABLE result)
if(NOT result EQUAL 0)
    file(REMOVE ${OUTPUT})
    message(FATAL_ERROR "scdoc refused ${SOURCE}")
endif()
