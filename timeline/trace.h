// A timeline in memory, as ddprun-timeline uses it. Times are in nanoseconds, relative to the time origin of the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddp::timelines {

// The kind of a slice, which ddprun writes as the category of the event.
enum class Activity : std::uint8_t {
  kUser,
  kOther,
  kData,
  kForward,
  kBackward,
  kOptimizer,
  kCheckpoint,
  kEvaluation,
  kClosing,
  kWait,
  kCollective,
  kBucket,
  kDevice,
  kStep,
};
inline constexpr std::size_t kActivities = 14;

std::string_view name_of(Activity activity);
std::optional<Activity> activity_named(std::string_view name);

struct Slice {
  int rank = 0;
  Activity activity = Activity::kUser;
  std::uint16_t restart = 0;  // the restart of the job in which the slice was recorded
  std::uint64_t lane = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::uint32_t name = 0;                              // index into Trace::names
  std::int64_t number = -1;                            // the number of the step, bucket or collective; -1: none
  std::int64_t bytes = 0;                              // the size of a bucket
  std::optional<std::int64_t> started = std::nullopt;  // when a bucket's transfer began
  bool is_unfinished = false;                          // the recording ended before the slice did

  std::int64_t duration() const { return end - begin; }
};

struct Trace {
  std::vector<Slice> slices{};
  std::vector<std::string> names{};
  std::map<int, std::string> ranks{};  // such as "rank 0 on host", by rank
  std::uint64_t events = 0;            // of all kinds, except those that only name ranks and lanes
  std::uint64_t lost = 0;              // events that were not recorded because there was no room
  std::int64_t clock_error = 0;        // the maximum error in nanoseconds when times of different hosts are compared
  bool is_cut_off = false;             // the process that wrote the file was killed
};

}  // namespace ddp::timelines
