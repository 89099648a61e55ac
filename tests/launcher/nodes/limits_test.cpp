#include <sys/resource.h>

#include <limits>
#include <string>

#include "launcher/nodes/store/memory_budget.h"
#include "launcher/os/system/open_files.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"

namespace launcher::store {
namespace {

void set_limit(int which, rlim_t now, rlim_t most) {
  const rlimit limit{.rlim_cur = now, .rlim_max = most};
  if (::setrlimit(static_cast<__rlimit_resource_t>(which), &limit) != 0) throw std::runtime_error("setrlimit");
}
rlimit limit_of(int which) {
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource_t>(which), &limit);
  return limit;
}

TEST_CASE("Limits: open files are those of this process, as many as a number can say") {
  for (const int files : {20, 64, 1'000}) {
    CHECK(in_child([=] {
            set_limit(RLIMIT_NOFILE, static_cast<rlim_t>(files), static_cast<rlim_t>(files));
            return std::to_string(descriptor_limit());
          }) == std::to_string(files));
  }
  CHECK(descriptor_limit() > 0);
}

TEST_CASE("Limits: memory is at most 1 GiB, and half of the address space where that is limited") {
  CHECK(memory_limit() > 0);
  CHECK(memory_limit() <= std::size_t{1} << 30);
  CHECK(in_child([] {
          set_limit(RLIMIT_AS, 200 << 20, 200 << 20);
          return std::to_string(memory_limit());
        }) == std::to_string(100 << 20));
  CHECK(in_child([] {
          set_limit(RLIMIT_AS, rlim_t{1} << 50, RLIM_INFINITY);
          return std::to_string(memory_limit());
        }) == std::to_string(memory_limit()));
}

TEST_CASE("OpenFiles: the limit goes up to the hard one, and what it was is given back") {
  CHECK(in_child([] {
          set_limit(RLIMIT_NOFILE, 50, 200);
          const rlimit before = raise_open_files();
          const rlimit after = limit_of(RLIMIT_NOFILE);
          return std::to_string(before.rlim_cur) + " of " + std::to_string(before.rlim_max) + ", " +
                 std::to_string(after.rlim_cur) + " of " + std::to_string(after.rlim_max);
        }) == "50 of 200, 200 of 200");
}

TEST_CASE("OpenFiles: raising once more changes nothing") {
  CHECK(in_child([] {
          set_limit(RLIMIT_NOFILE, 50, 60);
          raise_open_files();
          const rlimit again = raise_open_files();
          return std::to_string(again.rlim_cur) + " " + std::to_string(limit_of(RLIMIT_NOFILE).rlim_cur);
        }) == "60 60");
}

}  // namespace
}  // namespace launcher::store
