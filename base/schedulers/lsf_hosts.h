// Reads the hosts of an LSF job from the value of LSB_MCPU_HOSTS, such as "host1 4 host2 4". Pure functions.
#pragma once

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::detail {

inline bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n';
}

inline std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  for (auto at = text.begin(); at != text.end();) {
    const auto begin = std::find_if_not(at, text.end(), is_space);
    at = std::find_if(begin, text.end(), is_space);
    if (begin != at) words.emplace_back(begin, at);
  }
  return words;
}

inline bool is_number(const std::string& word) {
  return std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Returns each host of the list once. Throws std::invalid_argument if the list is not valid.
inline std::vector<std::string> lsf_hosts(std::string_view list) {
  const std::vector<std::string> words = split_words(list);
  std::vector<std::string> hosts;
  std::set<std::string> known;
  for (std::size_t i = 0; i + 1 < words.size() && is_number(words[i + 1]); i += 2) {
    if (known.insert(words[i]).second) hosts.push_back(words[i]);
    if (i + 2 == words.size()) return hosts;
  }
  throw std::invalid_argument("'" + std::string(list.substr(0, 200)) + "': expected HOST SLOTS HOST SLOTS ...");
}

}  // namespace ddp::detail
