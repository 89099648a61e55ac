#include "launcher/nodes/store/reply_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "launcher/nodes/store/request_parser.h"

namespace launcher::store {
namespace {

// A value of at least this size is shared with the reply, not copied.
constexpr std::size_t kMinSharedBytes = 128;
// If so many bytes of a piece were sent, the rest is moved to its beginning.
constexpr std::size_t kMinCompactedBytes = std::size_t{64} << 10;

}  // namespace

std::string& ReplyQueue::packed(std::size_t size) {
  if (pieces_.empty() || pieces_.back().shared) {
    pieces_.emplace_back();
    own_bytes_ += sizeof(Piece);
  }
  size_ += size;
  own_bytes_ += size;
  return pieces_.back().own;
}

void ReplyQueue::add(const Value& bytes) {
  if (bytes->size() < kMinSharedBytes) {
    packed(bytes->size()).append(*bytes);
    return;
  }
  pieces_.push_back({bytes, {}});
  size_ += bytes->size();
  own_bytes_ += sizeof(Piece);
}

bool ReplyQueue::send_to(int socket) {
  while (!pieces_.empty()) {
    std::array<iovec, 64> vectors;
    std::size_t count = 0;
    for (const Piece& piece : pieces_) {
      if (count == vectors.size()) break;
      std::string_view bytes = piece.bytes();
      if (count == 0) bytes.remove_prefix(sent_bytes_of_first_);
      vectors[count].iov_base = const_cast<char*>(bytes.data());
      vectors[count].iov_len = bytes.size();
      ++count;
    }
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN;
    drop_sent(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string ReplyQueue::take(std::size_t size) {
  std::string taken;
  taken.reserve(std::min(size, size_));
  while (!pieces_.empty() && taken.size() < size) {
    const std::string_view part = pieces_.front().bytes().substr(sent_bytes_of_first_, size - taken.size());
    taken.append(part);
    drop_sent(part.size());
  }
  return taken;
}

// If a peer reads slowly, the piece to which replies are appended may never become empty, so its sent part is removed.
void ReplyQueue::forget_sent() {
  std::string& own = pieces_.front().own;
  if (sent_bytes_of_first_ < kMinCompactedBytes || sent_bytes_of_first_ < own.size() / 2 || own.empty()) return;
  own.erase(0, sent_bytes_of_first_);
  own_bytes_ -= sent_bytes_of_first_;
  sent_bytes_of_first_ = 0;
}

void ReplyQueue::drop_sent(std::size_t count) {
  size_ -= count;
  while (!pieces_.empty()) {
    const std::size_t of_first = pieces_.front().bytes().size() - sent_bytes_of_first_;
    if (count < of_first) {
      sent_bytes_of_first_ += count;
      forget_sent();
      return;
    }
    count -= of_first;
    sent_bytes_of_first_ = 0;
    own_bytes_ -= pieces_.front().own.size() + sizeof(Piece);
    pieces_.pop_front();
  }
}

std::vector<ConnectionId> ReplyRouter::take_ready_connections() {
  return std::exchange(ready_connections_, {});
}

ReplyQueue& ReplyRouter::replies_of(ConnectionId to) {
  ReplyQueue& replies = *queues_.at(to);
  if (replies.is_empty()) ready_connections_.push_back(to);
  return replies;
}

void ReplyRouter::send_u8(ConnectionId to, std::uint8_t value) {
  append_integer(replies_of(to).packed(sizeof value), value);
}

void ReplyRouter::send_u32(ConnectionId to, std::uint32_t value) {
  append_integer(replies_of(to).packed(sizeof value), value);
}

void ReplyRouter::send_i64(ConnectionId to, std::int64_t value) {
  append_integer(replies_of(to).packed(sizeof value), value);
}

void ReplyRouter::send_bytes(ConnectionId to, const Value& value) {
  send_i64(to, static_cast<std::int64_t>(value->size()));
  send_raw(to, value);
}

void ReplyRouter::send_raw(ConnectionId to, const Value& bytes) {
  replies_of(to).add(bytes);
}

}  // namespace launcher::store
