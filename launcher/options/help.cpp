#include "launcher/options/help.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "launcher/options/shown_options.h"

namespace launcher {
namespace {

constexpr std::size_t kDefaultColumn = 40;
constexpr std::string_view kIndent = "        ";

std::string wrapped(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    std::size_t end = text.size();
    if (kIndent.size() + end > kHelpWidth) end = std::min(end, text.rfind(' ', kHelpWidth - kIndent.size()));
    lines.append(kIndent).append(text.substr(0, end)).append("\n");
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

std::string help_of(const ShownOption& option) {
  std::string text = "  " + option.usage();
  if (option.variable.empty()) return text.append("\n").append(wrapped(option.meaning));
  const std::string fallback = "[" + option.fallback + "]  " + option.variable;
  const std::size_t column = std::max(text.size() + 2, kDefaultColumn);
  if (column + fallback.size() <= kHelpWidth) {
    text.resize(column, ' ');
  } else {
    text.append("\n").append(kIndent);
  }
  return text.append(fallback).append("\n").append(wrapped(option.meaning));
}

}  // namespace

std::string help_text(const CLI::App& app) {
  std::string text = app.get_description() + "\n\nUsage: " + app.get_name() +
                     "\n\nEach option with its [default] and the variable that sets it when the option is\n"
                     "not given; - and _ are the same in names, and --name VALUE is --name=VALUE.\n";
  for (const ShownGroup& group : shown_options(app)) {
    text.append("\n").append(group.title).append("\n");
    for (const ShownOption& option : group.options) text += help_of(option);
  }
  return text;
}

}  // namespace launcher
