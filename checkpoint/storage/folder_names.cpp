#include "checkpoint/storage/folder_names.h"

#include <charconv>
#include <random>

namespace ddp::storage {
namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kReplacedPrefix = ".old-";
constexpr size_t kDigits = 8;

}  // namespace

std::string folder_name(int64_t step) {
  const auto digits = std::to_string(step);
  std::string name(kPrefix);
  if (digits.size() < kDigits) name.append(kDigits - digits.size(), '0');
  return name + digits;
}

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto digits = name.substr(kPrefix.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0) return std::nullopt;
  if (folder_name(step) != name) return std::nullopt;
  return step;
}

std::optional<Leftover> leftover(std::string_view name) {
  for (const auto& [suffix, kind] :
       {std::pair(kTemporary, Leftover::Kind::kTemporary), std::pair(kReplacedPrefix, Leftover::Kind::kReplaced)}) {
    const auto at = name.find(suffix);
    if (at == std::string_view::npos) continue;
    const auto target = name.substr(0, at);
    if (target == kLatestName || step_of(target)) return Leftover{kind, std::string(target)};
  }
  return std::nullopt;
}

std::string temporary_name(std::string_view target, std::string_view id) {
  return std::string(target).append(kTemporary).append(id);
}

std::string replaced_name(std::string_view target, std::string_view id) {
  return std::string(target).append(kReplacedPrefix).append(id);
}

std::string random_id() {
  std::random_device source;
  const uint64_t bits = (uint64_t{source()} << 32) | source();
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kHex[(bits >> shift) & 15];
  return text;
}

}  // namespace ddp::storage
