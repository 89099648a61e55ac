#include "launcher/options/option_table.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <memory>

#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

constexpr double kMostSeconds = 1e9;

// The spelling that errors use: the first long name.
std::string spelling(const std::string& names) {
  const std::size_t begin = names.find("--");
  return names.substr(begin, names.find(',', begin) - begin);
}

std::string listed(const std::vector<OptionTable::Choice>& choices, const char* separator, const char* last) {
  std::string words;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    words.append(i == 0 ? "" : i + 1 < choices.size() ? separator : last).append(choices[i].first);
  }
  return words;
}

// Does what belongs to the word that it is given.
OptionTable::Parse chooser(const std::string& names, std::vector<OptionTable::Choice> choices) {
  return [name = spelling(names), choices = std::move(choices)](const std::string& text) {
    for (const auto& [word, action] : choices) {
      if (word == text) return action();
    }
    throw UsageError(name + ": expected " + listed(choices, ", ", " or ") + ", got " + quoted_value(text));
  };
}

}  // namespace

OptionTable::OptionTable(CLI::App& app) : app_(app) {
  app_.set_help_flag();
  app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

// As torchrun's, each option can come from PET_<NAME>, a flag as PET_<NAME>=1.
void OptionTable::finish(CLI::Option* option, const std::string& type, const std::string& fallback) const {
  option->group(group_)->option_text(fallback);
  if (!type.empty()) option->type_name(type);
  std::string variable = "PET_" + option->get_lnames().front();
  std::transform(variable.begin(), variable.end(), variable.begin(), [](unsigned char c) { return std::toupper(c); });
  option->envname(variable);
}

void OptionTable::flag(const std::string& names, bool& target, const std::string& meaning) {
  finish(app_.add_flag(names, target, meaning), "", "off");
}

void OptionTable::accepted_flag(const std::string& names, const std::string& meaning) {
  finish(app_.add_flag(names, meaning), "", "off");
}

void OptionTable::command(const std::string& names, std::function<void()> action, const std::string& meaning) {
  app_.add_flag_callback(names, std::move(action), meaning)->group(group_);
}

void OptionTable::command(const std::string& names, std::vector<Choice> choices, const std::string& meaning) {
  const std::string type = listed(choices, "|", "|");
  command(names, chooser(names, std::move(choices)), type, meaning);
}

void OptionTable::command(const std::string& names, Parse parse, const std::string& type, const std::string& meaning) {
  app_.add_option_function<std::string>(names, std::move(parse), meaning)->group(group_)->type_name(type);
}

void OptionTable::text(const std::string& names, std::string& target, const std::string& type,
                       const std::string& fallback, const std::string& meaning) {
  finish(app_.add_option(names, target, meaning), type, fallback);
}

void OptionTable::parsed(const std::string& names, Parse parse, const std::string& type, const std::string& fallback,
                         const std::string& meaning) {
  finish(app_.add_option_function<std::string>(names, std::move(parse), meaning), type, fallback);
}

void OptionTable::hidden(const std::string& names, Parse parse) {
  app_.add_option_function<std::string>(names, std::move(parse))->group("");
}

void OptionTable::number(const std::string& names, int& target, int lowest, int highest, const std::string& fallback,
                         const std::string& meaning) {
  const auto parse = [name = spelling(names), &target, lowest, highest](const std::string& text) {
    target = parse_number(name, text, lowest, highest);
  };
  parsed(names, parse, "N", fallback, meaning);
}

void OptionTable::seconds(const std::string& names, std::chrono::milliseconds& target, const std::string& fallback,
                          const std::string& meaning) {
  const auto parse = [name = spelling(names), &target](const std::string& text) { target = parse_seconds(name, text); };
  parsed(names, parse, "SECONDS", fallback, meaning);
}

void OptionTable::seconds(const std::string& names, std::optional<std::chrono::milliseconds>& target,
                          const std::string& meaning) {
  const auto parse = [name = spelling(names), &target](const std::string& text) { target = parse_seconds(name, text); };
  parsed(names, parse, "SECONDS", "none", meaning);
}

void OptionTable::choice(const std::string& names, std::vector<Choice> choices, const std::string& meaning) {
  const std::string type = listed(choices, "|", "|");
  const std::string fallback = choices.front().first;
  parsed(names, chooser(names, std::move(choices)), type, fallback, meaning);
}

void OptionTable::list(const std::string& names, std::vector<std::string>& target, const std::string& type,
                       const std::string& meaning) {
  finish(app_.add_option(names, target, meaning)
             ->allow_extra_args(false)
             ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll),
         type, "none");
}

void OptionTable::optional_text(const std::string& names, std::optional<std::string>& target, const std::string& bare,
                                const std::string& type, const std::string& fallback, const std::string& meaning) {
  // CLI11 calls this with an empty text when the value is left out.
  const auto parse = [&target, bare](const std::string& text) { target = text.empty() ? bare : text; };
  CLI::Option* option = app_.add_option_function<std::string>(names, parse, meaning)->expected(0, 1);
  finish(option, type, fallback);
}

void OptionTable::accepted(const std::string& names, const std::string& meaning) {
  parsed(
      names, [](const std::string&) {}, "X", "", meaning);
}

std::string quoted_value(const std::string& text) {
  const bool is_option = text.size() > 1 && text[0] == '-' && std::isdigit(static_cast<unsigned char>(text[1])) == 0;
  const bool is_program = text.ends_with(".py") || text.starts_with("./") || text.starts_with("/");
  std::string quoted = "'" + text + "'";
  if (text == "=") quoted += " (write no blanks around =)";
  if (is_option || is_program) quoted += " (is the value missing, or a variable of the shell not set?)";
  return quoted;
}

int parse_number(const std::string& option, const std::string& text, int lowest, int highest,
                 const std::string& or_else) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < lowest || value > highest) {
    throw UsageError(option + ": expected a number from " + std::to_string(lowest) + " to " + std::to_string(highest) +
                     or_else + ", got " + quoted_value(text));
  }
  return value;
}

std::chrono::milliseconds parse_seconds(const std::string& option, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_in_range = value >= 0 && value <= kMostSeconds;  // false also for what is not a number
  if (error != std::errc() || end != text.data() + text.size() || !is_in_range) {
    throw UsageError(option + ": expected a number of seconds from 0 to 1000000000, got " + quoted_value(text));
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(value * 1000));
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = text.find(',', begin);
    parts.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return parts;
    begin = comma + 1;
  }
}

}  // namespace launcher
