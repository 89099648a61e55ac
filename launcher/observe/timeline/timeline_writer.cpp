#include "launcher/observe/timeline/timeline_writer.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace launcher {
namespace {

using Clock = std::chrono::steady_clock;

// More than any job has. A launcher sends no larger number.
constexpr int kMaxRankCount = 1 << 20;
constexpr std::chrono::milliseconds kFlushInterval{500};
// How long the first records of a node are kept, until its clock is known well. There are ten clock measurements in a
// second, and a single one may have been delayed.
constexpr std::chrono::milliseconds kMaxHoldTime{600};
constexpr std::size_t kMaxWaitingEvents = std::size_t{16} << 20;
constexpr std::size_t kFlushBytes = std::size_t{1} << 20;

}  // namespace

std::string whole_path(const std::string& file) {
  std::error_code error;
  const auto path = std::filesystem::absolute(file);
  const auto whole = std::filesystem::weakly_canonical(path, error);
  return error ? path.lexically_normal().string() : whole.string();
}

std::string file_of_node(const std::string& file, int node, int restart) {
  std::filesystem::path path = file;
  const std::string extension = path.extension().string();
  const std::string place =
      ".node" + std::to_string(node) + (restart > 0 ? ".restart" + std::to_string(restart) : std::string());
  return path.replace_extension(place + (extension.empty() ? ".json" : extension)).string();
}

bool OwnFiles::has(const std::string& file) const {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0 || status.st_size == 0) return false;
  const ddp::detail::TraceFile::Identity identity(status.st_dev, status.st_ino);
  return std::find(files_.begin(), files_.end(), identity) != files_.end();
}

TimelineWriter::TimelineWriter(const std::string& file, const PartialMessages& partial_messages)
    : path_(file), file_(file, ddp::detail::metadata_json(base_, -1, 0)), builder_(file_, base_.steady) {
  for (const auto& [number, rest] : partial_messages) node_of(number).reader->feed(rest);
}

TimelineWriter::Node& TimelineWriter::node_of(int number) {
  Node& node = nodes_[number];
  if (!node.reader) {
    node.reader = std::make_unique<NodeStreamReader>(
        builder_, kMaxRankCount,
        NodeStreamReader::Callbacks{.on_clocks =
                                        [this, &node](int rank, const ddp::detail::ClockPair& theirs) {
                                          // If there is no clock measurement yet, the hosts' times of day are compared.
                                          const std::int64_t by_day =
                                              static_cast<std::int64_t>(theirs.steady - base_.steady) -
                                              (theirs.wall - base_.wall);
                                          node.ranks.insert(rank);
                                          set_clock(node, rank, by_day);
                                        },
                                    .on_node_end = [this] { ++ended_nodes_; }});
  }
  return node;
}

void TimelineWriter::take(int number, std::optional<ClockDifference> clock, const std::string& bytes) {
  Node& node = node_of(number);
  if (clock) {
    node.clock = clock;
    for (const int rank : node.ranks) set_clock(node, rank, 0);
  }
  if (!node.first_bytes) node.first_bytes = Clock::now();
  node.waiting += bytes;
  if (node.waiting.size() > kMaxWaitingEvents || Clock::now() - *node.first_bytes > kMaxHoldTime) feed(node);
  holds_back_ = true;
}

void TimelineWriter::feed(Node& node) {
  if (node.reader) node.reader->feed(std::exchange(node.waiting, {}));
}

void TimelineWriter::set_clock(Node& node, int rank, std::int64_t by_day) {
  if (node.clock) {
    builder_.set_clock(rank, {.ahead = node.clock->ahead * 1000, .error = node.clock->error * 1000});
  } else {
    builder_.set_clock(rank, {.ahead = by_day});
  }
}

void TimelineWriter::after_pass() {
  const auto now = Clock::now();
  bool holds_back = false;
  for (auto& [number, node] : nodes_) {
    if (node.first_bytes && now - *node.first_bytes > kMaxHoldTime) feed(node);
    holds_back = holds_back || !node.waiting.empty();
  }
  holds_back_ = holds_back;
  events_ = builder_.events();
  if (file_.waiting() < kFlushBytes && now - last_flush_ < kFlushInterval) return;
  last_flush_ = now;
  flush();
}

void TimelineWriter::suspend() {
  file_.suspend();
  flush();
  events_ = builder_.events();
  {
    const std::lock_guard lock(mutex_);
    place_ = file_.place();
  }
  is_suspended_ = true;
}

bool TimelineWriter::resume() {
  return file_.resume();
}

std::string TimelineWriter::place() {
  const std::lock_guard lock(mutex_);
  return place_.empty() ? path_ : place_;
}

TimelineWriter::PartialMessages TimelineWriter::finish() {
  PartialMessages partial_messages;
  for (auto& [number, node] : nodes_) {
    feed(node);
    if (node.reader && !node.reader->rest().empty()) partial_messages[number] = node.reader->rest();
  }
  flush();
  return partial_messages;
}

void TimelineWriter::flush() {
  file_.flush();
  const std::lock_guard lock(mutex_);
  problem_ = file_.problem();
}

std::string TimelineWriter::problem() {
  const std::lock_guard lock(mutex_);
  return problem_;
}

std::string TimelineWriter::take_problem() {
  const std::lock_guard lock(mutex_);
  return problem_.empty() || std::exchange(is_reported_, true) ? "" : problem_;
}

}  // namespace launcher
