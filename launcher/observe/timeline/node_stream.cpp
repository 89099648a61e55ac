#include "launcher/observe/timeline/node_stream.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace launcher {
namespace {

using ddp::detail::kLanes;
using ddp::detail::kLaneWords;

// The most bytes that wait for the connection. Beyond this limit new records are dropped.
constexpr std::size_t kMaxWaitingBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxStreamMessageBytes = 64 + kLaneWords * sizeof(std::uint64_t);

enum class MessageKind : std::uint8_t { kBegin = 1, kWords = 2, kPassEnd = 3, kEndRank = 4, kEndNode = 5, kPause = 6 };

template <typename Number>
void put(std::string& to, Number number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::string message_of(MessageKind kind, int rank) {
  std::string text;
  put(text, kind);
  put(text, static_cast<std::int32_t>(rank));
  return text;
}

// Takes numbers from the front of a text. After the first missing number, all are 0.
class Front {
 public:
  explicit Front(std::string_view text) : text_(text) {}
  template <typename Number>
  Number number() {
    Number value{};
    if (text_.size() < sizeof value) {
      is_good_ = false;
      text_ = {};
      return value;
    }
    std::memcpy(&value, text_.data(), sizeof value);
    text_.remove_prefix(sizeof value);
    return value;
  }
  std::string_view rest() const { return text_; }
  bool is_good() const { return is_good_; }

 private:
  std::string_view text_;
  bool is_good_ = true;
};

}  // namespace

void NodeStreamWriter::append(std::string_view message) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() + message.size() > kMaxWaitingBytes) {
    ++left_out_;
    return;
  }
  put(waiting_, static_cast<std::uint32_t>(message.size()));
  waiting_ += message;
}

void NodeStreamWriter::begin_rank(int rank, const std::string& name) {
  const auto clocks = ddp::detail::read_clocks();
  std::string message = message_of(MessageKind::kBegin, rank);
  put(message, clocks.steady);
  put(message, clocks.wall);
  append(message.append(name.substr(0, 256)));
}

void NodeStreamWriter::take(int rank, std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words) {
  std::string message = message_of(MessageKind::kWords, rank);
  put(message, static_cast<std::uint8_t>(lane));
  put(message, position);
  message.append(reinterpret_cast<const char*>(words.data()), words.size_bytes());
  append(message);
}

void NodeStreamWriter::on_pass_end(int rank, std::uint64_t lost) {
  std::string message = message_of(MessageKind::kPassEnd, rank);
  std::uint64_t left_out = 0;
  {
    const std::lock_guard lock(mutex_);
    left_out = left_out_;
  }
  put(message, lost + left_out);
  append(message);
}

void NodeStreamWriter::pause_rank(int rank, std::uint64_t now) {
  std::string message = message_of(MessageKind::kPause, rank);
  put(message, now);
  append(message);
}

void NodeStreamWriter::end_rank(int rank, std::uint64_t now) {
  std::string message = message_of(MessageKind::kEndRank, rank);
  put(message, now);
  append(message);
}

void NodeStreamWriter::end_node() {
  append(message_of(MessageKind::kEndNode, 0));
}

std::string NodeStreamWriter::take_bytes(std::size_t most) {
  const std::lock_guard lock(mutex_);
  std::string taken = waiting_.substr(0, most);
  waiting_.erase(0, taken.size());
  return taken;
}

bool NodeStreamWriter::is_empty() const {
  const std::lock_guard lock(mutex_);
  return waiting_.empty();
}

NodeStreamReader::NodeStreamReader(ddp::detail::RecordSink& sink, int world_size, Callbacks callbacks)
    : sink_(sink), world_size_(world_size), callbacks_(std::move(callbacks)) {}

bool NodeStreamReader::feed(std::string_view bytes) {
  if (is_broken_) return false;
  buffer_ += bytes;
  std::string_view rest = buffer_;
  while (rest.size() >= sizeof(std::uint32_t)) {
    Front front(rest);
    const auto length = front.number<std::uint32_t>();
    is_broken_ = length > kMaxStreamMessageBytes;
    if (is_broken_ || front.rest().size() < length) break;
    is_broken_ = !read(front.rest().substr(0, length));
    rest = front.rest().substr(length);
    if (is_broken_) break;
  }
  buffer_.erase(0, buffer_.size() - rest.size());
  if (is_broken_) buffer_ = {};
  return !is_broken_;
}

bool NodeStreamReader::read(std::string_view message) {
  Front front(message);
  const auto kind = front.number<MessageKind>();
  const int rank = front.number<std::int32_t>();
  if (!front.is_good() || rank < 0 || rank >= world_size_) return false;
  switch (kind) {
    case MessageKind::kBegin: {
      const auto steady = front.number<std::uint64_t>();
      const auto wall = front.number<std::int64_t>();
      if (!front.is_good()) return false;
      callbacks_.on_clocks(rank, {.steady = steady, .wall = wall});
      sink_.begin_rank(rank, std::string(front.rest()));
      return true;
    }
    case MessageKind::kWords: {
      const std::size_t lane = front.number<std::uint8_t>();
      const auto position = front.number<std::uint64_t>();
      if (!front.is_good() || lane >= kLanes || front.rest().size() % sizeof(std::uint64_t) != 0) return false;
      std::vector<std::uint64_t> words(front.rest().size() / sizeof(std::uint64_t));
      if (!words.empty()) std::memcpy(words.data(), front.rest().data(), front.rest().size());
      sink_.take(rank, lane, position, words);
      return true;
    }
    case MessageKind::kPassEnd:
      sink_.on_pass_end(rank, front.number<std::uint64_t>());
      return front.is_good();
    case MessageKind::kPause:
      sink_.pause_rank(rank, front.number<std::uint64_t>());
      return front.is_good();
    case MessageKind::kEndRank:
      sink_.end_rank(rank, front.number<std::uint64_t>());
      return front.is_good();
    case MessageKind::kEndNode:
      callbacks_.on_node_end();
      return true;
  }
  return false;
}

std::string to_bytes(const ddp::detail::RecordingPlan& plan) {
  std::string bytes;
  put(bytes, plan.mode);
  put(bytes, plan.first);
  put(bytes, plan.last);
  return bytes;
}

std::optional<ddp::detail::RecordingPlan> take_plan(std::string& bytes) {
  using ddp::detail::RecordingMode;
  constexpr std::size_t kBytes = 3 * sizeof(std::uint64_t);
  std::optional<ddp::detail::RecordingPlan> plan;
  for (; bytes.size() >= kBytes; bytes.erase(0, kBytes)) {
    Front front(bytes);
    const auto mode = front.number<RecordingMode>();
    const auto first = front.number<std::uint64_t>();
    const auto last = front.number<std::uint64_t>();
    if (mode <= RecordingMode::kSteps) plan = {.mode = mode, .first = first, .last = last};
  }
  return plan;
}

}  // namespace launcher
