#include "launcher/options/shown_options.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace launcher {
namespace {

ShownOption shown(const CLI::Option& option) {
  ShownOption result{.variable = option.get_envname(), .meaning = option.get_description()};
  for (const std::string& name : option.get_snames()) result.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) result.names.push_back("--" + name);
  const bool takes_value = option.get_items_expected_max() != 0;
  if (takes_value) {
    result.value = option.get_type_name();
    result.value_may_be_missing = option.get_items_expected_min() == 0;
    result.may_be_repeated = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  }
  if (!result.variable.empty()) {
    result.fallback = takes_value ? option.get_option_text() : "off";
    if (result.fallback.empty()) result.fallback = "none";
  }
  return result;
}

bool is_word(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

}  // namespace

std::string ShownOption::usage() const {
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ", ").append(name);
  if (value.empty()) return text;
  return text.append(value_may_be_missing ? "[=" : " ").append(value).append(value_may_be_missing ? "]" : "");
}

std::vector<std::string> ShownOption::words() const {
  std::vector<std::string> found;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find('|', begin), value.size());
    if (std::string part = value.substr(begin, end - begin); is_word(part)) found.push_back(std::move(part));
    begin = end + 1;
  }
  return found;
}

std::vector<ShownGroup> shown_options(const CLI::App& app) {
  std::vector<ShownGroup> groups;
  for (const CLI::Option* option : app.get_options()) {
    const std::string& title = option->get_group();
    if (title.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& other) { return other.title == title; });
    if (group == groups.end()) group = groups.insert(group, {.title = title});
    group->options.push_back(shown(*option));
  }
  return groups;
}

}  // namespace launcher
