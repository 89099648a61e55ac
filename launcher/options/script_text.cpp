#include "launcher/options/script_text.h"

#include <algorithm>

#include "launcher/options/split_arguments.h"

namespace launcher {

std::string single_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : separator).append(word);
  return text;
}

std::string other_spelling(const std::string& name) {
  if (name.find('_') == std::string::npos) return "";
  std::string other = name;
  std::replace(other.begin(), other.end(), '_', '-');
  return other;
}

std::vector<std::string> names_taken(const ShownOption& option) {
  std::vector<std::string> names = option.names;
  if (std::find(names.begin(), names.end(), "--nproc_per_node") != names.end()) names.emplace_back(kMpirunsRanks);
  return names;
}

std::string for_each_option(const std::vector<ShownGroup>& groups,
                            const std::function<std::string(const ShownOption&)>& line) {
  std::string text;
  for (const ShownGroup& group : groups) {
    for (const ShownOption& option : group.options) text += line(option);
  }
  return text;
}

}  // namespace launcher
