#include <algorithm>
#include <vector>

#include "launcher/options/answers/answers.h"

namespace launcher {
namespace {

constexpr std::string_view kGap = "…";
// A shorter part of a message, such as " of ", occurs in every text.
constexpr std::size_t kMinCharacters = 8;

// Converts to lower case, with single spaces and without spaces at the ends.
std::string normalized(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!is_space) {
      result += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!result.empty() && result.back() != ' ') {
      result += ' ';
    }
  }
  if (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

// Calls `use` with each part of `text` between two `separator`s.
template <typename Use>
void for_each_part(std::string_view text, std::string_view separator, const Use& use) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    use(text.substr(0, end));
    text.remove_prefix(std::min(end + separator.size(), text.size()));
  }
}

// The number of characters that `message` and the known message have in common. `message` may be a printed message or a
// part of one.
std::size_t agreement(std::string_view message, std::string_view known) {
  const std::string pattern = normalized(known);
  if (pattern.find(message) != std::string::npos) return message.size();
  std::size_t sum = 0;
  std::size_t from = 0;  // the parts must occur in the order of the pattern
  for_each_part(pattern, kGap, [&](std::string_view part) {
    const std::string words = normalized(part);
    const std::size_t at = words.size() < kMinCharacters ? std::string_view::npos : message.find(words, from);
    if (at == std::string_view::npos) return;
    sum += words.size();
    from = at + words.size();
  });
  return sum;
}

}  // namespace

std::string explain(std::string_view message, std::span<const Explanation> explanations) {
  const std::string text = normalized(message);
  std::size_t most = kMinCharacters - 1;
  std::vector<const Explanation*> best;
  for (const Explanation& explanation : explanations) {
    std::size_t agreed = 0;
    for_each_part(explanation.messages, "\n",
                  [&](std::string_view known) { agreed = std::max(agreed, agreement(text, known)); });
    if (agreed > most) best.clear();
    if (agreed >= most && agreed >= kMinCharacters) best.push_back(&explanation);
    most = std::max(most, agreed);
  }
  std::string result;
  for (const Explanation* explanation : best) {
    result.append(result.empty() ? "" : "\n")
        .append(explanation->title)
        .append("\n\n")
        .append(explanation->text)
        .append("\n");
  }
  return result;
}

}  // namespace launcher
