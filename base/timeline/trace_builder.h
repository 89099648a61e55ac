// Builds a timeline file from the records of ranks, including ranks on hosts with different clocks.
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

// Receives the records from the memory of the ranks.
class RecordSink {
 public:
  virtual ~RecordSink() = default;
  // Begins a rank, or a further process of a rank. `name` is the name of its lane.
  virtual void begin_rank(int rank, const std::string& name) = 0;
  virtual void take(int rank, std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words) = 0;
  // All lanes of the rank have been read once more. `lost` is the number of events lost so far.
  virtual void on_pass_end(int rank, std::uint64_t lost) = 0;
  // Recording has been switched off and all records have been passed on: open events end here, as unfinished.
  virtual void pause_rank(int rank, std::uint64_t now) = 0;
  virtual void end_rank(int rank, std::uint64_t now) = 0;
};

// The clock of a rank's host: how many nanoseconds it is ahead of this host's clock, and the maximum error of that
// value. The error is nullopt if only the hosts' times of day were compared, which may differ by any amount.
struct RankClock {
  std::int64_t ahead = 0;
  std::optional<std::int64_t> error = std::nullopt;
};

class TraceBuilder : public RecordSink {
 public:
  // `base`: the value of timeline_clock() that is time 0 in the file. `file` must outlive this object.
  TraceBuilder(TraceFile& file, std::uint64_t base) : file_(file), base_(static_cast<std::int64_t>(base)) {}

  void begin_rank(int rank, const std::string& name) override;
  void take(int rank, std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words) override;
  void on_pass_end(int rank, std::uint64_t lost) override;
  void pause_rank(int rank, std::uint64_t now) override;
  void end_rank(int rank, std::uint64_t now) override;

  // Applies to subsequent records. Without a call, the rank is assumed to be on this host.
  void set_clock(int rank, const RankClock& clock);
  // The number of events, without those that only name ranks and lanes.
  std::uint64_t events() const { return events_; }
  std::uint64_t lost() const;

 private:
  struct RankState {
    std::unique_ptr<Assembler> assembler{};
    std::optional<RankClock> clock{};
    std::int64_t largest_error = 0;  // of the written events; -1: unknown
    std::uint64_t lost = 0;          // of the current process
    std::uint64_t before = 0;        // of earlier processes, plus invalid records
    std::uint64_t newest = 0;
  };
  void write(int rank, const TraceEvent& event);
  void note_clock(RankState& state);
  void set_totals();

  TraceFile& file_;
  std::int64_t base_;
  std::map<int, RankState> ranks_;
  std::uint64_t events_ = 0;
  bool has_other_clocks_ = false;  // since the last set_totals()
};

}  // namespace ddp::detail
