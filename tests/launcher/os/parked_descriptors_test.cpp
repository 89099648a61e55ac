#include "launcher/os/system/parked_descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/unique_fd.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST_CASE("ParkedDescriptors: leave the table and come back in their order") {
  constexpr int kCount = 300;
  std::vector<Pipe> pipes;
  for (int i = 0; i < kCount; ++i) pipes.push_back(make_pipe());
  ParkedDescriptors parked;
  const auto before = open_descriptors();
  for (Pipe& pipe : pipes) parked.park(pipe.reader);
  CHECK(open_descriptors() < before - 200);
  parked.take_back();
  CHECK(open_descriptors() == before);
  for (int i = 0; i < kCount; ++i) {
    REQUIRE(::write(pipes[i].writer.get(), &i, sizeof i) == ssize_t{sizeof i});
    int number = -1;
    REQUIRE(::read(pipes[i].reader.get(), &number, sizeof number) == ssize_t{sizeof number});
    CHECK(number == i);
    CHECK(::fcntl(pipes[i].reader.get(), F_GETFD) == FD_CLOEXEC);
  }
}

TEST_CASE("ParkedDescriptors: can be used again") {
  std::vector<Pipe> pipes;
  for (int i = 0; i < 200; ++i) pipes.push_back(make_pipe());
  ParkedDescriptors parked;
  for (int round = 0; round < 3; ++round) {
    for (Pipe& pipe : pipes) parked.park(pipe.reader);
    parked.take_back();
    CHECK(std::all_of(pipes.begin(), pipes.end(), [](const Pipe& pipe) { return bool(pipe.reader); }));
  }
}

TEST_CASE("ParkedDescriptors: that find no place any more are an error") {
#ifdef __SANITIZE_ADDRESS__
  SKIP("the sanitizers' own checks of the exception need a descriptor");
#endif
  std::vector<Pipe> pipes;
  for (int i = 0; i < 128; ++i) pipes.push_back(make_pipe());
  ParkedDescriptors parked;
  for (Pipe& pipe : pipes) parked.park(pipe.reader);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit small{64, limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &small);
  CHECK_THROWS_AS(parked.take_back(), LaunchError);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace launcher
