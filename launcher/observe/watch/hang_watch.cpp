#include "launcher/observe/watch/hang_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/terminal_size.h"
#include "launcher/os/system/elf_symbols.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr milliseconds kLongestInterval = 1s;
constexpr milliseconds kShortestInterval = 20ms;
// Between looks for ranks that are connected to the store, in a job that is not known to train.
constexpr milliseconds kLongestStorePause = 60s;
// Of all nodes, after others were found to make progress.
constexpr milliseconds kAskRankAgain = 1s;
// For a rank to answer with its stack.
constexpr auto kStackTimeout = 2s;
constexpr milliseconds kStackInterval = 20ms;
// For a program that prints its stack itself, before it is perhaps stopped.
constexpr auto kPrintTimeout = 1s;
// For the other nodes to say theirs before the job is perhaps stopped.
constexpr milliseconds kOthersTimeout = 2500ms;
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
      observer_(interval_, options_.host),
      store_pause_(interval_) {
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
    if (std::exchange(is_printed_, false)) {
      messages_.print("the ranks make progress again");
      if (options_.on_progress) options_.on_progress();
    }
  }
  if (!hangs) {
    store_pause_ = interval_;
    look_at_store_after_ = {};
  }
  call_in(interval_, &HangWatch::look);
  if (hangs && !is_reported_ && EventLoop::Clock::now() >= ask_after_ && is_reported_at_all()) begin_diagnosis();
}

void HangWatch::begin_diagnosis() {
  is_reported_ = true;
  if (options_.ask_others) {
    options_.ask_others(options_.timeout);
  } else {
    judge_alone();
  }
}

void HangWatch::go_on() {
  is_reported_ = false;
  ask_after_ = EventLoop::Clock::now() + std::max<milliseconds>(options_.timeout / 4, kAskRankAgain);
}

// Before they are in a group, ranks wait at the store for those that have not come there.
std::vector<RankView> HangWatch::views(const std::vector<WatchedRank>& ranks) const {
  std::vector<RankView> views = observer_.views(ranks);
  std::vector<pid_t> before_group;
  for (const RankView& view : views) {
    if (view.runs() && !view.is_in_group()) before_group.push_back(view.pid);
  }
  if (before_group.empty()) return views;
  const std::set<pid_t> users = options_.store_users(before_group);
  for (RankView& view : views) {
    if (view.runs() && !view.is_in_group()) view.at_store = users.contains(view.pid);
  }
  return views;
}

void HangWatch::judge_alone() {
  HangReport alone{.idle = observer_.idle_time(), .views = views(options_.ranks())};
  if (alone.views.empty()) return;
  alone.verdict = judge(alone.views, ddp::detail::page_clock());
  report(alone);
}

void HangWatch::report(const HangReport& report) {
  if (is_printed_) return;
  is_reported_ = is_printed_ = true;
  report_ = report;
  ask_for_stacks();
  if (report_.views.empty() && !report_.is_shown_elsewhere) report_.views = views_;
  if (timer_) loop_.cancel(*timer_);
  wait_for_stacks();
}

// What does not train, or tells nobody so, may sleep as long as it likes: then the looks at its sockets become rarer.
// Who comes to the store meanwhile makes progress by that, mostly.
bool HangWatch::is_reported_at_all() {
  if (options_.was_asked_for || observer_.has_begun()) return true;
  const auto now = EventLoop::Clock::now();
  if (now < look_at_store_after_) return false;
  look_at_store_after_ = now + store_pause_;
  store_pause_ = std::min(2 * store_pause_, kLongestStorePause);
  std::vector<pid_t> running;
  for (const WatchedRank& rank : options_.ranks()) {
    if (rank.runs()) running.push_back(rank.pid);
  }
  return !running.empty() && !options_.store_users(running).empty();
}

// Of a rank that is to blame and of one that waits for it.
void HangWatch::ask_for_stacks() {
  const auto ranks = options_.ranks();
  views_ = views(ranks);
  seen_at_ = ddp::detail::page_clock();
  asked_.clear();
  in_order_.clear();
  asked_at_ = EventLoop::Clock::now();
  std::vector<int> wanted;
  const Verdict& verdict = report_.verdict;
  if (!verdict.culprits.empty()) wanted.push_back(verdict.culprits.front());
  if (verdict.waiter) wanted.push_back(*verdict.waiter);
  for (const int number : wanted) {
    const WatchedRank* rank = find(ranks, number);
    if (rank == nullptr || !rank->runs() || asked_.contains(number)) continue;
    in_order_.push_back(number);
    ask(*rank);
  }
}

void HangWatch::ask(const WatchedRank& rank) {
  Asked& asked = asked_[rank.rank];
  asked.pid = program_of(rank);
  if (rank.page != nullptr && ddp::detail::last_activity(*rank.page) != 0) {
    asked.answer = ddp::detail::stack_answers(*rank.page) + 1;
  }
  const auto process = process_state(asked.pid, /*in_detail=*/false);
  asked.is_stopped = process && process->is_stopped();
  // Others would be ended by it.
  asked.takes_signal = takes_signal(status_of(asked.pid), options_.stack_signal);
  if (asked.takes_signal && !asked.is_stopped) ::syscall(SYS_tgkill, asked.pid, asked.pid, options_.stack_signal);
}

bool HangWatch::all_have_answered() const {
  const bool may_print = EventLoop::Clock::now() - asked_at_ < kPrintTimeout;
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
  if (all_have_answered() || EventLoop::Clock::now() - asked_at_ > kStackTimeout) return print_report();
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

void HangWatch::print_report() {
  const auto ranks = options_.ranks();
  if (ranks.empty()) return call_in(interval_, &HangWatch::look);
  std::vector<RankStack> stacks;
  for (const int number : in_order_) {
    if (const WatchedRank* rank = find(ranks, number); rank != nullptr && rank->runs()) {
      stacks.push_back({number, stack_of(*rank)});
    }
  }
  messages_.print_lines(to_text(report_, stacks, seen_at_, ddp::detail::terminal_size(STDERR_FILENO).columns));
  if (options_.ask_others) {
    call_in(kOthersTimeout, &HangWatch::act);
  } else {
    act();
  }
}

void HangWatch::act() {
  call_in(interval_, &HangWatch::look);
  if (options_.on_hang) options_.on_hang(report_, views_);
}

}  // namespace launcher
