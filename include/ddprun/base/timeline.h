// A timeline of what each rank does, which Perfetto (https://ui.perfetto.dev) and chrome://tracing show and
// `ddprun-timeline` explains. `ddprun --timeline FILE` records one of all ranks; ddp::Timeline does it in the program,
// under any launcher. No LibTorch here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string_view>

namespace ddp::timeline {

/// Whether events are being recorded now.
bool is_recording() noexcept;

/// While it lives, the calling thread is in the range `name`, of which 160 bytes are kept: a slice in its lane.
/// Objects nest; the thread that made one destroys it. No system call, and it never waits: where events come faster
/// than they can be written they are lost, and counted.
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
  std::int64_t end_step = std::numeric_limits<std::int64_t>::max();  ///< the first step that is not recorded any more
  bool starts = true;                                                ///< at once, not with start()
};

/// Records this process's timeline. In a job of several ranks each writes a file of its own, `trace.rank3.json` for
/// `trace.json`, after a restart of the job `trace.rank3.restart1.json`, and `ddprun-timeline merge` joins them. The
/// file is valid JSON at any time, also when the process is killed. Where ddprun records a timeline of the job, that
/// one is written and this object does nothing.
///
/// One at a time in a process. Throws std::runtime_error, naming the rank and the file, when the file cannot be
/// written; a disk that is full later ends the timeline with a line on standard error, and nothing else.
class Timeline {
 public:
  /// Opens this rank's file and begins to record, unless `options` say otherwise.
  explicit Timeline(const std::filesystem::path& file, const TimelineOptions& options = {});
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  /// From now on events are recorded, whatever the step.
  void start();
  /// No longer, until the next start().
  void stop();

  /// This rank's file.
  const std::filesystem::path& file() const { return file_; }

 private:
  struct Parts;
  std::filesystem::path file_;
  std::unique_ptr<Parts> parts_;  // null where ddprun records
};

}  // namespace ddp
