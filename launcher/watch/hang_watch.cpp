#include "launcher/watch/hang_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "launcher/watch/elf_symbols.h"
#include "launcher/watch/hang_report.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr milliseconds kLongestInterval = 1s;
constexpr milliseconds kShortestInterval = 20ms;
// For a rank to answer with its stack.
constexpr auto kStackPatience = 2s;
constexpr milliseconds kStackInterval = 20ms;
// For a program that prints its stack itself, before it is perhaps stopped.
constexpr auto kPrintPatience = 1s;
// The handler and the frame through which the kernel returns.
constexpr std::size_t kHandlerFrames = 2;

std::string status_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const WatchedRank* find(const std::vector<WatchedRank>& ranks, int rank) {
  const auto found = std::find_if(ranks.begin(), ranks.end(), [&](const auto& each) { return each.rank == rank; });
  return found != ranks.end() ? &*found : nullptr;
}

}  // namespace

HangWatch::HangWatch(EventLoop& loop, Messages& messages, HangWatchOptions options)
    : loop_(loop),
      messages_(messages),
      options_(std::move(options)),
      interval_(options_.timeout > 0s ? std::clamp(options_.timeout / 8, kShortestInterval, kLongestInterval)
                                      : kLongestInterval),
      observer_(interval_, options_.host) {
  call_in(interval_, &HangWatch::look);
}

HangWatch::~HangWatch() {
  if (timer_) loop_.cancel(*timer_);
}

void HangWatch::call_in(milliseconds time, void (HangWatch::*action)()) {
  timer_ = loop_.call_at(EventLoop::Clock::now() + time, [this, action] {
    timer_.reset();
    (this->*action)();
  });
}

void HangWatch::look() {
  const auto ranks = options_.ranks();
  observer_.look(ranks, EventLoop::Clock::now());
  const bool hangs = options_.timeout > 0s && observer_.idle_time() >= options_.timeout;
  if (is_reported_ && !hangs && !ranks.empty()) {
    is_reported_ = false;
    messages_.say("the ranks make progress again");
  }
  if (hangs && !is_reported_ && is_reported_at_all()) {
    is_reported_ = true;
    ask_for_stacks();
    return wait_for_stacks();
  }
  call_in(interval_, &HangWatch::look);
}

// What does not train, or tells nobody so, may sleep as long as it likes.
bool HangWatch::is_reported_at_all() const {
  if (options_.was_asked_for || observer_.has_begun()) return true;
  const auto ranks = options_.ranks();
  return std::any_of(ranks.begin(), ranks.end(),
                     [&](const WatchedRank& rank) { return rank.runs() && options_.uses_store(rank.pid); });
}

// Of a rank that is to blame and of one that waits for it.
void HangWatch::ask_for_stacks() {
  const auto ranks = options_.ranks();
  views_ = observer_.views(ranks);
  seen_at_ = ddp::detail::page_clock();
  verdict_ = judge(views_, seen_at_);
  asked_.clear();
  in_order_.clear();
  asked_at_ = EventLoop::Clock::now();
  std::vector<int> wanted;
  if (!verdict_.culprits.empty()) wanted.push_back(verdict_.culprits.front());
  if (verdict_.waiter) wanted.push_back(*verdict_.waiter);
  for (const int number : wanted) {
    const WatchedRank* rank = find(ranks, number);
    if (rank == nullptr || !rank->runs() || asked_.contains(number)) continue;
    in_order_.push_back(number);
    ask(*rank);
  }
}

void HangWatch::ask(const WatchedRank& rank) {
  Asked& asked = asked_[rank.rank];
  asked.pid = rank.pid;
  // The program may run below what ddprun has started, a shell say.
  if (rank.page != nullptr && ddp::detail::last_activity(*rank.page) != 0) {
    const auto writer = static_cast<pid_t>(rank.page->process.load());
    // The rank writes there what it likes.
    if (writer > 0 && ::getpgid(writer) == rank.pid) asked.pid = writer;
    asked.answer = ddp::detail::stack_answers(*rank.page) + 1;
  }
  const auto process = process_state(asked.pid, /*in_detail=*/false);
  asked.is_stopped = process && process->is_stopped();
  // Others would be ended by it.
  asked.takes_signal = takes_signal(status_of(asked.pid), options_.stack_signal);
  if (asked.takes_signal && !asked.is_stopped) ::syscall(SYS_tgkill, asked.pid, asked.pid, options_.stack_signal);
}

bool HangWatch::all_have_answered() const {
  const bool may_print = EventLoop::Clock::now() - asked_at_ < kPrintPatience;
  const auto ranks = options_.ranks();
  return std::all_of(asked_.begin(), asked_.end(), [&](const auto& each) {
    const WatchedRank* rank = find(ranks, each.first);
    const Asked& asked = each.second;
    if (rank != nullptr && asked.takes_signal && asked.answer == 0) return !may_print;
    return rank == nullptr || !asked.takes_signal || asked.is_stopped ||
           ddp::detail::read_stack(*rank->page, asked.answer).has_value();
  });
}

void HangWatch::wait_for_stacks() {
  if (all_have_answered() || EventLoop::Clock::now() - asked_at_ > kStackPatience) return report();
  call_in(kStackInterval, &HangWatch::wait_for_stacks);
}

std::string HangWatch::stack_of(const WatchedRank& rank) const {
  const Asked& asked = asked_.at(rank.rank);
  if (asked.is_stopped) return "none, as it is stopped";
  if (!asked.takes_signal)
    return "none, as its program has no handler of signal " + std::to_string(options_.stack_signal);
  if (asked.answer == 0) return "its program has been asked to print it";
  auto frames = ddp::detail::read_stack(*rank.page, asked.answer);
  if (!frames) return "none, as it does not answer";
  frames->erase(frames->begin(),
                frames->begin() + static_cast<std::ptrdiff_t>(std::min(kHandlerFrames, frames->size())));
  return stack_text(asked.pid, *frames);
}

void HangWatch::report() {
  const auto ranks = options_.ranks();
  call_in(interval_, &HangWatch::look);
  if (ranks.empty()) return;
  std::vector<RankStack> stacks;
  for (const int number : in_order_) {
    if (const WatchedRank* rank = find(ranks, number); rank != nullptr && rank->runs()) {
      stacks.push_back({number, stack_of(*rank)});
    }
  }
  const auto idle = static_cast<std::uint64_t>(observer_.idle_time().count());
  messages_.say_block(hang_report(views_, verdict_, stacks, idle, seen_at_));
  if (options_.on_hang) options_.on_hang(verdict_, views_);
}

}  // namespace launcher
