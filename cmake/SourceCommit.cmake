# For `ddprun --version`: writes the commit of the sources into a C++ source of a few lines, at each build, and only where it has changed:
# after a commit that one is compiled, and one program linked.
#
#     cmake -D SOURCE=<project> -D OUTPUT=<file> [-D COMMIT=<text>] -P SourceCommit.cmake
#
# COMMIT is what a packager without git names. Else it is what `git archive` has written into commit.txt; else git's, if the project is
# the top of a checkout: below somebody else's, git would tell theirs.

cmake_minimum_required(VERSION 3.24) # as the project

set(commit "${COMMIT}")
set(is_changed "")
file(READ "${SOURCE}/cmake/commit.txt" recorded)
string(STRIP "${recorded}" recorded)
if(NOT commit AND recorded MATCHES "^[0-9a-f]+$")
  set(commit "${recorded}")
endif()
if(NOT commit)
  # Without what a hook's environment says of another repository, and without a lock that would be in the way of its user's git.
  set(git "${CMAKE_COMMAND}" -E env --unset=GIT_DIR --unset=GIT_WORK_TREE --unset=GIT_INDEX_FILE GIT_OPTIONAL_LOCKS=0 git -C "${SOURCE}")
  execute_process(COMMAND ${git} rev-parse --show-prefix OUTPUT_VARIABLE prefix RESULT_VARIABLE status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(status EQUAL 0 AND prefix STREQUAL "")
    execute_process(COMMAND ${git} rev-parse --verify HEAD OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND ${git} status --porcelain --untracked-files=no OUTPUT_VARIABLE is_changed ERROR_QUIET)
  endif()
endif()
string(REGEX REPLACE "[^0-9A-Za-z._-]" "" commit "${commit}")
if(commit MATCHES "^[0-9a-f]+$")
  string(SUBSTRING "${commit}" 0 12 commit)
endif()
if(NOT commit)
  set(commit "unknown")
elseif(is_changed)
  string(APPEND commit ", with changes")
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" CONTENT "extern const char* const kSourceCommit;\nconst char* const kSourceCommit = \"@commit@\";\n" @ONLY)
