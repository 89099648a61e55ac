// Looks at the ranks of this node again and again, and knows how long each has made no progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/observe/watch/process_state.h"
#include "launcher/observe/watch/rank_view.h"
#include "launcher/observe/watch/watched_rank.h"

namespace launcher {

class Observer {
 public:
  using Clock = std::chrono::steady_clock;

  // `interval`: how often look() will be called. Time beyond twice that between two looks counts for nobody: then it
  // was ddprun that did not run.
  explicit Observer(std::chrono::milliseconds interval, std::string host);

  // A rank makes progress when its page changes; one that has not begun to train, or reports nothing, also when it
  // computes, reads or writes.
  void look(const std::vector<WatchedRank>& ranks, Clock::time_point now);
  // How long none of the running ranks has made progress; 0 when none runs.
  std::chrono::microseconds idle_time() const;
  // A running rank has begun to train.
  bool has_begun() const { return has_begun_; }

  // What look() saw, with all that the pages tell and what processes wait in.
  std::vector<RankView> views(const std::vector<WatchedRank>& ranks) const;
  // The steps of a rank in a second, over the last looks; nothing until it is known.
  std::optional<double> steps_per_second(int rank) const;

 private:
  struct Track {
    pid_t pid = 0;
    std::uint64_t activity = 0;
    std::vector<pid_t> family{};
    unsigned looks = 0;
    FamilyWork work{};
    std::optional<std::uint64_t> processor_time = std::nullopt;  // of the family, before `work` was read
    std::chrono::microseconds idle{0};
    double cpu_share = 0;
    std::uint64_t step = 0;
    std::optional<double> step_rate = std::nullopt;
    Clock::time_point step_time{};
    bool runs = false;
  };
  void look_at(const WatchedRank& rank, Track& track, Clock::duration elapsed, Clock::time_point now);
  static bool look_at_family(const WatchedRank& rank, Track& track, Clock::duration elapsed, bool has_begun);
  static void note_step(const WatchedRank& rank, Track& track, Clock::time_point now);

  const std::chrono::milliseconds interval_;
  const std::string host_;
  std::map<int, Track> tracks_;
  Clock::time_point last_look_{};
  bool has_begun_ = false;
};

}  // namespace launcher
