// Freed memory stays with the process, unless somebody has said otherwise. Each case has a process of its own, since
// malloc's settings are the process's and stay.
#include "base/malloc_tuning.h"

#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/support/catch.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DDPRUN_TEST_OTHER_MALLOC 1
#endif

namespace ddp {
namespace {

// Whether 16 MiB are mapped from the kernel alone, and so returned to it, in a child process with these variables.
bool large_blocks_are_mapped(const char* name, const char* value, bool tuned) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const char* variable : {"DDPRUN_MALLOPT", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}) {
      ::unsetenv(variable);
    }
    if (name != nullptr) ::setenv(name, value, 1);
    if (tuned) tune_malloc();
    const std::size_t before = ::mallinfo2().hblks;
    void* volatile block = std::malloc(std::size_t{16} << 20);
    const bool is_mapped = ::mallinfo2().hblks > before;
    std::free(block);
    ::_exit(is_mapped ? 1 : 0);
  }
  int status = 0;
  REQUIRE(child > 0);
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status) == 1;
}

TEST_CASE("MallocTuning: large blocks stay in the heap") {
#ifdef DDPRUN_TEST_OTHER_MALLOC
  SKIP("the sanitizer has a malloc of its own");
#endif
  REQUIRE(large_blocks_are_mapped(nullptr, nullptr, /*tuned=*/false));
  CHECK_FALSE(large_blocks_are_mapped(nullptr, nullptr, true));
  CHECK_FALSE(large_blocks_are_mapped("DDPRUN_MALLOPT", "1", true));
  CHECK_FALSE(large_blocks_are_mapped("DDPRUN_MALLOPT", "", true));
}

TEST_CASE("MallocTuning: DDPRUN_MALLOPT=0 leaves malloc alone") {
#ifdef DDPRUN_TEST_OTHER_MALLOC
  SKIP("the sanitizer has a malloc of its own");
#endif
  CHECK(large_blocks_are_mapped("DDPRUN_MALLOPT", "0", true));
}

TEST_CASE("MallocTuning: what the user has told malloc stays, one setting at a time") {
#ifdef DDPRUN_TEST_OTHER_MALLOC
  SKIP("the sanitizer has a malloc of its own");
#endif
  CHECK(large_blocks_are_mapped("MALLOC_MMAP_THRESHOLD_", "131072", true));
  CHECK_FALSE(large_blocks_are_mapped("MALLOC_TRIM_THRESHOLD_", "131072", true));
}

}  // namespace
}  // namespace ddp
