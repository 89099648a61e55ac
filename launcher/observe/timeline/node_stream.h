// The records of a node's ranks as bytes, in which they are sent to the node that writes the file, and their parser.
// Pure. Received data is checked like a rank's memory.
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

// Any thread may call its functions.
class NodeStreamWriter : public ddp::detail::RecordSink {
 public:
  void begin_rank(int rank, const std::string& name) override;
  void take(int rank, std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words) override;
  void on_pass_end(int rank, std::uint64_t lost) override;
  void pause_rank(int rank, std::uint64_t now) override;
  void end_rank(int rank, std::uint64_t now) override;
  // Marks the end of the records of this attempt.
  void end_node();

  // Returns at most `most` bytes that wait to be sent, and removes them.
  std::string take_bytes(std::size_t most);
  bool is_empty() const;

 private:
  void append(std::string_view message);

  mutable std::mutex mutex_;
  std::string waiting_;
  std::uint64_t left_out_ = 0;  // messages that were dropped, because they were not sent in time
};

class NodeStreamReader {
 public:
  struct Callbacks {
    std::function<void(int rank, const ddp::detail::ClockPair& clocks)> on_clocks{};
    std::function<void()> on_node_end{};
  };
  // Ranks must be below `world_size`. `sink` must outlive this.
  NodeStreamReader(ddp::detail::RecordSink& sink, int world_size, Callbacks callbacks);

  // Returns false once the bytes are not what a NodeStreamWriter writes; it then ignores all further bytes.
  bool feed(std::string_view bytes);
  // The first part of a message whose rest has not arrived.
  const std::string& rest() const { return buffer_; }

 private:
  bool read(std::string_view message);

  ddp::detail::RecordSink& sink_;
  int world_size_;
  Callbacks callbacks_;
  std::string buffer_;
  bool is_broken_ = false;
};

// The recording that the node with the file requests from the others.
std::string to_bytes(const ddp::detail::RecordingPlan& plan);
// Removes all complete plans from the front of `bytes` and returns the last one; nothing if no plan is complete.
std::optional<ddp::detail::RecordingPlan> take_plan(std::string& bytes);

}  // namespace launcher
