#include "launcher/command_line/help.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace launcher {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kDefaultColumn = 46;
constexpr std::string_view kIndent = "        ";

// "-n, --nproc_per_node N|gpu|cpu|auto"
std::string usage_of(const CLI::Option& option) {
  std::string text;
  const auto add_name = [&](const char* dashes, const std::string& name) {
    text.append(text.empty() ? "" : ", ").append(dashes).append(name);
  };
  for (const std::string& name : option.get_snames()) add_name("-", name);
  for (const std::string& name : option.get_lnames()) add_name("--", name);
  if (option.get_items_expected_max() == 0) return text;
  const bool is_optional = option.get_items_expected_min() == 0;
  return text.append(is_optional ? "[=" : " ").append(option.get_type_name()).append(is_optional ? "]" : "");
}

std::string wrapped(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    std::size_t end = text.size();
    if (kIndent.size() + end > kWidth) end = std::min(end, text.rfind(' ', kWidth - kIndent.size()));
    lines.append(kIndent).append(text.substr(0, end)).append("\n");
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

std::string help_of(const CLI::Option& option) {
  std::string text = "  ";
  text.append(usage_of(option));
  const std::string& variable = option.get_envname();
  if (!variable.empty()) {
    const std::string fallback = option.get_items_expected_max() == 0 ? "off" : option.get_option_text();
    text.resize(std::max(text.size() + 2, kDefaultColumn), ' ');
    text.append("[").append(fallback.empty() ? "none" : fallback).append("]  ").append(variable);
  }
  return text.append("\n").append(wrapped(option.get_description()));
}

}  // namespace

std::string help_text(const CLI::App& app) {
  std::string text = app.get_description() + "\n\nUsage: " + app.get_name() +
                     "\n\nEach option with its [default] and the variable that sets it when the option is not given; "
                     "- and _ are the same\nin names, and --name VALUE is --name=VALUE.\n";
  std::vector<std::string> groups;
  for (const CLI::Option* option : app.get_options()) {
    if (std::find(groups.begin(), groups.end(), option->get_group()) == groups.end())
      groups.push_back(option->get_group());
  }
  for (const std::string& group : groups) {
    text.append("\n").append(group).append("\n");
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() == group) text += help_of(*option);
    }
  }
  return text;
}

}  // namespace launcher
