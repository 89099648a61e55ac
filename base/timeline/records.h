// Encodes the events in a thread's ring as words, and decodes them. Pure functions; decoding accepts untrusted words,
// because they come from the memory of another process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp::detail {

// The kind of an event. The number is stored in the ring.
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
  kCollective = 10,  // from here on not tied to one thread: they may end in another thread, and may overlap
  kBucket = 11,
  kDevice = 12,
};
inline constexpr unsigned kEventKinds = 13;

constexpr bool is_within_thread(EventKind kind) {
  return kind < EventKind::kCollective;
}
// Returns the category name in the file, such as "forward".
std::string_view category_of(EventKind kind);

enum class RecordType : std::uint8_t {
  kBegin = 1,   // `number`, `value`: the number of the collective or bucket, and its bytes
  kEnd = 2,     // `number`: the ID of the event that ends
  kMark = 3,    // `number`: the ID of a bucket whose transfer begins
  kStep = 4,    // a step has ended; `number`: how many steps had ended before, `value`: the flags below
  kValue = 5,   // `value`: the bit pattern of a double with the name `text`
  kSpan = 6,    // a complete event; `number`: its end in nanoseconds, `value`: its stream
  kThread = 7,  // names the thread of the lane; `text`: its name, `number`: its TID, `value`: its process ID
};

// Flag of a step record: the step ends exactly now, because the program reported its end or the next phase begins now.
// Without the flag, the step lasts until the first phase of the next step. The same step may have one record of each
// kind.
inline constexpr std::uint64_t kExactEnd = 1;
// Flag of a step record: the step began before recording started.
inline constexpr std::uint64_t kCutBegin = 2;

// Longer names are truncated.
inline constexpr std::size_t kMaxRecordTextBytes = 160;
inline constexpr std::size_t kHeadWords = 4;
inline constexpr std::size_t kMaxRecordWords = kHeadWords + kMaxRecordTextBytes / 8;

struct Record {
  RecordType type = RecordType::kBegin;
  EventKind kind = EventKind::kUser;
  std::uint64_t time = 0;  // nanoseconds of timeline_clock()
  std::uint64_t number = 0;
  std::uint64_t value = 0;
  std::string_view text{};  // valid as long as the words are
};

// Encodes `record` at the start of `words`, and returns the number of words.
std::size_t encode(const Record& record, std::array<std::uint64_t, kMaxRecordWords>& words) noexcept;

// The first record in `words` and its number of words; empty if `words` is empty or contains only a part of a record.
struct Decoded {
  Record record{};
  std::size_t words = 0;
};
std::optional<Decoded> decode(std::span<const std::uint64_t> words);

// The ID of the event whose record is at `position` of lane number `lane`. Never 0.
constexpr std::uint64_t event_id(std::size_t lane, std::uint64_t position) {
  return std::uint64_t{lane} << 48 | ((position + 1) & 0xffff'ffff'ffff);
}
constexpr std::size_t lane_of(std::uint64_t id) {
  return id >> 48;
}

}  // namespace ddp::detail
