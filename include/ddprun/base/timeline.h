// A timeline of what each rank does, which Perfetto (https://ui.perfetto.dev) and chrome://tracing show and
// `ddprun-timeline` explains. `ddprun --timeline FILE` records a timeline of all ranks. ddp::Timeline records one
// inside the program, under any launcher. Does not use LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string_view>

namespace ddp::timeline {

/// Whether events are being recorded now.
bool is_recording() noexcept;

/// A named range in the calling thread's lane of the timeline, from the construction to the destruction of this object.
/// The first 160 bytes of the name are kept. Ranges nest; the thread that constructed one must destroy it. It makes no
/// system call and never waits: if events arrive faster than they can be written, some are lost, and the lost ones are
/// counted.
class Range {
 public:
  /// Begins the range.
  explicit Range(std::string_view name) noexcept;
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  std::uint64_t id_;
};

}  // namespace ddp::timeline

namespace ddp {

/// Settings of a Timeline, all optional.
struct TimelineOptions {
  /// Steps are counted from 0 as DistributedDataParallel or ddp::progress::step() count them; those from `first_step`
  /// up to and without `end_step` are recorded.
  std::int64_t first_step = 0;
  std::int64_t end_step = std::numeric_limits<std::int64_t>::max();  ///< the first step that is no longer recorded
  bool starts = true;                                                ///< whether recording starts at construction; if
                                                                     ///< not, start() starts it
};

/// Records this process's timeline. In a job of several ranks each rank writes its own file: `trace.rank3.json` for
/// `trace.json`, and after a restart of the job `trace.rank3.restart1.json`. `ddprun-timeline merge` joins these files.
/// The file is valid JSON at any time, also when the process is killed. If ddprun records a timeline of the job, this
/// object does nothing.
///
/// A process can have one Timeline at a time. Throws std::runtime_error, naming the rank and the file, when the file
/// cannot be written. If the disk becomes full later, the timeline ends with a line on standard error, and the program
/// continues.
class Timeline {
 public:
  /// Opens this rank's file and begins to record, unless `options` say otherwise.
  explicit Timeline(const std::filesystem::path& file, const TimelineOptions& options = {});
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// Starts recording now, regardless of the step.
  void start();
  /// Stops recording until the next start().
  void stop();

  /// This rank's file.
  const std::filesystem::path& file() const { return file_; }

 private:
  struct Parts;
  std::filesystem::path file_;
  std::unique_ptr<Parts> parts_;  // null where ddprun records
};

}  // namespace ddp
