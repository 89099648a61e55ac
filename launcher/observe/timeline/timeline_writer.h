// The file of a job's timeline, on the node that writes it. Unless stated otherwise, everything runs in the collector's
// thread, so that a slow disk does not delay other work.
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

// The files that a job's timelines have been written to.
// The absolute path without links, as it is reported to users, who may be in another folder.
std::string whole_path(const std::string& file);

// trace.json -> trace.node1.json, and trace.node1.restart2.json on a node that has arrived later: where they come and
// go, another one may have had its number before.
std::string file_of_node(const std::string& file, int node, int restart);

class OwnFiles {
 public:
  void add(const ddp::detail::TraceFile::Identity& file) { files_.push_back(file); }
  // Whether writing to `file` again would destroy an earlier recording. An empty file does not count.
  bool has(const std::string& file) const;

 private:
  std::vector<ddp::detail::TraceFile::Identity> files_;
};

class TimelineWriter {
 public:
  // Beginnings of messages, by node, whose rest belongs to the next file.
  using Rests = std::map<int, std::string>;
  // Throws std::runtime_error, as TraceFile does. In any thread.
  explicit TimelineWriter(const std::string& file, const Rests& rests = {});

  ddp::detail::RecordSink& sink() { return builder_; }
  // What a node has sent, and what is known of its steady clock.
  void take(int node, std::optional<ClockDifference> clock, const std::string& bytes);
  // Every now and then: what has arrived is in the file half a second later.
  void after_pass();

  // Writes all that has arrived, so that events() is what the file has; the file is closed.
  void settle();
  // Continues in the file; false if it is missing, was changed or is in use.
  bool resume();
  // The same, once the thread has ended.
  Rests finish();

  // In any thread.
  const std::string& path() const { return path_; }
  std::uint64_t events() const { return events_; }
  // settle() has been done since unsettle().
  bool is_settled() const { return is_settled_; }
  void unsettle() { is_settled_ = false; }
  // What nodes sent first waits until their clocks are known well: after_pass() is to be called again.
  bool holds_back() const { return holds_back_; }
  std::size_t ended_nodes() const { return ended_nodes_; }
  void forget_ended_nodes() { ended_nodes_ = 0; }
  ddp::detail::TraceFile::Identity identity() const { return file_.identity(); }
  // Where the file is, which may have been renamed, once it is settled.
  std::string place();
  // Why the file grows no more; empty while all is well.
  std::string problem();
  // The same, but empty once it was told.
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
  std::atomic<bool> is_settled_{false};
  std::mutex mutex_;
  std::string problem_;
  std::string place_;
  bool is_reported_ = false;
};

}  // namespace launcher
