// What a pickle remembers under numbers, to be used again. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "checkpoint/pt/value.h"

namespace ddp::pt {

/// Values by number. Python 3 counts from 0, Python 2 from 1, and both may leave gaps, so any number is accepted. The
/// memory follows the number of entries, not the numbers: at most some 64 bytes for each.
class Memo {
 public:
  void put(uint64_t number, Value value) {
    if (number >= kMaxUnused + 2 * uint64_t{count_}) {
      if (sparse_.insert_or_assign(number, value).second) ++count_;
      return;
    }
    const auto place = static_cast<size_t>(number);
    if (place >= dense_.size()) {
      dense_.resize(place + 1);
      is_used_.resize(place + 1);
    }
    if (!is_used_[place] && sparse_.erase(number) == 0) ++count_;
    is_used_[place] = true;
    dense_[place] = value;
  }

  /// The opcode MEMOIZE: under the number of entries.
  void append(Value value) { put(count_, value); }

  /// Null where nothing was put.
  const Value* get(uint64_t number) const {
    if (number < dense_.size() && is_used_[static_cast<size_t>(number)]) return &dense_[static_cast<size_t>(number)];
    const auto found = sparse_.find(number);
    return found != sparse_.end() ? &found->second : nullptr;
  }

 private:
  static constexpr uint64_t kMaxUnused = 64;

  std::deque<Value> dense_;  // no more than kMaxUnused + 2 * count_
  std::vector<bool> is_used_;
  std::unordered_map<uint64_t, Value> sparse_;
  size_t count_ = 0;
};

}  // namespace ddp::pt
