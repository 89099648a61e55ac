#include "launcher/observe/watch/hang_watch.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/terminal_size.h"
#include "launcher/observe/watch/python_process.h"
#include "launcher/observe/watch/stack_report.h"
#include "launcher/os/system/elf_symbols.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using std::chrono::duration_cast;
using std::chrono::microseconds;

// A smaller share of a CPU may be a thread that only maintains a connection.
constexpr double kComputes = 0.02;
// In seconds. The kernel counts the interrupts that a process handles as its time, which may be some milliseconds.
constexpr double kLongerThanInterrupts = 0.01;
constexpr std::uint64_t kReadsOrWrites = 4096;
// How often, in checks, the child processes of a rank with a page and the work of a waiting rank are examined.
constexpr unsigned kChecksPerFullScan = 10;
// A rate is the mean over at least this time.
constexpr auto kRateTime = 2s;

double in_seconds(Observer::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

bool has_begun_to_train(const ddp::detail::Page& page) {
  const auto phase = static_cast<ddp::progress::Phase>(ddp::detail::kind_of(page.phase.load()));
  if (!ddp::detail::is_python(page)) return phase != ddp::progress::Phase::kStart || page.next_collective.load() > 0;
  // A Python program does not report much of its work, such as imports in a constructor.
  return phase != ddp::progress::Phase::kStart && phase != ddp::progress::Phase::kOther;
}

using std::chrono::milliseconds;

constexpr milliseconds kMaxCheckInterval = 1s;
constexpr milliseconds kMinCheckInterval = 20ms;
// The longest pause between checks for connections to the store, in a job that is not known to train.
constexpr milliseconds kMaxStorePause = 60s;
// The pause before all nodes are asked again, after some made progress.
constexpr milliseconds kRankQueryInterval = 1s;
constexpr std::size_t kMaxUnseenStacks = 8;
// How long a rank may take to answer with its stack.
constexpr auto kStackTimeout = 2s;
// How long a program that prints its stack itself has for that, before the job may be stopped.
constexpr auto kPrintTimeout = 1s;
// How long the other nodes have for their reports, before the job may be stopped.
constexpr milliseconds kOthersTimeout = 2500ms;

}  // namespace

Observer::Observer(std::chrono::milliseconds interval, std::string host)
    : interval_(interval), host_(std::move(host)) {}

bool Observer::Track::stays_ready(const std::vector<pid_t>& now) {
  std::map<pid_t, std::uint64_t> sleeps;
  bool stays = false;
  for (const pid_t process : now) {
    const std::uint64_t count = voluntary_switches(process);
    const auto before = sleeps_of_ready.find(process);
    stays = stays || (before != sleeps_of_ready.end() && before->second == count);
    sleeps[process] = count;
  }
  sleeps_of_ready = std::move(sleeps);
  return stays;
}

// Ticks of 10 ms are too coarse for a short interval: one of them, which a thread that polls needs from time to time,
// would be a large share of it.
bool Observer::Track::has_computed(double seconds, Clock::duration elapsed) {
  const bool exceeds = elapsed > 0s && seconds / in_seconds(elapsed) > kComputes;
  const bool exceeded = std::exchange(exceeded_before, exceeds);
  return exceeds && (seconds >= kLongerThanInterrupts || exceeded);
}

// Examines the rank's processes and returns the kind of their work.
Observer::Work Observer::observe_process_tree(const WatchedRank& rank, Track& track, Clock::duration elapsed,
                                              bool has_begun) {
  // A process that has used no processor time has neither started processes nor read nor written. So a waiting rank
  // costs one system call for each of its processes. Every kChecksPerFullScan checks everything is read nevertheless.
  const bool is_family_due = track.looks++ % kChecksPerFullScan == 0;
  const auto time = process_tree_time(track.family);
  if (!is_family_due && time && time == track.processor_time) {
    track.cpu_share = 0;
    track.exceeded_before = false;
    return !has_begun && track.stays_ready(ready_processes(track.family)) ? track.ready_work() : Work::kNone;
  }
  const auto time_before = track.processor_time;
  const std::vector<pid_t> family_before = track.family;
  // For a rank that reports its progress, a scan of all threads for child processes is not needed each time.
  if (!has_begun || is_family_due) track.family = process_tree_of(rank.pid);
  track.processor_time = process_tree_time(track.family);
  const ProcessTreeWork work = process_tree_work(track.family);
  if (elapsed > 0s) track.cpu_share = seconds_of_ticks(ticks_since(track.work, work)) / in_seconds(elapsed);
  // A wrapper script waits for its program, and a program may wait for its workers, so the whole family counts. On a
  // busy machine none of them may get much time.
  const std::uint64_t ticks = work.cpu_ticks - std::min(work.cpu_ticks, track.work.cpu_ticks);
  std::optional<double> exact;
  if (time && time_before && track.family == family_before) {
    exact = 1e-9 * static_cast<double>(*time - std::min(*time, *time_before));
  }
  const bool computes = track.has_computed(exact.value_or(seconds_of_ticks(ticks)), elapsed);
  const bool reads_or_writes = work.io_bytes >= track.work.io_bytes + kReadsOrWrites;
  track.work = work;
  if (has_begun) return Work::kNone;
  const bool stays_ready = track.stays_ready(work.ready);
  if (!computes && !stays_ready && !reads_or_writes) return Work::kNone;
  if (reads_or_writes) {
    track.loop.reset();
    return Work::kProgress;
  }
  if (ticks > 0) track.loop.update(track.family, work.faults);
  return track.ready_work();
}

void Observer::observe_rank(const WatchedRank& rank, Track& track, Clock::duration elapsed, Clock::time_point now) {
  if (track.pid != rank.pid) track = Track{.pid = rank.pid, .step_time = now};
  track.runs = rank.runs();
  if (!track.runs) return;
  const std::uint64_t activity = rank.page != nullptr ? ddp::detail::last_activity(*rank.page) : 0;
  const bool begun = activity != 0 && has_begun_to_train(*rank.page);
  has_begun_ = has_begun_ || begun;
  const Work work = observe_process_tree(rank, track, elapsed, begun);
  const bool progresses = work == Work::kProgress || activity != track.activity;
  track.activity = activity;
  const auto counted = duration_cast<microseconds>(std::min<Clock::duration>(elapsed, 2 * interval_));
  track.unchanged = progresses ? 0us : track.unchanged + counted;
  track.idle = progresses || work == Work::kLoop ? 0us : track.idle + counted;
  note_step(rank, track, now);
}

void Observer::note_step(const WatchedRank& rank, Track& track, Clock::time_point now) {
  const std::uint64_t step = rank.page != nullptr ? rank.page->step.load() : 0;
  // The rate is measured from the first step, not from the start of the process.
  if (step == 0 || track.step == 0) {
    track.step = step;
    track.step_time = now;
    return;
  }
  if (now - track.step_time < kRateTime) return;
  track.step_rate = static_cast<double>(step - std::min(step, track.step)) / in_seconds(now - track.step_time);
  track.step = step;
  track.step_time = now;
}

void Observer::observe(const std::vector<WatchedRank>& ranks, Clock::time_point now) {
  const auto elapsed = last_look_ == Clock::time_point{} ? Clock::duration::zero() : now - last_look_;
  last_look_ = now;
  has_begun_ = false;
  if (ranks.empty()) {
    tracks_.clear();
    return;
  }
  for (const WatchedRank& rank : ranks) observe_rank(rank, tracks_[rank.rank], elapsed, now);
}

microseconds Observer::idle_time() const {
  std::vector<RankView> seen;
  for (const auto& [rank, track] : tracks_) {
    if (!track.runs) continue;
    seen.push_back({.idle_us = static_cast<std::uint64_t>(track.idle.count()),
                    .unchanged_us = static_cast<std::uint64_t>(track.unchanged.count())});
  }
  return microseconds(launcher::idle_time(seen));
}

std::optional<double> Observer::steps_per_second(int rank) const {
  const auto found = tracks_.find(rank);
  return found != tracks_.end() ? found->second.step_rate : std::nullopt;
}

std::vector<RankView> Observer::views(const std::vector<WatchedRank>& ranks) const {
  std::vector<RankView> views;
  for (const WatchedRank& rank : ranks) {
    RankView view{.rank = rank.rank, .host = host_, .pid = rank.pid, .ended = rank.ended};
    if (rank.page != nullptr) view.progress = ddp::detail::read_page(*rank.page);
    if (rank.runs()) view.process = process_state(program_of(rank), /*in_detail=*/true);
    if (const auto track = tracks_.find(rank.rank); track != tracks_.end()) {
      const ProcessTreeWork work = process_tree_work(track->second.family);
      if (view.process) view.process->resident_bytes = std::max(work.resident_bytes, view.process->resident_bytes);
      view.processes = static_cast<int>(work.ticks.size());
      view.idle_us = static_cast<std::uint64_t>(track->second.idle.count());
      view.unchanged_us = static_cast<std::uint64_t>(track->second.unchanged.count());
      view.cpu_share = track->second.cpu_share;
    }
    views.push_back(std::move(view));
  }
  return views;
}

HangWatch::HangWatch(EventLoop& loop, Messages& messages, HangWatchOptions options)
    : loop_(loop),
      messages_(messages),
      options_(std::move(options)),
      interval_(options_.timeout > 0s ? std::clamp(options_.timeout / 8, kMinCheckInterval, kMaxCheckInterval)
                                      : kMaxCheckInterval),
      observer_(interval_, options_.host),
      store_pause_(interval_),
      stacks_(loop, options_.stack_signal, options_.ranks) {
  timer_.start_in(interval_, [this] { check(); });
}

void HangWatch::check() {
  const auto ranks = options_.ranks();
  observer_.observe(ranks, EventLoop::Clock::now());
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
    check_store_after_ = {};
  }
  timer_.start_in(interval_, [this] { check(); });
  if (hangs && !is_reported_ && EventLoop::Clock::now() >= ask_after_ && may_report_hang()) begin_diagnosis();
}

void HangWatch::begin_diagnosis() {
  is_reported_ = true;
  if (options_.ask_others) {
    options_.ask_others(options_.timeout);
  } else {
    diagnose_alone();
  }
}

void HangWatch::resume_after_hang() {
  is_reported_ = false;
  ask_after_ = EventLoop::Clock::now() + std::max<milliseconds>(options_.timeout / 4, kRankQueryInterval);
}

// A rank that is not in a group yet may wait at the store for ranks that have not connected to it.
std::vector<RankView> HangWatch::views(const std::vector<WatchedRank>& ranks) const {
  std::vector<RankView> views = observer_.views(ranks);
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto* const page = ranks[i].page;
    if (!views[i].runs() || (views[i].progress && !ddp::detail::is_python(*page))) continue;
    const pid_t program = program_of(ranks[i]);
    const auto stacks = python_stacks(program);
    const auto main = stacks.find(program);
    if (main != stacks.end() && !main->second.empty()) views[i].python = place_of(main->second);
  }
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

void HangWatch::diagnose_alone() {
  HangReport alone{.idle = observer_.idle_time(), .views = views(options_.ranks())};
  if (alone.views.empty()) return;
  alone.verdict = diagnose_hang(alone.views, ddp::detail::page_clock());
  report(alone);
}

void HangWatch::report(const HangReport& report) {
  if (is_printed_) return;
  is_reported_ = is_printed_ = true;
  report_ = report;
  report_.found = std::chrono::system_clock::now();
  const auto wanted = begin_report();
  if (report_.views.empty() && !report_.is_shown_elsewhere) report_.views = views_;
  timer_.cancel();
  stacks_.ask({.ranks = wanted,
               .timeout = kStackTimeout,
               .print_time = kPrintTimeout,
               .done = [this](const std::vector<RankStacks>& stacks) { print_report(stacks); }});
}

// A program that does not train, or does not report it, may sleep for any time. Then its sockets are examined less
// often. A rank that reaches the store in that time has usually made progress.
bool HangWatch::may_report_hang() {
  if (options_.was_asked_for || observer_.has_begun()) return true;
  const auto now = EventLoop::Clock::now();
  if (now < check_store_after_) return false;
  check_store_after_ = now + store_pause_;
  store_pause_ = std::min(2 * store_pause_, kMaxStorePause);
  std::vector<pid_t> running;
  for (const WatchedRank& rank : options_.ranks()) {
    if (rank.runs()) running.push_back(rank.pid);
  }
  return !running.empty() && !options_.store_users(running).empty();
}

// Selects the ranks whose stacks are shown: one that causes the hang, and one that waits for it.
std::vector<int> HangWatch::begin_report() {
  views_ = views(options_.ranks());
  seen_at_ = ddp::detail::page_clock();
  std::vector<int> wanted;
  const Verdict& verdict = report_.verdict;
  // Ranks without a page are all included, because only their stacks show what they wait for.
  for (const int culprit : verdict.culprits) {
    const auto view =
        std::find_if(views_.begin(), views_.end(), [&](const auto& each) { return each.rank == culprit; });
    const bool is_seen = view != views_.end() && view->progress;
    if (wanted.empty() || (!is_seen && wanted.size() < kMaxUnseenStacks)) wanted.push_back(culprit);
  }
  const bool is_wanted = verdict.waiter && std::find(wanted.begin(), wanted.end(), *verdict.waiter) != wanted.end();
  if (verdict.waiter && !is_wanted) wanted.push_back(*verdict.waiter);
  return wanted;
}

void HangWatch::print_report(const std::vector<RankStacks>& stacks) {
  if (options_.ranks().empty()) return timer_.start_in(interval_, [this] { check(); });
  SymbolNames names;
  resolve_frames(names, stacks);
  const NameFrames name_frames = [&](int pid, const auto& addresses) { return names.frames(pid, addresses); };
  std::vector<RankStack> texts;
  for (const RankStacks& rank : stacks) texts.push_back({rank.rank, report_text(rank, name_frames)});
  // The stack of the rank that causes the hang comes first.
  const auto& culprits = report_.verdict.culprits;
  std::stable_partition(texts.begin(), texts.end(),
                        [&](const RankStack& each) { return !culprits.empty() && each.rank == culprits.front(); });
  messages_.print_lines(to_text(report_, texts, seen_at_, ddp::detail::terminal_size(STDERR_FILENO).columns));
  if (options_.ask_others) {
    timer_.start_in(kOthersTimeout, [this] { run_hang_action(); });
  } else {
    run_hang_action();
  }
}

void HangWatch::run_hang_action() {
  timer_.start_in(interval_, [this] { check(); });
  if (options_.on_hang) options_.on_hang(report_, views_);
}

}  // namespace launcher
