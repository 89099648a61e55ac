#include "launcher/observe/watch/thread_stacks.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "launcher/observe/watch/python_process.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr auto kStackInterval = 1ms;
// How long one thread may take; then the next one is asked.
constexpr auto kThreadTimeout = 500ms;
constexpr std::size_t kMaxThreads = 128;
// The signal handler, and the frame through which the kernel returns.
constexpr std::size_t kHandlerFrames = 2;

std::string proc_text(pid_t thread, const char* name) {
  std::ifstream file("/proc/" + std::to_string(thread) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the main thread, which has the process's number, first.
std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads = thread_numbers(pid);
  std::sort(threads.begin(), threads.end());
  const auto main = std::find(threads.begin(), threads.end(), pid);
  if (main != threads.end()) std::rotate(threads.begin(), main, main + 1);
  threads.resize(std::min(threads.size(), kMaxThreads));
  return threads;
}

constexpr std::size_t kMaxProcesses = 16;

ThreadStack kernel_state_of(pid_t thread) {
  std::string name = proc_text(thread, "comm");
  if (name.ends_with('\n')) name.pop_back();
  const auto state = process_state(thread, /*in_detail=*/true);
  return {.thread = thread, .name = printable(name), .state = state ? to_text(*state) : "ended"};
}

// Returns false if the rank's program is not in Python, or if its memory cannot be read.
bool read_python(RankStacks& rank) {
  auto frames = python_stacks(rank.pid);
  if (frames[rank.pid].empty()) return false;
  for (ThreadStack& thread : rank.threads) {
    thread.python = std::move(frames[thread.thread]);
    if (thread.python.empty()) thread.problem = "none, as it runs no Python";
  }
  const auto family = process_tree_of(rank.pid);
  for (std::size_t i = 1; i < std::min(family.size(), kMaxProcesses + 1); ++i) {
    ThreadStack process = kernel_state_of(family[i]);
    process.is_process = true;
    process.python = std::move(python_stacks(family[i])[family[i]]);
    // A forked process has the frames of its parent below its own.
    const auto first = std::find_if(process.python.begin(), process.python.end(), [](const PythonFrame& frame) {
      return frame.function.ends_with("_bootstrap") && frame.file.ends_with("/multiprocessing/process.py");
    });
    process.python.erase(first, process.python.end());
    if (!process.python.empty()) rank.threads.push_back(std::move(process));
  }
  return true;
}

// For a program without a handler for the signal, if its Python functions cannot be read.
std::string why_no_handler(pid_t pid, int signal_number) {
  if (!proc_text(pid, "comm").starts_with("python")) return "no stack: it does not use ddprun's library";
  return "no stack: ddprun cannot read those of this Python; after faulthandler.register(" +
         std::to_string(signal_number) + ", all_threads=True) it prints them itself";
}

}  // namespace

StackRequester::StackRequester(EventLoop& loop, int stack_signal, WatchedRanks ranks)
    : loop_(loop), signal_(stack_signal), ranks_(std::move(ranks)) {}

void StackRequester::ask(StackRequest request) {
  requests_.push_back(std::move(request));
  if (requests_.size() == 1) begin();
}

void StackRequester::begin() {
  begin_ = EventLoop::Clock::now();
  pending_stacks_.clear();
  const auto& wanted = requests_.front().ranks;
  for (const WatchedRank& rank : ranks_()) {
    const bool is_wanted = std::find(wanted.begin(), wanted.end(), rank.rank) != wanted.end();
    if (is_wanted && rank.runs()) pending_stacks_.push_back(begin(rank));
  }
  poll();
}

StackRequester::PendingStacks StackRequester::begin(const WatchedRank& rank) const {
  PendingStacks pending{.stacks = {.rank = rank.rank, .pid = program_of(rank)}};
  RankStacks& stacks = pending.stacks;
  for (const pid_t thread : threads_of(stacks.pid)) stacks.threads.push_back(kernel_state_of(thread));
  if (read_python(stacks)) {
    pending.next = stacks.threads.size();
    return pending;
  }
  const auto process = process_state(stacks.pid, /*in_detail=*/false);
  const bool has_page =
      rank.page != nullptr && ddp::detail::last_activity(*rank.page) != 0 && !ddp::detail::is_python(*rank.page);
  if (process && process->is_stopped()) {
    stacks.problem = "no stack: its process is stopped";
    // The signal would end a program without a handler.
  } else if (!takes_signal(proc_text(stacks.pid, "status"), signal_)) {
    stacks.problem = why_no_handler(stacks.pid, signal_);
  } else if (!has_page) {
    stacks.problem = "its program was asked to print its stack";
    pending.prints = true;
    ::syscall(SYS_tgkill, stacks.pid, stacks.pid, signal_);
  }
  if (!stacks.problem.empty()) pending.next = stacks.threads.size();
  return pending;
}

void StackRequester::poll() {
  const auto now = EventLoop::Clock::now();
  const auto ranks = ranks_();
  bool waits = false;
  for (PendingStacks& pending : pending_stacks_) waits = advance(pending, ranks) || waits;
  const StackRequest& request = requests_.front();
  if (!waits || now - begin_ > request.timeout) return finish();
  timer_.start_in(kStackInterval, [this] { poll(); });
}

// Returns true while an answer is missing.
bool StackRequester::advance(PendingStacks& pending, const std::vector<WatchedRank>& ranks) {
  if (pending.prints) return EventLoop::Clock::now() - begin_ < requests_.front().print_time;
  const auto rank = std::find_if(ranks.begin(), ranks.end(),
                                 [&](const WatchedRank& each) { return each.rank == pending.stacks.rank; });
  if (rank == ranks.end() || !rank->runs() || rank->page == nullptr) return false;
  while (pending.next < pending.stacks.threads.size()) {
    if (!pending.is_waiting) send(pending, *rank->page);
    if (pending.is_waiting && !take_answer(pending, *rank->page)) return true;
  }
  return false;
}

void StackRequester::send(PendingStacks& pending, const ddp::detail::Page& page) const {
  ThreadStack& stack = pending.stacks.threads[pending.next];
  const auto state = process_stat(stack.thread);
  const bool is_main = stack.thread == pending.stacks.pid;
  if (!state || state->state == 'Z' || state->state == 'X') {
    stack.problem = "no stack: it has ended";
  } else if (state->state == 'D' && !is_main) {
    stack.problem = "no stack: it is " + to_text(*state);
  } else if (blocks_signal(proc_text(stack.thread, "status"), signal_)) {
    stack.problem = "no stack: it blocks signal " + std::to_string(signal_);
  }
  if (!stack.problem.empty()) {
    ++pending.next;
    return;
  }
  pending.answer = ddp::detail::stack_answers(page) + 1;
  pending.asked_at = EventLoop::Clock::now();
  pending.is_waiting = true;
  ::syscall(SYS_tgkill, pending.stacks.pid, stack.thread, signal_);
}

// Returns false while the answer is missing.
bool StackRequester::take_answer(PendingStacks& pending, const ddp::detail::Page& page) {
  const auto now = EventLoop::Clock::now();
  auto& threads = pending.stacks.threads;
  auto frames = ddp::detail::read_stack(page, pending.answer);
  if (!frames) {
    const bool is_only = threads.size() == 1;
    if (is_only || now - pending.asked_at < kThreadTimeout) return false;
    threads[pending.next++].problem = "no stack: it does not answer";
    pending.is_waiting = false;
    return true;
  }
  frames->erase(frames->begin(),
                frames->begin() + static_cast<std::ptrdiff_t>(std::min(kHandlerFrames, frames->size())));
  const auto thread = static_cast<pid_t>(page.stack.thread.load());
  const auto from =
      std::find_if(threads.begin(), threads.end(), [&](const ThreadStack& each) { return each.thread == thread; });
  if (from == threads.end() || from - threads.begin() > static_cast<std::ptrdiff_t>(pending.next)) {
    pending.answer = ddp::detail::stack_answers(page) + 1;
    return false;
  }
  from->frames = std::move(*frames);
  from->problem.clear();
  // A thread that was asked before may answer late, in place of this one: then this one is asked again.
  if (from - threads.begin() == static_cast<std::ptrdiff_t>(pending.next)) ++pending.next;
  pending.is_waiting = false;
  return true;
}

void StackRequester::finish() {
  std::vector<RankStacks> answers;
  for (PendingStacks& pending : pending_stacks_) {
    auto& threads = pending.stacks.threads;
    for (; pending.next < threads.size(); ++pending.next)
      threads[pending.next].problem = "no stack: it does not answer";
    answers.push_back(std::move(pending.stacks));
  }
  const StackRequest request = std::move(requests_.front());
  requests_.pop_front();
  if (!requests_.empty()) timer_.start_in(0ms, [this] { begin(); });
  request.done(std::move(answers));  // it may destroy this object
}

}  // namespace launcher
