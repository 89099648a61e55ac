#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>

#include "launcher/processes/descendants.h"
#include "launcher/system/address.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

TEST_CASE("AddressLookup: finds an address") {
  EventLoop loop;
  std::optional<std::size_t> found;
  const AddressLookup lookup(loop, "127.0.0.1", 80, [&](const auto& addresses) { found = addresses.size(); });
  while (!found) loop.run_once();
  CHECK(*found >= 1U);
  INFO("its helper was not reaped");
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

// A child that gets the number `pid`, where the kernel lets us choose; -1 else.
pid_t fork_as(pid_t pid) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::ofstream last("/proc/sys/kernel/ns_last_pid");
    if (!(last << pid - 1 << std::flush)) return -1;
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    if (child == pid) return child;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  return -1;
}

TEST_CASE("AddressLookup: does not signal whoever got its helper's number") {
  EventLoop loop;
  auto lookup = std::make_unique<AddressLookup>(loop, "127.0.0.1", 80, [](const auto&) {});
  siginfo_t info{};
  REQUIRE(::waitid(P_ALL, 0, &info, WEXITED) == 0);  // as the supervisor reaps whatever ends
  const pid_t heir = fork_as(info.si_pid);
  if (heir < 0) SKIP("the number cannot be given to another process here");
  lookup.reset();
  INFO("it was ended or reaped");
  CHECK(::waitpid(heir, nullptr, WNOHANG) == 0);
  ::kill(heir, SIGKILL);
  ::waitpid(heir, nullptr, 0);
}

}  // namespace
}  // namespace launcher
