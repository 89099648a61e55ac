// What this rank has called in one group, in order: the last collectives, and which of them have ended. No LibTorch.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/spin_lock.h"

namespace ddp::detail {

/// One collective of a group. `signature` is what all ranks must have called in the same place: operation, root,
/// dtype, shape.
struct CallRecord {
  uint64_t number = 0;
  bool ended = false;
  std::string signature{};

  friend bool operator==(const CallRecord&, const CallRecord&) = default;
};

/// Two calls of equal shape have one signature. Texts are literals, compared by their address.
struct CallShape {
  static constexpr size_t kDimensions = 4;

  const char* operation = nullptr;
  const char* how = nullptr;
  int dtype = 0;
  size_t dimensions = 0;
  std::array<int64_t, kDimensions> sizes{};

  bool operator==(const CallShape& other) const {
    if (operation != other.operation || how != other.how || dtype != other.dtype || dimensions != other.dimensions) {
      return false;
    }
    for (size_t i = 0; i < dimensions; ++i) {
      if (sizes[i] != other.sizes[i]) return false;
    }
    return true;
  }
};

/// What a rank says of itself in one group.
struct RankReport {
  std::vector<CallRecord> calls{};         ///< the last ones, in order
  std::chrono::milliseconds since_last{};  ///< since the last begin or end
  bool compares = false;                   ///< waits in a comparison, which is not a collective

  friend bool operator==(const RankReport&, const RankReport&) = default;
};

/// What page_clock() says at `time`: the clock of the pages is this one.
inline uint64_t microseconds_of(std::chrono::steady_clock::time_point time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count());
}

/// Lines of text, and back. Throws std::invalid_argument for other text.
std::string to_text(const RankReport& report);
RankReport report_from(const std::string& text);

/// From any thread.
class CallLog {
 public:
  using Clock = std::chrono::steady_clock;

  /// With `group`, the result of PageWriter::add_group(), the calls are also written to this process's progress page.
  explicit CallLog(std::optional<uint32_t> group = std::nullopt) : group_(group) {}

  /// `in_background`: the rank continues to compute during the call, until PageWriter::settle_background().
  void begin(uint64_t number, std::string_view signature, bool in_background = false);
  /// The same with the number after that of the last one, from 0, which is returned.
  uint64_t begin_next(std::string_view signature, bool in_background = false);
  /// A call that its caller waits for.
  struct StartedCall {
    uint64_t number = 0;
    uint64_t time = 0;  ///< by page_clock()
    uint64_t in_page = 0;
    bool is_recorded = false;  ///< is in the timeline
  };
  /// The same at `now`, which costs the caller no memory: `append(std::string&)` writes the signature, if the last
  /// shape was another one. `has_ended`: within a microsecond, as mostly; who sees that it lasts calls reopen(), and
  /// then, or where it is recorded, end().
  template <typename Append>
  requires std::invocable<const Append&, std::string&> StartedCall begin_next(Clock::time_point now,
                                                                              const CallShape& shape,
                                                                              const Append& append, bool has_ended) {
    const std::lock_guard lock(mutex_);
    if (shape != shape_) {
      text_of_shape_.clear();
      append(text_of_shape_);
      shape_ = shape;
      ++texts_;
    }
    Entry& entry = add(next_number_, /*in_background=*/false);
    if (entry.text != texts_) entry.call.signature = text_of_shape_;
    entry.text = texts_;
    entry.call.ended = has_ended;
    const auto begin = std::max(now, last_);  // `now` may be by a coarse clock
    show(entry, begin);
    return {next_number_++, microseconds_of(begin), entry.in_page, entry.event != 0};
  }
  /// The call has begun at `now`, by a more exact clock than before, and has not ended.
  void reopen(StartedCall& call, Clock::time_point now);
  /// `waits_since`: the caller has waited for it since then, by page_clock().
  void end(uint64_t number, std::optional<uint64_t> waits_since = std::nullopt);
  /// A message between two ranks, which has no place in the order that all ranks keep: it is in the page only.
  /// Returns what end_message() wants.
  uint64_t begin_message(std::string_view signature);
  void end_message(uint64_t index, uint64_t waits_since);
  void set_compares(bool compares);
  RankReport report() const;

  /// The number of calls that are kept: ranks are compared over them.
  static constexpr size_t kHistorySize = 64;

 private:
  struct Entry {
    CallRecord call;
    uint64_t in_page = 0;
    bool in_background = false;
    uint64_t event = 0;  // in the timeline
    uint64_t text = 0;   // which text_of_shape_ its signature is; 0: none
  };

  // With the lock: a new call; its entry, without a signature yet; what it is in the page and the timeline.
  void add(uint64_t number, std::string_view signature, bool in_background);
  Entry& add(uint64_t number, bool in_background);
  void show(Entry& entry, Clock::time_point now);
  Entry* find(uint64_t number);

  const std::optional<uint32_t> group_;
  mutable SpinLock mutex_;
  std::vector<Entry> calls_;  // the last ones: call n is at n % kHistorySize, and its text keeps its memory
  uint64_t begun_ = 0;
  uint64_t next_number_ = 0;
  Clock::time_point last_ = Clock::now();
  bool compares_ = false;
  uint64_t messages_ = 0;
  static constexpr size_t kMaxOpenCalls = 1000;  // as the page has
  std::map<uint64_t, Entry> open_;               // by number: the newest calls of before those that have not ended
  CallShape shape_;                              // of the text
  std::string text_of_shape_;
  uint64_t texts_ = 0;  // how many there were
};

}  // namespace ddp::detail
