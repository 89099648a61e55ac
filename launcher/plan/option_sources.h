// Errors name options. For a user who has set a variable instead, this adds its name. Pure.
#pragma once

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace launcher {

inline bool may_be_in_a_name(char letter) {
  return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '-' || letter == '_';
}

// The words of `text` that look like options, each of them once.
inline std::vector<std::string> option_words(const std::string& text) {
  std::vector<std::string> words;
  for (auto at = text.begin(); at != text.end();) {
    const auto begin = std::find_if(at, text.end(), may_be_in_a_name);
    at = std::find_if_not(begin, text.end(), may_be_in_a_name);
    std::string word(begin, at);
    if (word.starts_with('-') && std::find(words.begin(), words.end(), word) == words.end())
      words.push_back(std::move(word));
  }
  return words;
}

// For an error that names options: " (--nnodes is from PET_NNODES)", according to Options::variables; "" if it names
// none of them.
inline std::string option_sources(const std::string& error, const std::map<std::string, std::string>& variables) {
  std::string text;
  for (const std::string& word : option_words(error)) {
    const auto found = variables.find(word);
    if (found == variables.end()) continue;
    text.append(text.empty() ? " (" : ", ").append(word).append(" is from ").append(found->second);
  }
  return text.empty() ? "" : text + ")";
}

}  // namespace launcher
