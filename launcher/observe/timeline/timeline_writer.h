// Writes the file of a job's timeline, on one node. Unless a comment says otherwise, all functions run in the
// collector's thread, so that a slow disk does not delay other work.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/timeline/trace_builder.h"
#include "base/timeline/trace_event.h"
#include "base/timeline/trace_file.h"
#include "launcher/observe/timeline/node_stream.h"
#include "launcher/os/network/clock_difference.h"

namespace launcher {

// Returns the absolute path without symbolic links. It is shown to users, who may be in another folder.
std::string whole_path(const std::string& file);

// trace.json -> trace.node1.json; trace.node1.restart2.json on a node that has arrived later, because another node may
// have had its number before.
std::string file_of_node(const std::string& file, int node, int restart);

class OwnFiles {
 public:
  void add(const ddp::detail::TraceFile::Identity& file) { files_.push_back(file); }
  // Whether a new recording to `file` would overwrite an earlier one of this job. An empty file does not count.
  bool has(const std::string& file) const;

 private:
  std::vector<ddp::detail::TraceFile::Identity> files_;
};

class TimelineWriter {
 public:
  // Incomplete messages, by node. Their rest belongs to the next file.
  using PartialMessages = std::map<int, std::string>;
  // Throws std::runtime_error, as TraceFile does. Any thread may call it.
  explicit TimelineWriter(const std::string& file, const PartialMessages& partial_messages = {});

  ddp::detail::RecordSink& sink() { return builder_; }
  // Handles bytes that a node has sent. `clock` is what is known of its steady clock.
  void take(int node, std::optional<ClockDifference> clock, const std::string& bytes);
  // Call it regularly. Writes received records to the file every half second.
  void after_pass();

  // Writes all received records, so that events() equals the content of the file, and closes the file.
  void suspend();
  // Continues to write to the file; returns false if it is missing, was changed or is in use.
  bool resume();
  // Writes the rest after the collector's thread has ended.
  PartialMessages finish();

  // Any thread may call it.
  const std::string& path() const { return path_; }
  std::uint64_t events() const { return events_; }
  // Whether suspend() was called after clear_suspended().
  bool is_suspended() const { return is_suspended_; }
  void clear_suspended() { is_suspended_ = false; }
  // True while first records are kept until the clocks are known well; then after_pass() must be called again.
  bool holds_back() const { return holds_back_; }
  std::size_t ended_nodes() const { return ended_nodes_; }
  void forget_ended_nodes() { ended_nodes_ = 0; }
  ddp::detail::TraceFile::Identity identity() const { return file_.identity(); }
  // The path of the file once it is suspended; it may have been renamed.
  std::string place();
  // Why nothing more is written to the file; empty while there is no problem.
  std::string problem();
  // Returns problem() once, and then an empty text.
  std::string take_problem();

 private:
  struct Node {
    std::unique_ptr<NodeStreamReader> reader{};
    std::optional<ClockDifference> clock = std::nullopt;
    std::set<int> ranks{};
    std::optional<std::chrono::steady_clock::time_point> first_bytes = std::nullopt;
    std::string waiting{};
  };
  Node& node_of(int number);
  void feed(Node& node);
  void flush();
  void set_clock(Node& node, int rank, std::int64_t by_day);

  const std::string path_;
  const ddp::detail::ClockPair base_ = ddp::detail::read_clocks();
  ddp::detail::TraceFile file_;
  ddp::detail::TraceBuilder builder_;
  std::map<int, Node> nodes_;
  std::chrono::steady_clock::time_point last_flush_{};
  std::atomic<std::uint64_t> events_{0};
  std::atomic<std::size_t> ended_nodes_{0};
  std::atomic<bool> holds_back_{false};
  std::atomic<bool> is_suspended_{false};
  std::mutex mutex_;
  std::string problem_;
  std::string place_;
  bool is_reported_ = false;
};

}  // namespace launcher
