// Texts for collectives, made from the signatures with which the library compares the calls of ranks. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress/page_reader.h"

namespace launcher {

// The parts of a signature such as "all_reduce (sum) of Float [2, 3]" or "all_reduce of a gradient bucket of 332
// bytes".
struct CollectiveParts {
  std::string name{};   // "all_reduce"
  std::string how{};    // "sum"; often empty
  std::string dtype{};  // LibTorch's name, or empty
  std::vector<std::int64_t> sizes{};
  std::optional<std::uint64_t> bytes{};  // nothing if the signature does not contain it
};
CollectiveParts parse_signature(std::string_view signature);

// The parts of a message between two ranks, "send (to rank 1, tag 0) of Float [2, 3]". Nothing for other calls.
struct MessageParts {
  bool sends = false;
  int peer = -1;  // its rank in the group; -1: any rank, or several
  int tag = 0;

  bool fits(const MessageParts& other) const { return sends != other.sends && tag == other.tag; }
};
std::optional<MessageParts> message_of(const ddp::detail::CollectiveRecord& call);

// "332 bytes", "25.0 MB" (of 10^6 bytes).
std::string bytes_text(std::uint64_t bytes);
// "" for the job's group, else a name such as "subgroup1".
std::string name_of(const ddp::detail::GroupRecord& group);
// "all_reduce #4711 of 25.0 MB"; "all_reduce #3 of 25.0 MB in subgroup1";
// "all_gather #7 of 2.1 MB (parameters of unit encoder.0)".
std::string collective_text(const ddp::detail::CollectiveRecord& call, const ddp::detail::GroupRecord& group);
// "rank 3", "ranks 0-2, 4 and 7".
std::string rank_ranges(std::vector<int> ranks);
// "0.3 s", "121 s", "2 h 5 min".
std::string duration_text(std::uint64_t microseconds);

}  // namespace launcher
