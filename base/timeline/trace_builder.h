// Makes a timeline's file out of the records of ranks, also of ranks on hosts whose clocks are others.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/timeline/assembler.h"
#include "base/timeline/trace_file.h"

namespace ddp::detail {

// Who takes what a rank's memory holds.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  // Begins a rank, or one of its further processes; `name` is for its lane.
  virtual void begin_rank(int rank, const std::string& name) = 0;
  virtual void take(int rank, std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words) = 0;
  // All lanes of the rank have been read once more, and so many events were lost so far.
  virtual void settle(int rank, std::uint64_t lost) = 0;
  // Recording has been switched off, and all that was recorded has been taken: what is open ends, unfinished.
  virtual void pause_rank(int rank, std::uint64_t now) = 0;
  virtual void end_rank(int rank, std::uint64_t now) = 0;
};

// Of a rank's host: by how many nanoseconds its clock is ahead of this one's, and by how many that may be wrong;
// nothing where the hosts' times of day were compared, which may differ by any amount.
struct RankClock {
  std::int64_t ahead = 0;
  std::optional<std::int64_t> error = std::nullopt;
};

class TraceBuilder : public RecordSink {
 public:
  // `base`: nanoseconds of timeline_clock() that are 0 in the file. `file` must outlive this.
  TraceBuilder(TraceFile& file, std::uint64_t base) : file_(file), base_(static_cast<std::int64_t>(base)) {}

  void begin_rank(int rank, const std::string& name) override;
  void take(int rank, std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words) override;
  void settle(int rank, std::uint64_t lost) override;
  void pause_rank(int rank, std::uint64_t now) override;
  void end_rank(int rank, std::uint64_t now) override;

  // For what is taken from now on. Without it the rank is on this host.
  void set_clock(int rank, const RankClock& clock);
  // But for what only names ranks and lanes.
  std::uint64_t events() const { return events_; }
  std::uint64_t lost() const;

 private:
  struct RankState {
    std::unique_ptr<Assembler> assembler{};
    std::optional<RankClock> clock{};
    std::int64_t largest_error = 0;  // of what was written; -1: nobody knows
    std::uint64_t lost = 0;          // of this process
    std::uint64_t before = 0;        // of those before it, and what made no sense
    std::uint64_t newest = 0;
  };
  void write(int rank, const TraceEvent& event);
  void note_clock(RankState& state);
  void set_totals();

  TraceFile& file_;
  std::int64_t base_;
  std::map<int, RankState> ranks_;
  std::uint64_t events_ = 0;
  bool has_other_clocks_ = false;  // since set_totals()
};

}  // namespace ddp::detail
