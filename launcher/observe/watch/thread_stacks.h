// Asks ranks for the stacks of their threads, by the signal on which programs of the library leave theirs in the
// rank's page: one thread of a rank after the other, all ranks at the same time. Those of Python programs are read from
// their memory, without a signal.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "launcher/observe/watch/python_frames.h"
#include "launcher/observe/watch/watched_rank.h"
#include "launcher/os/system/event_loop.h"

namespace launcher {

struct ThreadStack {
  pid_t thread = 0;
  std::string name{};
  std::string state{};                  // "sleeping in futex_wait_queue"
  std::vector<std::uint64_t> frames{};  // addresses in the process, innermost first
  std::vector<PythonFrame> python{};    // of a Python program, in place of them
  std::string problem{};                // why the stacks are missing
  bool is_process = false;              // the main thread of one that the rank has started, such as a loader's worker
};

struct RankStacks {
  int rank = 0;
  pid_t pid = 0;                       // of the program
  std::string problem{};               // why there are no stacks; the threads are known nevertheless
  std::vector<ThreadStack> threads{};  // the main one first
};

struct StackRequest {
  std::vector<int> ranks{};
  std::chrono::milliseconds timeout{};
  // For programs that print their stack themselves, before `done` is called.
  std::chrono::milliseconds print_time{};
  std::function<void(std::vector<RankStacks>)> done{};
};

class StackRequester {
 public:
  // `loop` must outlive this.
  StackRequester(EventLoop& loop, int stack_signal, WatchedRanks ranks);

  // Ranks that have ended or are not this node's are left out. One request after the other.
  void ask(StackRequest request);

 private:
  struct Asked {
    RankStacks stacks{};
    std::size_t next = 0;      // the thread to ask, or that is asked
    bool is_waiting = false;   // for that thread
    std::uint64_t answer = 0;  // the number of its answer
    EventLoop::Clock::time_point asked_at{};
    bool prints = false;  // it has no page
  };
  void begin();
  Asked begin(const WatchedRank& rank) const;
  void look();
  bool advance(Asked& asked, const std::vector<WatchedRank>& ranks);
  bool take_answer(Asked& asked, const ddp::detail::Page& page);
  void send(Asked& asked, const ddp::detail::Page& page) const;
  void finish();

  EventLoop& loop_;
  const int signal_;
  const WatchedRanks ranks_;
  std::deque<StackRequest> requests_;  // the first one is being answered
  std::vector<Asked> asked_;
  EventLoop::Clock::time_point begin_{};
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
