// Reads the curves from the event files of a folder, which this library or another program has written.
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

/// The contents of the event files of one folder.
struct Run {
  std::string name{};                     ///< the folder, relative to the requested one
  std::map<std::string, Curve> curves{};  ///< key: tag; points are in the order of writing
  std::set<std::string> metrics{};        ///< tags that the HParams page lists as metrics
};

struct Runs {
  std::vector<Run> runs{};              ///< the runs that have a curve, sorted by name
  std::set<std::string> metrics{};      ///< the metrics of all runs
  std::vector<std::string> problems{};  ///< one line for each damaged file; the data before the damage are in `runs`
};

/// Adds the scalars and metrics of one event to a run. A session start removes the earlier points that it invalidates.
/// Throws std::runtime_error if the bytes are not an event.
void add_event(std::string_view event, Run& run);

/// Reads an event file, or all event files of a folder and its subfolders. The contents of the files are not trusted.
/// Throws std::runtime_error, naming the path, if there is no event file.
Runs read_runs(const std::filesystem::path& path);

}  // namespace ddp::curves
