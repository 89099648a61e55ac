# CPack runs this between installing into its own folder and packing that: what Debian wants compressed is, completions are where
# Debian's zsh looks for those of packages (its site-functions are the administrator's), and every file is as old as the sources.
if(CPACK_GENERATOR STREQUAL "DEB")
  file(GLOB_RECURSE folders LIST_DIRECTORIES TRUE "${CPACK_TEMPORARY_DIRECTORY}/site-functions")
  foreach(folder IN LISTS folders)
    cmake_path(REPLACE_FILENAME folder vendor-completions OUTPUT_VARIABLE debians)
    file(RENAME "${folder}" "${debians}")
  endforeach()
  file(GLOB_RECURSE pages "${CPACK_TEMPORARY_DIRECTORY}/*.1" "${CPACK_TEMPORARY_DIRECTORY}/changelog")
  execute_process(COMMAND gzip --best --no-name ${pages} COMMAND_ERROR_IS_FATAL ANY)
endif()
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  execute_process(COMMAND find "${CPACK_TEMPORARY_DIRECTORY}" -exec touch --no-dereference "--date=@$ENV{SOURCE_DATE_EPOCH}" {} +
                          COMMAND_ERROR_IS_FATAL ANY)
endif()
