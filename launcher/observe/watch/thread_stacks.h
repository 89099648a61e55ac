// Asks ranks for the stacks of their threads, with the signal at which programs of the library write a stack to the
// rank's page. In each rank the threads are asked one after the other, in all ranks at the same time. Stacks of Python
// programs are read from their memory, without a signal.
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
  std::vector<PythonFrame> python{};    // for a Python program, instead of `frames`
  std::string problem{};                // why the stacks are missing
  bool is_process = false;  // true: the main thread of a process that the rank has started, such as a loader's worker
};

struct RankStacks {
  int rank = 0;
  pid_t pid = 0;                       // the program's process
  std::string ended{};                 // how it ended; empty while it runs
  std::string problem{};               // why there are no stacks; `threads` is filled nevertheless
  std::vector<ThreadStack> threads{};  // the main thread is the first
};

struct StackRequest {
  std::vector<int> ranks{};
  std::chrono::milliseconds timeout{};
  // How long to wait before `done` is called, for programs that print their stack themselves.
  std::chrono::milliseconds print_time{};
  std::function<void(std::vector<RankStacks>)> done{};
};

class StackRequester {
 public:
  // `loop` must outlive this.
  StackRequester(EventLoop& loop, int stack_signal, WatchedRanks ranks);

  // Ranks that have ended or that belong to other nodes are left out. Requests are handled one after the other.
  void ask(StackRequest request);

 private:
  struct PendingStacks {
    RankStacks stacks{};
    std::size_t next = 0;      // the thread that is asked, or will be asked next
    bool is_waiting = false;   // true while its answer is missing
    std::uint64_t answer = 0;  // the number of its answer
    EventLoop::Clock::time_point asked_at{};
    bool prints = false;  // the program has no page and prints its stack
  };
  void begin();
  PendingStacks begin(const WatchedRank& rank) const;
  void poll();
  bool advance(PendingStacks& pending, const std::vector<WatchedRank>& ranks);
  bool take_answer(PendingStacks& pending, const ddp::detail::Page& page);
  void send(PendingStacks& pending, const ddp::detail::Page& page) const;
  void finish();

  EventLoop& loop_;
  const int signal_;
  const WatchedRanks ranks_;
  std::deque<StackRequest> requests_;  // the first one is being answered
  std::vector<PendingStacks> pending_stacks_;
  EventLoop::Clock::time_point begin_{};
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
