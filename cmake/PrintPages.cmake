# cmake -D "PROGRAM=<emulator;>ddprun" -D FOLDER=<folder> -P PrintPages.cmake
# Has ddprun print its manual page and its completions into FOLDER, and touches FOLDER/stamp when all are there. A ddprun that
# cannot be run here (of a sanitizer that finds no room, say) is not an error: then the folder is without all of them.

set(kinds man bash zsh fish)
set(names ddprun.1 ddprun.bash _ddprun ddprun.fish)
list(TRANSFORM names PREPEND "${FOLDER}/" OUTPUT_VARIABLE files)

file(MAKE_DIRECTORY "${FOLDER}")
file(REMOVE "${FOLDER}/stamp")
foreach(kind file IN ZIP_LISTS kinds files)
  execute_process(COMMAND ${PROGRAM} --generate ${kind} OUTPUT_FILE "${file}" ERROR_VARIABLE error RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    file(REMOVE ${files})
    message(WARNING "ddprun will be installed without manual page and completions, as it cannot be run here "
                    "(--generate ${kind}: ${status}) ${error}")
    return()
  endif()
endforeach()
file(TOUCH "${FOLDER}/stamp")
