# The commit that is being built, for start-up tables and files, and for ranks to notice that their builds differ. It is
# looked up whenever something is built, since a commit changes no file that CMake watches. Runs itself as a script.
if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
  execute_process(COMMAND git describe --always --dirty WORKING_DIRECTORY ${SOURCE_DIR}
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    set(commit "unknown commit")
  endif()
  # Written only when it differs, so that nothing is compiled again without need.
  file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define METRO_GIT_COMMIT \"@commit@\"\n" @ONLY)
  return()
endif()

set(METRO_COMMIT_HEADER ${PROJECT_BINARY_DIR}/generated/metro_commit.hpp)
add_custom_target(metro_commit BYPRODUCTS ${METRO_COMMIT_HEADER} COMMENT ""
  COMMAND ${CMAKE_COMMAND} -D SOURCE_DIR=${PROJECT_SOURCE_DIR} -D OUTPUT=${METRO_COMMIT_HEADER} -P ${CMAKE_CURRENT_LIST_FILE})
