#include "launcher/system/parked_descriptors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "launcher/system/launch_error.h"
#include "launcher/system/pipe.h"

namespace launcher {
namespace {

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST(ParkedDescriptors, LeaveTheTableAndComeBackInTheirOrder) {
  constexpr int kCount = 300;
  std::vector<Pipe> pipes;
  for (int i = 0; i < kCount; ++i) pipes.push_back(make_pipe());
  ParkedDescriptors parked;
  const auto before = open_descriptors();
  for (Pipe& pipe : pipes) parked.park(pipe.reader);
  EXPECT_LT(open_descriptors(), before - 200);
  parked.take_back();
  EXPECT_EQ(open_descriptors(), before);
  for (int i = 0; i < kCount; ++i) {
    ASSERT_EQ(::write(pipes[i].writer.get(), &i, sizeof i), ssize_t{sizeof i});
    int number = -1;
    ASSERT_EQ(::read(pipes[i].reader.get(), &number, sizeof number), ssize_t{sizeof number});
    EXPECT_EQ(number, i);
    EXPECT_EQ(::fcntl(pipes[i].reader.get(), F_GETFD), FD_CLOEXEC);
  }
}

TEST(ParkedDescriptors, CanBeUsedAgain) {
  std::vector<Pipe> pipes;
  for (int i = 0; i < 200; ++i) pipes.push_back(make_pipe());
  ParkedDescriptors parked;
  for (int round = 0; round < 3; ++round) {
    for (Pipe& pipe : pipes) parked.park(pipe.reader);
    parked.take_back();
    EXPECT_TRUE(std::all_of(pipes.begin(), pipes.end(), [](const Pipe& pipe) { return bool(pipe.reader); }));
  }
}

TEST(ParkedDescriptors, ThatFindNoPlaceAnyMoreAreAnError) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers' own checks of the exception need a descriptor";
#endif
  std::vector<Pipe> pipes;
  for (int i = 0; i < 128; ++i) pipes.push_back(make_pipe());
  ParkedDescriptors parked;
  for (Pipe& pipe : pipes) parked.park(pipe.reader);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit small{64, limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &small);
  EXPECT_THROW(parked.take_back(), LaunchError);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace launcher
