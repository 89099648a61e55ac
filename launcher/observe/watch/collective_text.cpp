#include "launcher/observe/watch/collective_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "launcher/os/system/formatted.h"

namespace launcher {
namespace {

struct DtypeSize {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array kDtypes = {
    DtypeSize{"Float", 4},         DtypeSize{"Double", 8},       DtypeSize{"Half", 2},
    DtypeSize{"BFloat16", 2},      DtypeSize{"Long", 8},         DtypeSize{"Int", 4},
    DtypeSize{"Short", 2},         DtypeSize{"Char", 1},         DtypeSize{"Byte", 1},
    DtypeSize{"Bool", 1},          DtypeSize{"ComplexFloat", 8}, DtypeSize{"ComplexDouble", 16},
    DtypeSize{"Float8_e4m3fn", 1}, DtypeSize{"Float8_e5m2", 1},  DtypeSize{"ComplexHalf", 4}};

template <typename Number>
std::optional<Number> leading_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

// "[2, 3]" -> 2, 3
std::vector<std::int64_t> sizes_in(std::string_view text) {
  std::vector<std::int64_t> sizes;
  while (!text.empty()) {
    const std::size_t digit = text.find_first_of("0123456789");
    if (digit == std::string_view::npos) break;
    text.remove_prefix(digit);
    sizes.push_back(leading_number<std::int64_t>(text).value_or(0));
    text.remove_prefix(std::min(text.find_first_not_of("0123456789"), text.size()));
  }
  return sizes;
}

std::optional<std::uint64_t> bytes_of(std::string_view dtype, const std::vector<std::int64_t>& sizes) {
  const auto* known =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& each) { return each.name == dtype; });
  if (known == kDtypes.end()) return std::nullopt;
  std::uint64_t bytes = known->bytes;
  for (const std::int64_t size : sizes) bytes *= static_cast<std::uint64_t>(std::max<std::int64_t>(size, 0));
  return bytes;
}

// Returns what fully_shard() adds to the signature: "parameters of unit encoder.0", "gradients of unit head without
// head.bias".
std::string_view unit_in(std::string_view how) {
  const std::size_t unit = how.find(" of unit ");
  if (unit == std::string_view::npos) return {};
  const std::size_t comma = how.substr(0, unit).rfind(", ");
  return how.substr(comma == std::string_view::npos ? 0 : comma + 2);
}

}  // namespace

CollectiveParts parse_signature(std::string_view signature) {
  CollectiveParts parts{.name = std::string(signature.substr(0, signature.find(' ')))};
  std::string_view rest = signature.substr(std::min(parts.name.size() + 1, signature.size()));
  if (rest.starts_with('(')) {
    const std::size_t close = std::min(rest.find(')'), rest.size() - 1);
    parts.how = rest.substr(1, close - 1);
    rest.remove_prefix(std::min(close + 2, rest.size()));
  }
  constexpr std::string_view kBucket = "of a gradient bucket of ";
  if (rest.starts_with(kBucket)) {
    parts.bytes = leading_number<std::uint64_t>(rest.substr(kBucket.size()));
    return parts;
  }
  const std::size_t bracket = rest.find('[');
  if (!rest.starts_with("of ") || bracket == std::string_view::npos || bracket < 4) return parts;
  parts.dtype = rest.substr(3, bracket - 4);
  parts.sizes = sizes_in(rest.substr(bracket));
  parts.bytes = bytes_of(parts.dtype, parts.sizes);
  return parts;
}

std::optional<MessageParts> message_of(const ddp::detail::CollectiveRecord& call) {
  if (!call.is_message) return std::nullopt;
  const CollectiveParts parts = parse_signature(call.signature);
  const auto number_after = [&](std::string_view words) {
    const std::size_t at = parts.how.find(words);
    return at == std::string::npos ? std::nullopt
                                   : leading_number<int>(std::string_view(parts.how).substr(at + words.size()));
  };
  MessageParts message{.sends = parts.name == "send", .tag = number_after("tag ").value_or(0)};
  const bool is_one = parts.name == "send" || parts.name == "recv";
  if (is_one) message.peer = number_after("rank ").value_or(-1);
  return message;
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " bytes";
  const auto value = static_cast<double>(bytes);
  if (bytes < 1'000'000) return formatted("%.1f kB", value / 1e3);
  if (bytes < 1'000'000'000) return formatted("%.1f MB", value / 1e6);
  return formatted("%.1f GB", value / 1e9);
}

std::string name_of(const ddp::detail::GroupRecord& group) {
  std::string_view name = group.path;
  if (name.starts_with(ddp::detail::kPythonGroups)) name.remove_prefix(std::strlen(ddp::detail::kPythonGroups));
  if (name.ends_with('/')) name.remove_suffix(1);
  return std::string(name);
}

std::string collective_text(const ddp::detail::CollectiveRecord& call, const ddp::detail::GroupRecord& group) {
  const CollectiveParts parts = parse_signature(call.signature);
  std::string text = parts.name;
  if (call.is_message) {
    text.append(" ").append(parts.how, 0, parts.how.find(", tag"));
  } else {
    text.append(" #").append(std::to_string(call.number));
  }
  if (parts.bytes) text += " of " + bytes_text(*parts.bytes);
  if (const std::string name = name_of(group); !name.empty()) text += " in " + name;
  if (const std::string_view unit = unit_in(parts.how); !unit.empty()) text.append(" (").append(unit).append(")");
  return text;
}

std::string rank_ranges(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin;
    while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
    const std::string first = std::to_string(ranks[begin]);
    if (end > begin + 1) {
      parts.push_back(first + "-" + std::to_string(ranks[end]));
    } else {
      for (std::size_t i = begin; i <= end; ++i) parts.push_back(std::to_string(ranks[i]));
    }
    begin = end + 1;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += i + 1 == parts.size() ? " and " : ", ";
    text += parts[i];
  }
  return text;
}

std::string duration_text(std::uint64_t microseconds) {
  const double seconds = static_cast<double>(microseconds) / 1e6;
  if (seconds < 9.95) return formatted("%.1f s", seconds);
  if (seconds < 600) return formatted("%.0f s", seconds);
  const auto minutes = static_cast<std::uint64_t>(seconds / 60);
  if (minutes < 60) return std::to_string(minutes) + " min";
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

}  // namespace launcher
