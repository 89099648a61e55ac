#include "base/timeline/records.h"

#include <algorithm>
#include <cstring>

namespace ddp::detail {

std::string_view category_of(EventKind kind) {
  constexpr std::array<std::string_view, kEventKinds> kNames = {
      "user",       "other",   "data", "forward",    "backward", "optimizer", "checkpoint",
      "evaluation", "closing", "wait", "collective", "bucket",   "device"};
  return kNames[std::min<std::size_t>(static_cast<std::size_t>(kind), kNames.size() - 1)];
}

std::size_t encode(const Record& record, std::array<std::uint64_t, kMaxRecordWords>& words) noexcept {
  const std::string_view text = record.text.substr(0, kMaxRecordTextBytes);
  const std::size_t count = kHeadWords + (text.size() + 7) / 8;
  words[0] = record.time;
  words[1] = std::uint64_t{static_cast<std::uint8_t>(record.type)} |
             std::uint64_t{static_cast<std::uint8_t>(record.kind)} << 8 | std::uint64_t{text.size()} << 16;
  words[2] = record.number;
  words[3] = record.value;
  if (!text.empty()) {
    words[count - 1] = 0;
    std::memcpy(&words[kHeadWords], text.data(), text.size());
  }
  return count;
}

std::optional<Decoded> decode(std::span<const std::uint64_t> words) {
  if (words.size() < kHeadWords) return std::nullopt;
  const auto type = static_cast<std::uint8_t>(words[1]);
  const auto kind = static_cast<std::uint8_t>(words[1] >> 8);
  const std::uint64_t length = words[1] >> 16;
  if (type < static_cast<std::uint8_t>(RecordType::kBegin) || type > static_cast<std::uint8_t>(RecordType::kThread) ||
      kind >= kEventKinds || length > kMaxRecordTextBytes) {
    return std::nullopt;
  }
  const std::size_t count = kHeadWords + (length + 7) / 8;
  if (words.size() < count) return std::nullopt;
  return Decoded{.record = {.type = static_cast<RecordType>(type),
                            .kind = static_cast<EventKind>(kind),
                            .time = words[0],
                            .number = words[2],
                            .value = words[3],
                            .text = {reinterpret_cast<const char*>(words.data() + kHeadWords), length}},
                 .words = count};
}

}  // namespace ddp::detail
