#include "launcher/plan/stream_selection.h"

#include <algorithm>
#include <charconv>

#include "base/joined.h"

namespace launcher {
namespace {

// Returns the text before the next comma, and removes it from `text`.
std::string_view take_item(std::string_view& text) {
  const std::size_t comma = text.find(',');
  const std::string_view item = text.substr(0, comma);
  text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  return item;
}

std::optional<int> parse_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

std::optional<Streams> parse_streams(std::string_view text) {
  if (text.size() != 1 || text.front() < '0' || text.front() > '3') return std::nullopt;
  const int bits = text.front() - '0';
  return Streams{(bits & 1) != 0, (bits & 2) != 0};
}

}  // namespace

const char* name_of(Stream stream) {
  return stream == Stream::kOutput ? "stdout" : "stderr";
}

std::optional<StreamSelection> StreamSelection::parse(std::string_view text) {
  StreamSelection selection;
  if (const auto all = parse_streams(text)) {
    selection.default_ = *all;
    return selection;
  }
  if (text.empty() || text.back() == ',') return std::nullopt;
  while (!text.empty()) {
    const std::string_view item = take_item(text);
    const std::size_t colon = item.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    const auto rank = parse_number(item.substr(0, colon));
    const auto streams = parse_streams(item.substr(colon + 1));
    if (!rank || !streams) return std::nullopt;
    selection.by_rank_[*rank] = *streams;
  }
  return selection;
}

Streams StreamSelection::of_rank(int local_rank) const {
  const auto found = by_rank_.find(local_rank);
  return found == by_rank_.end() ? default_ : found->second;
}

bool StreamSelection::is_empty() const {
  return !default_.out && !default_.err && std::none_of(by_rank_.begin(), by_rank_.end(), [](const auto& entry) {
    return entry.second.out || entry.second.err;
  });
}

std::string StreamSelection::text() const {
  const auto bits = [](const Streams& streams) {
    return std::to_string((streams.out ? 1 : 0) + (streams.err ? 2 : 0));
  };
  if (by_rank_.empty()) return bits(default_);
  return ddp::detail::joined(by_rank_, ",",
                             [&](const auto& item) { return std::to_string(item.first) + ":" + bits(item.second); });
}

std::optional<std::vector<int>> parse_rank_list(std::string_view text) {
  std::vector<int> ranks;
  if (text.empty() || text.back() == ',') return std::nullopt;
  while (!text.empty()) {
    const auto rank = parse_number(take_item(text));
    if (!rank) return std::nullopt;
    ranks.push_back(*rank);
  }
  return ranks;
}

std::vector<std::string> parse_text_list(std::string_view text) {
  std::vector<std::string> texts(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != ',') {
      texts.back().push_back(text[i]);
    } else if (i + 1 < text.size() && text[i + 1] == ',') {
      texts.back().push_back(',');
      ++i;
    } else {
      texts.emplace_back();
    }
  }
  std::erase(texts, "");
  return texts;
}

}  // namespace launcher
