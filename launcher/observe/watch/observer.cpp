#include "launcher/observe/watch/observer.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace launcher {
namespace {

using namespace std::chrono_literals;
using std::chrono::duration_cast;
using std::chrono::microseconds;

// Less may be a thread that looks after a connection.
constexpr double kComputes = 0.02;
constexpr std::uint64_t kReadsOrWrites = 4096;
// Each so many looks, which processes are below a rank that tells of itself is looked up, and what a rank that waits
// has done.
constexpr unsigned kLooksAtFamily = 10;
// Rates are means over at least so long.
constexpr auto kRateTime = 2s;

double in_seconds(Observer::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

bool has_begun_to_train(const ddp::detail::Page& page) {
  const auto phase = static_cast<ddp::progress::Phase>(ddp::detail::kind_of(page.phase.load()));
  return phase != ddp::progress::Phase::kStart || page.next_collective.load() > 0;
}

}  // namespace

Observer::Observer(std::chrono::milliseconds interval, std::string host)
    : interval_(interval), host_(std::move(host)) {}

// Whether what the family does is progress.
bool Observer::look_at_family(const WatchedRank& rank, Track& track, Clock::duration elapsed, bool has_begun) {
  // Who has had no processor time has started nothing, read nothing and written nothing: a rank that waits costs a
  // system call for each of its processes. Now and then all is read, whatever that says.
  const bool is_family_due = track.looks++ % kLooksAtFamily == 0;
  const auto time = family_time(track.family);
  if (!is_family_due && time && time == track.processor_time) {
    track.cpu_share = 0;
    return !has_begun && is_any_ready(track.family);
  }
  // Whom a rank that tells of itself has started meanwhile is not worth a look at all its threads each time.
  if (!has_begun || is_family_due) track.family = family_of(rank.pid);
  track.processor_time = family_time(track.family);
  const FamilyWork work = family_work(track.family);
  if (elapsed > 0s) track.cpu_share = seconds_of_ticks(ticks_since(track.work, work)) / in_seconds(elapsed);
  // A wrapper of the program waits for it, and a program for workers of its own. On a busy machine nobody may get much
  // time.
  const std::uint64_t ticks = work.cpu_ticks - std::min(work.cpu_ticks, track.work.cpu_ticks);
  const bool computes = elapsed > 0s && seconds_of_ticks(ticks) / in_seconds(elapsed) > kComputes;
  const bool works = computes || work.is_ready || work.io_bytes >= track.work.io_bytes + kReadsOrWrites;
  track.work = work;
  return !has_begun && works;
}

void Observer::look_at(const WatchedRank& rank, Track& track, Clock::duration elapsed, Clock::time_point now) {
  if (track.pid != rank.pid) track = Track{.pid = rank.pid, .step_time = now};
  track.runs = rank.runs();
  if (!track.runs) return;
  const std::uint64_t activity = rank.page != nullptr ? ddp::detail::last_activity(*rank.page) : 0;
  const bool begun = activity != 0 && has_begun_to_train(*rank.page);
  has_begun_ = has_begun_ || begun;
  const bool works = look_at_family(rank, track, elapsed, begun);
  const bool progresses = works || activity != track.activity;
  track.activity = activity;
  track.idle =
      progresses ? 0us : track.idle + duration_cast<microseconds>(std::min<Clock::duration>(elapsed, 2 * interval_));
  note_step(rank, track, now);
}

void Observer::note_step(const WatchedRank& rank, Track& track, Clock::time_point now) {
  const std::uint64_t step = rank.page != nullptr ? rank.page->step.load() : 0;
  // From the first step on, not from the start of the process.
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

void Observer::look(const std::vector<WatchedRank>& ranks, Clock::time_point now) {
  const auto elapsed = last_look_ == Clock::time_point{} ? Clock::duration::zero() : now - last_look_;
  last_look_ = now;
  has_begun_ = false;
  if (ranks.empty()) {
    tracks_.clear();
    return;
  }
  for (const WatchedRank& rank : ranks) look_at(rank, tracks_[rank.rank], elapsed, now);
}

microseconds Observer::idle_time() const {
  std::optional<microseconds> shortest;
  for (const auto& [rank, track] : tracks_) {
    if (track.runs && (!shortest || track.idle < *shortest)) shortest = track.idle;
  }
  return shortest.value_or(0us);
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
      const FamilyWork work = family_work(track->second.family);
      if (view.process) view.process->resident_bytes = std::max(work.resident_bytes, view.process->resident_bytes);
      view.processes = static_cast<int>(work.ticks.size());
      view.idle_us = static_cast<std::uint64_t>(track->second.idle.count());
      view.cpu_share = track->second.cpu_share;
    }
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace launcher
