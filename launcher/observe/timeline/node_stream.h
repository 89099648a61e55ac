// The records of a node's ranks on their way to the node that writes the file: as bytes, and back. Pure; what comes is
// believed no further than a rank's memory is.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "base/timeline/collector.h"
#include "base/timeline/trace_builder.h"
#include "base/timeline/trace_event.h"

namespace launcher {

// Any thread may call it.
class NodeStreamWriter : public ddp::detail::RecordSink {
 public:
  void begin_rank(int rank, const std::string& name) override;
  void take(int rank, std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words) override;
  void settle(int rank, std::uint64_t lost) override;
  void pause_rank(int rank, std::uint64_t now) override;
  void end_rank(int rank, std::uint64_t now) override;
  // Nothing more comes of this attempt.
  void end_node();

  // Takes at most `most` bytes of what is to be sent.
  std::string take_bytes(std::size_t most);
  bool is_empty() const;

 private:
  void append(std::string_view message);

  mutable std::mutex mutex_;
  std::string waiting_;
  std::uint64_t left_out_ = 0;  // messages that were not read in time
};

class NodeStreamReader {
 public:
  struct Callbacks {
    std::function<void(int rank, const ddp::detail::ClockPair& clocks)> on_clocks{};
    std::function<void()> on_node_end{};
  };
  // Ranks are below `world_size`. `sink` must outlive this.
  NodeStreamReader(ddp::detail::RecordSink& sink, int world_size, Callbacks callbacks);

  // False once something came that no NodeStreamWriter writes; then it reads no further.
  bool feed(std::string_view bytes);
  // The beginning of a message whose rest has not come.
  const std::string& rest() const { return buffer_; }

 private:
  bool read(std::string_view message);

  ddp::detail::RecordSink& sink_;
  int world_size_;
  Callbacks callbacks_;
  std::string buffer_;
  bool is_broken_ = false;
};

// What the writer of the file asks the others to record.
std::string to_bytes(const ddp::detail::RecordingPlan& plan);
// Takes the whole ones from the front of `bytes`; the last one counts. Nothing otherwise.
std::optional<ddp::detail::RecordingPlan> take_plan(std::string& bytes);

}  // namespace launcher
