// The events in a thread's ring, as words and back. Pure; what is read is another process's memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp::detail {

// What an event is of. The number is in the ring.
enum class EventKind : std::uint8_t {
  kUser = 0,
  kOther = 1,
  kData = 2,
  kForward = 3,
  kBackward = 4,
  kOptimizer = 5,
  kCheckpoint = 6,
  kEvaluation = 7,
  kClosing = 8,
  kWait = 9,         // for other ranks
  kCollective = 10,  // from here on not within a thread: they end in another one, and overlap
  kBucket = 11,
  kDevice = 12,
};
inline constexpr unsigned kEventKinds = 13;

constexpr bool is_within_thread(EventKind kind) {
  return kind < EventKind::kCollective;
}
// "forward"; the name of its category in the file.
std::string_view category_of(EventKind kind);

enum class RecordType : std::uint8_t {
  kBegin = 1,   // `number` and `value`: of the collective or bucket, and its bytes
  kEnd = 2,     // `number`: the id of what ends
  kMark = 3,    // `number`: the id of a bucket whose transfer begins
  kStep = 4,    // a step has ended; `number`: how many had before, `value`: of the bits below
  kValue = 5,   // `value`: the bits of a double that `text` names
  kSpan = 6,    // the whole of an event; `number`: nanoseconds when it ended, `value`: its stream
  kThread = 7,  // `text`: the name of the thread that has the lane from now on, `number`: its number, `value`: its
                // process's
};

// Of a step's record: it ends at this moment, as the program itself says, or as the next phase begins now; where it is
// not set, the step lasts until the next one's first phase. There may be a record of each kind of the same step.
inline constexpr std::uint64_t kExactEnd = 1;
// It had begun before it was recorded.
inline constexpr std::uint64_t kCutBegin = 2;

// Longer names are cut off.
inline constexpr std::size_t kLongestText = 160;
inline constexpr std::size_t kHeadWords = 4;
inline constexpr std::size_t kMostWords = kHeadWords + kLongestText / 8;

struct Record {
  RecordType type = RecordType::kBegin;
  EventKind kind = EventKind::kUser;
  std::uint64_t time = 0;  // nanoseconds of timeline_clock()
  std::uint64_t number = 0;
  std::uint64_t value = 0;
  std::string_view text{};  // valid while the words are
};

// Writes `record` into the front of `words`, and returns how many they are.
std::size_t encode(const Record& record, std::array<std::uint64_t, kMostWords>& words) noexcept;

// The record at the front of `words` and how many they are; nothing if `words` is empty or has only a part of one.
struct Decoded {
  Record record{};
  std::size_t words = 0;
};
std::optional<Decoded> decode(std::span<const std::uint64_t> words);

// What begins at `position` of lane number `lane`. Never 0.
constexpr std::uint64_t event_id(std::size_t lane, std::uint64_t position) {
  return std::uint64_t{lane} << 48 | ((position + 1) & 0xffff'ffff'ffff);
}
constexpr std::size_t lane_of(std::uint64_t id) {
  return id >> 48;
}

}  // namespace ddp::detail
