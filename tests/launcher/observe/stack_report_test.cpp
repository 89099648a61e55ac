#include "launcher/observe/watch/stack_report.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/observe/watch/frame_origin.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;

StackFrame frame(const std::string& function, const std::string& file) {
  return {.function = function, .file = file, .offset = 16};
}

// The frames of a thread by the first address of its stack.
std::vector<StackFrame> frames_of(std::uint64_t thread) {
  const StackFrame wait = frame("futex_wait", "libc.so.6");
  switch (thread) {
    case 1:  // main thread
      return {wait, frame("ddp::Loader<Samples>::next()", "train"), frame("main", "train")};
    case 2:  // ddprun's
      return {wait, frame("ddp::shm::Engine::run_thread()", "train"),
              frame("std::thread::_State_impl<...>::_M_run()", "train"), frame("", "libstdc++.so.6")};
    case 3:  // ddprun's, which calls LibTorch
      return {wait, frame("c10d::PrefixStore::wait(std::vector<...> const&)", "libtorch_cpu.so"),
              frame("ddp::detail::DesyncDebugger::serve()", "train")};
    case 4:  // LibTorch's, which calls ddprun
      return {wait, frame("ddp::detail::CpuReducer::finish(unsigned long)", "train"),
              frame("torch::autograd::Engine::thread_main(std::shared_ptr<...> const&)", "libtorch_cpu.so")};
    case 5:  // the program's, in a thread of ddprun
      return {wait, frame("read_sample(long)", "train"),
              frame("auto ddp::detail::read_batch<...>(Samples const&, long)", "train")};
    default:
      return {wait};
  }
}

std::vector<StackFrame> name_frames(int /*pid*/, const std::vector<std::uint64_t>& addresses) {
  return addresses.empty() ? std::vector<StackFrame>() : frames_of(addresses.front());
}

// Rank 0 with its main thread and a thread for each further stack.
RankStacks rank_with(const std::vector<std::uint64_t>& stacks) {
  RankStacks rank{.rank = 0, .pid = 100};
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    rank.threads.push_back({.thread = 100 + static_cast<int>(i),
                            .name = "train",
                            .state = "sleeping",
                            .frames = std::vector<std::uint64_t>{stacks[i]}});
  }
  return rank;
}

// True if the text has all of these, in this order.
bool are_in_order(const std::string& text, const std::vector<std::string>& parts) {
  std::size_t at = 0;
  for (const std::string& part : parts) {
    at = text.find(part, at);
    if (at == std::string::npos) return false;
  }
  return true;
}

const std::vector<std::string> kOrder{"main (", "read_sample(long)", "thread_main(", "run_thread()"};

TEST_CASE("Stacks: main thread, then threads of the program, of LibTorch, of ddprun, of the system") {
  const RankStacks rank = rank_with({1, 2, 3, 4, 5, 6});
  const std::string text = stacks_text({rank}, name_frames);
  INFO(text);
  CHECK(are_in_order(text, kOrder));
  CHECK(are_in_order(text, {"thread_main(", "serve()", "rank 0, thread train, sleeping:\n    #0 futex_wait"}));
  CHECK(text.ends_with("rank 0, thread train, sleeping:\n    #0 futex_wait (libc.so.6+0x10)\n"));
}

TEST_CASE("Stacks: the report on a hang has the same order") {
  const std::string text = report_text(rank_with({1, 2, 3, 4, 5, 6}), name_frames);
  INFO(text);
  CHECK(are_in_order(text, kOrder));
  CHECK(are_in_order(text, {"thread_main(", "serve()"}));
}

TEST_CASE("Stacks: a thread with an inlined function is the program's") {
  CHECK(origin_of({frame("read", "libc.so.6"), frame("std::thread::_State_impl<...>::_M_run()", "train")}) ==
        FrameOrigin::kProgram);
  CHECK(origin_of({frame("poll", "libc.so.6"), frame("", "libcuda.so.1")}) == FrameOrigin::kLibTorch);
  CHECK(origin_of({frame("", "libopencv_core.so")}) == FrameOrigin::kProgram);
  CHECK(origin_of(std::vector<StackFrame>{}) == FrameOrigin::kSystem);
}

TEST_CASE("Stacks: a function name without types and arguments") {
  CHECK(plain_function_name("auto ddp::detail::read_batch<...>(Samples const&, std::span<long>)") ==
        "ddp::detail::read_batch");
  CHECK(plain_function_name("decltype (...) ddp::detail::read<...>(...)") == "ddp::detail::read");
  CHECK(plain_function_name("(anonymous namespace)::Fault::at(int) const") == "{anonymous}::Fault::at");
  CHECK(plain_function_name("void std::this_thread::sleep_for<long, std::ratio<1l, 2l> >(long)") ==
        "std::this_thread::sleep_for");
  CHECK(plain_function_name("main") == "main");
  CHECK(plain_function_name("") == "");
  CHECK(plain_function_name("a>b<c") == "ab");
}

TEST_CASE("Stacks: ranks that have ended are named") {
  RankStacks ended{.rank = 1, .pid = 101, .ended = "exited with status 3"};
  const RankStacks runs = rank_with({1});
  CHECK_THAT(stacks_text({runs, ended}, name_frames), ContainsSubstring("rank 1 has ended (exited with status 3)\n"));
  const auto read = stacks_from(json_of(std::vector<RankStacks>{runs, ended}).dump());
  REQUIRE(read);
  CHECK(ended_ranks_text(*read) == "rank 1 has ended (exited with status 3)");
  ended.ended = "ended normally";
  RankStacks other = ended;
  other.rank = 2;
  CHECK(ended_ranks_text({runs, ended, other}) == "ranks 1 and 2 have ended normally");
  CHECK(ended_ranks_text({runs}).empty());
}

}  // namespace
}  // namespace launcher
