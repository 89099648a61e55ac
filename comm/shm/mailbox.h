// Internal: the messages of a rank that are under way. A sender announces each; the receiver, when it has a place for
// one, says which it wants, and the bytes follow piece by piece. So nothing is stored for anybody, and tags may be
// received in any order. One thread at a time. No LibTorch.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "comm/shm/operation.h"

namespace ddp::shm {

class Message final : public Operation {
 public:
  enum class Direction { kSend, kReceive };
  static constexpr int kAnyRank = -1;

  Message(Direction direction, int peer, uint64_t tag, std::byte* data, size_t bytes)
      : direction_(direction), peer_(peer), tag_(tag), data_(data), bytes_(bytes) {}

  Direction direction() const { return direction_; }
  /// To or from whom; for a receipt from any rank kAnyRank until one was found.
  int peer() const { return peer_; }
  uint64_t tag() const { return tag_; }
  size_t bytes() const { return bytes_; }

 private:
  friend class Mailbox;

  const Direction direction_;
  int peer_;
  const uint64_t tag_;
  std::byte* const data_;
  const size_t bytes_;
  size_t done_ = 0;  // bytes
};

using MessagePtr = std::shared_ptr<Message>;

class Mailbox {
 public:
  struct Ended {
    MessagePtr message;
    std::exception_ptr error;
  };

  explicit Mailbox(int ranks) : outgoing_(static_cast<size_t>(ranks)), incoming_(static_cast<size_t>(ranks)) {}

  void add(MessagePtr message);
  /// Those that are left.
  bool is_empty() const { return messages_ == 0; }
  /// Does what can be done now and appends what has ended to `ended`; `moved` becomes true if there was something.
  void advance(SlotAccess& slots, bool& moved, std::vector<Ended>& ended);
  /// Whom a message waits for.
  static Awaited awaited(const Message& message, const SlotAccess& slots);
  /// All that have not ended.
  std::vector<MessagePtr> all() const;
  /// Forgets a message; false where its bytes are moving or others know of it.
  bool remove(const Message& message);

 private:
  struct Outgoing {
    std::deque<MessagePtr> to_announce;
    std::map<uint64_t, MessagePtr> announced;  // by number
    MessagePtr current;
    uint64_t granted = 0;
  };
  struct Note {
    uint64_t number;
    Announcement announcement;
  };
  struct Incoming {
    std::deque<Note> notes;  // of messages without a receive yet
    MessagePtr current;
  };

  bool send(SlotAccess& slots, int to, std::vector<Ended>& ended);
  bool announce(SlotAccess& slots, int to, Outgoing& outgoing);
  bool fill(SlotAccess& slots, int to, Outgoing& outgoing, std::vector<Ended>& ended);
  bool receive(SlotAccess& slots, std::vector<Ended>& ended);
  bool read_notes(SlotAccess& slots, int from);
  bool match(SlotAccess& slots, const MessagePtr& message, std::vector<Ended>& ended, bool& is_taken);
  bool drain(SlotAccess& slots, int from, std::vector<Ended>& ended);
  void end(const MessagePtr& message, std::exception_ptr error, std::vector<Ended>& ended);

  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::list<MessagePtr> wanted_;  // receipts without a sender yet, in their order
  size_t messages_ = 0;
};

}  // namespace ddp::shm
