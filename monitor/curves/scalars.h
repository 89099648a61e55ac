// The curves in the event files of a folder, of ours or of any other program's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::curves {

struct Point {
  int64_t step = 0;
  double wall_time = 0;  ///< seconds since 1970
  double value = 0;
};

using Curve = std::vector<Point>;

/// What the event files of one folder hold.
struct Run {
  std::string name{};                     ///< the folder, relative to the one that was asked for
  std::map<std::string, Curve> curves{};  ///< by tag, in the order of writing
  std::set<std::string> metrics{};        ///< tags that the HParams page lists as metrics
};

struct Runs {
  std::vector<Run> runs{};              ///< those with a curve, by name
  std::set<std::string> metrics{};      ///< of all runs
  std::vector<std::string> problems{};  ///< damaged files, one line each; what comes before the damage is in the runs
};

/// Adds one event's scalars and metrics to a run, and drops the points that a session start declares void. Throws
/// std::runtime_error where the bytes are not an event.
void add_event(std::string_view event, Run& run);

/// Reads an event file, or those of a folder and the folders in it. Files are taken as hostile. Throws
/// std::runtime_error, naming the path, when there is no event file at all.
Runs read_runs(const std::filesystem::path& path);

}  // namespace ddp::curves
