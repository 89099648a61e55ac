#include "launcher/options/help.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/generated_texts.h"

namespace launcher {
namespace {

constexpr std::size_t kHelpWidth = 80;
constexpr std::size_t kDefaultColumn = 40;
constexpr std::size_t kIndent = 8;

// Breaks the text into lines of at most kHelpWidth columns. `first` and `others` are the indentation of the first and
// of the other lines.
std::string wrapped(std::string_view text, std::size_t first, std::size_t others) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t indent = lines.empty() ? first : others;
    const std::size_t room = kHelpWidth - indent;
    std::size_t end = text.size() <= room ? text.size() : text.rfind(' ', room);
    if (end == std::string_view::npos) end = text.size();
    lines.append(indent, ' ').append(text.substr(0, end)).append("\n");
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

std::string help_of(const ShownOption& option) {
  std::string text = "  " + option.usage();
  const std::string meaning = wrapped(plain_text(option.meaning), kIndent, kIndent);
  if (option.variable.empty()) return text.append("\n").append(meaning);
  const std::string fallback = "[" + option.fallback + "]  " + option.variable;
  const std::size_t column = std::max(text.size() + 2, kDefaultColumn);
  if (column + fallback.size() <= kHelpWidth) {
    text.resize(column, ' ');
  } else {
    text.append("\n").append(kIndent, ' ');
  }
  return text.append(fallback).append("\n").append(meaning);
}

std::string rows(const Subcommand& subcommand) {
  std::vector<std::pair<std::string, std::string>> entries = {{"JOB", subcommand.job}};
  for (const SubcommandForm& form : subcommand.forms) {
    for (const ShownOption& option : form.options) entries.emplace_back(option.usage(), option.meaning);
  }
  std::size_t longest = 0;
  for (const auto& [term, meaning] : entries) longest = std::max(longest, term.size());
  std::string text;
  for (auto& [term, meaning] : entries) {
    term.resize(longest, ' ');
    text += wrapped("  " + term + "  " + meaning, 0, longest + 4);
  }
  return text;
}

std::string help_of(const Subcommand& subcommand) {
  std::string text = wrapped(subcommand.meaning, 0, 0) + "\n";
  bool is_first = true;
  for (const SubcommandForm& form : subcommand.forms) {
    text.append(std::exchange(is_first, false) ? "Usage: " : "       ")
        .append("ddprun ")
        .append(form.usage(subcommand.word));
    text += "\n";
  }
  return text.append("\n").append(rows(subcommand)) + "\nExit status: " + subcommand.exit_status +
         "\nA program of this name is started by its path: ddprun ./" + subcommand.word + "\n";
}

}  // namespace

std::string help_text(const OptionTable& table) {
  std::string text = table.app().get_description() + "\n\nUsage: " + table.app().get_name() +
                     "\n\nEach option with its [default] and the variable that sets it when the option is\n"
                     "not given; - and _ are the same in names, and --name VALUE is --name=VALUE.\n";
  const auto heading = [](const ShownGroup& group) { return "\n" + group.title + "\n"; };
  const auto option = [](const ShownOption& shown, const std::string&) { return help_of(shown); };
  return text + text_body(table, {.group = heading, .option = option}).options;
}

std::optional<std::string> help_of_words(std::span<const std::string> arguments) {
  if (arguments.empty()) return std::nullopt;
  const bool is_asked = std::any_of(arguments.begin() + 1, arguments.end(),
                                    [](const std::string& word) { return word == "--help" || word == "-h"; });
  if (!is_asked) return std::nullopt;
  for (const Subcommand& subcommand : subcommands()) {
    if (subcommand.word == arguments.front()) return help_of(subcommand);
  }
  return std::nullopt;
}

}  // namespace launcher
