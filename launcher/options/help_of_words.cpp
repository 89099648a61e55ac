#include "launcher/options/help_of_words.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/options/help.h"
#include "launcher/options/subcommands.h"

namespace launcher {
namespace {

// Lines of at most kHelpWidth columns, the later ones indented.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t room = kHelpWidth - (lines.empty() ? 0 : indent);
    std::size_t end = text.size() <= room ? text.size() : text.rfind(' ', room);
    if (end == std::string_view::npos) end = text.size();
    lines.append(lines.empty() ? 0 : indent, ' ').append(text.substr(0, end)).append("\n");
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return lines;
}

std::string rows(const Subcommand& subcommand) {
  std::vector<std::pair<std::string, std::string>> entries = {{"JOB", subcommand.job}};
  for (const ShownOption& option : options_of(subcommand)) entries.emplace_back(option.usage(), option.meaning);
  std::size_t longest = 0;
  for (const auto& [term, meaning] : entries) longest = std::max(longest, term.size());
  std::string text;
  for (auto& [term, meaning] : entries) {
    term.resize(longest, ' ');
    text += wrapped("  " + term + "  " + meaning, longest + 4);
  }
  return text;
}

std::string help_of(const Subcommand& subcommand) {
  std::string text = wrapped(subcommand.meaning, 0) + "\n";
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
