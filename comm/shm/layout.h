// Internal: what lies in the memory that the ranks of one host share. Every counter has one writer and only grows, so a
// rank that dies leaves nothing locked. No LibTorch.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddp::shm {

inline constexpr size_t kLine = 64;  // of the cache

inline constexpr uint64_t kMagic = 0x3230'6d68'7370'6464;  // "ddpshm02"
inline constexpr uint64_t kSlots = 4;                      // of a rank: rounds under way
inline constexpr size_t kSlotBytes = size_t{128} << 10;    // a rank's part in a round
inline constexpr uint64_t kChannelSlots = 4;
inline constexpr size_t kChannelSlotBytes = size_t{32} << 10;
inline constexpr uint64_t kAnnouncements = 64;  // messages of a pair that may wait for their receiver at once

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

struct Header {
  uint64_t magic;
  uint64_t ranks;
  std::array<char, 32> token;  // who opened the right memory finds the text that the ticket says
};

enum class Presence : uint32_t { kAttaching, kAttached, kLeft, kFailed };

/// What a rank says of itself.
struct RankBlock {
  alignas(kLine) std::atomic<uint64_t> combined;    ///< rounds whose share this rank has combined
  alignas(kLine) std::atomic<uint64_t> taken;       ///< rounds in which it reads no slot any more
  alignas(kLine) std::atomic<uint32_t> wake_count;  ///< counts when it is woken: the futex
  std::atomic<uint32_t> sleeping;                   ///< what for, see futex_sleep.h
  alignas(kLine) std::atomic<Presence> presence;
  std::atomic<int32_t> processor;  ///< on which it was seen last; counted from 1
  int32_t pid;
  uint64_t start_time;             ///< the process's, which distinguishes it from a later one with the same pid
  std::atomic<int32_t> waits_for;  ///< rank, counted from 1, for which it waited when it last looked around; 0: none
  std::atomic<int64_t> last_checked_ns;  ///< when that was: nanoseconds of the host's steady clock
  std::array<char, 240> why;
};

/// What every rank must have called alike.
struct Signature {
  uint8_t kind = 0;
  uint8_t dtype = 0;
  uint8_t op = 0;
  uint8_t options = 0;
  uint16_t root = 0;
  uint16_t purpose = 0;  ///< 0, or whose gradient it is (comm/core/call_purpose.h)
  uint64_t bytes = 0;

  bool operator==(const Signature&) const = default;
};

/// A rank's part in one round. Data that fits `inline_data` is in the cache line of the stamp, so that it costs one
/// miss.
struct SlotHeader {
  alignas(kLine) std::atomic<uint64_t> stamp;  ///< the round, counted from 1, when the slot is filled
  Signature signature;
  uint64_t taken;  ///< the rank's RankBlock::taken when it filled this, which saves others a look at that
  std::array<std::byte, 32> inline_data;
};
static_assert(sizeof(SlotHeader) == kLine);

struct Announcement {
  uint64_t bytes;
  uint64_t tag;
};

/// Messages from one rank to another. The receiver chooses the one that is to come next.
struct Channel {
  alignas(kLine) std::atomic<uint64_t> announced;  ///< sender: messages, each with a place in the ring
  std::atomic<uint64_t> filled;                    ///< sender: pieces, of all messages
  alignas(kLine) std::atomic<uint64_t> noted;      ///< receiver: announcements that it has read
  std::atomic<uint64_t> granted;                   ///< receiver: number of the message that may come, from 1
  std::atomic<uint64_t> drained;                   ///< receiver: pieces
  alignas(kLine) std::array<Announcement, kAnnouncements> ring;
  alignas(kLine) std::array<std::array<std::byte, kChannelSlotBytes>, kChannelSlots> pieces;
};

constexpr size_t aligned(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

/// Where each part of a segment of `ranks` ranks begins, in bytes.
struct Places {
  explicit constexpr Places(size_t ranks)
      : blocks(aligned(sizeof(Header), kLine)),
        slot_headers(blocks + ranks * sizeof(RankBlock)),
        slots(aligned(slot_headers + ranks * kSlots * sizeof(SlotHeader), 4096)),
        channels(slots + ranks * kSlots * kSlotBytes),
        end(aligned(channels + ranks * ranks * sizeof(Channel), 4096)) {}

  size_t blocks, slot_headers, slots;
  size_t channels;  ///< from here on memory is taken when a pair's first message is sent
  size_t end;
};

}  // namespace ddp::shm
