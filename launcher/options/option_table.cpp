#include "launcher/options/option_table.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <iterator>

#include "base/joined.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

using std::chrono::milliseconds;

constexpr double kMaxSeconds = 1e9;
constexpr int kMaxPort = 65535;

// "-n,--nproc_per_node"
std::string names_of(const OptionText& text) {
  return text.usage.substr(0, text.usage.find(' '));
}

// The spelling in errors: the first long name.
std::string spelling(const OptionText& text) {
  const std::string names = names_of(text);
  const std::size_t begin = names.find("--");
  return names.substr(begin, names.find(',', begin) - begin);
}

std::string listed(const std::vector<OptionTable::Choice>& choices, const char* separator, const char* last) {
  return joined(
      choices, separator, [](const auto& choice) { return choice.first; }, last);
}

// Returns a function that executes the action of the chosen word.
OptionTable::Parse chooser(const OptionText& text, std::vector<OptionTable::Choice> choices) {
  return [name = spelling(text), choices = std::move(choices)](const std::string& value) {
    for (const auto& [word, action] : choices) {
      if (word == value) return action();
    }
    throw UsageError(name + ": expected " + listed(choices, ", ", " or ") + ", got " + quoted_value(value));
  };
}

// Adds the range of values to the end of a meaning.
void add_range(OptionText& text, const std::string& lowest, const std::string& highest) {
  if (!highest.empty()) {
    text.meaning += "; from " + lowest + " to " + highest;
  } else if (lowest != "0") {
    text.meaning += lowest == "0.001" ? "; more than 0" : "; at least " + lowest;
  }
}

}  // namespace

OptionText torchrun_option(OptionText text) {
  text.traits.is_torchrun_option = true;
  return text;
}

OptionTable::OptionTable(CLI::App& app) : app_(app) {
  app_.set_help_flag();
  app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void OptionTable::group(const std::string& title, const std::string& introduction) {
  const auto same =
      std::find_if(groups_.begin(), groups_.end(), [&](const auto& group) { return group.title == title; });
  current_group_ = static_cast<std::size_t>(same - groups_.begin());
  if (same != groups_.end()) {
    current_app_ = app_.get_option_group(title);
    return;
  }
  groups_.push_back({.title = title, .introduction = introduction});
  current_app_ = app_.add_option_group(title);
}

std::vector<const CLI::Option*> declared_options(const CLI::App& app) {
  std::vector<const CLI::Option*> options = app.get_options();
  for (const CLI::App* group : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::vector<const CLI::Option*> more = group->get_options();
    options.insert(options.end(), more.begin(), more.end());
  }
  return options;
}

bool OptionTable::may_be_empty(std::string_view long_name) const {
  return std::find(emptiable_names_.begin(), emptiable_names_.end(), long_name) != emptiable_names_.end();
}

ShownOption& OptionTable::show(CLI::Option* option, const OptionText& text) {
  ShownOption shown{.meaning = text.meaning, .details = text.details};
  if (const std::size_t blank = text.usage.find(' '); blank != std::string::npos) {
    shown.value = text.usage.substr(blank + 1);
    option->type_name(shown.value);
  }
  if (!text.traits.zero.empty()) shown.meaning += "; 0: " + text.traits.zero;
  for (const std::string& name : option->get_snames()) shown.names.push_back("-" + name);
  for (const std::string& name : option->get_lnames()) shown.names.push_back("--" + name);
  const std::string& name = option->get_lnames().front();
  if (text.traits.is_torchrun_option) torchrun_names_.push_back(name);
  if (text.traits.may_be_empty) emptiable_names_.push_back(name);
  return groups_[current_group_].options.emplace_back(std::move(shown));
}

ShownOption& OptionTable::with_variable(CLI::Option* option, const OptionText& text, const std::string& current) {
  ShownOption& shown = show(option, text);
  shown.fallback = current.empty() ? text.traits.unset : current;
  shown.has_default = true;
  shown.variable = pet_variable(option->get_lnames().front());
  option->envname(shown.variable);
  return shown;
}

void OptionTable::flag(const OptionText& text, bool& target) {
  with_variable(current_app_->add_flag(names_of(text), target), text, target ? "on" : "off");
}

void OptionTable::accepted_flag(const OptionText& text) {
  with_variable(current_app_->add_flag(names_of(text)), text, "off").has_default = false;
}

void OptionTable::command(const OptionText& text, std::function<void()> action) {
  show(current_app_->add_flag_callback(names_of(text), std::move(action)), text);
}

void OptionTable::command(OptionText text, std::vector<Choice> choices) {
  text.usage += " " + listed(choices, "|", "|");
  command(text, chooser(text, std::move(choices)));
}

void OptionTable::command(const OptionText& text, Parse parse) {
  show(current_app_->add_option_function<std::string>(names_of(text), std::move(parse)), text);
}

void OptionTable::hidden(const std::string& name, Parse parse) {
  current_app_->add_option_function<std::string>(name, std::move(parse));
}

void OptionTable::text(const OptionText& text, std::string& target) {
  with_variable(current_app_->add_option(names_of(text), target), text, target);
}

void OptionTable::parsed(const OptionText& text, const std::string& current, Parse parse) {
  with_variable(current_app_->add_option_function<std::string>(names_of(text), std::move(parse)), text, current);
}

void OptionTable::number(OptionText text, int& target, NumberRange range) {
  text.usage += " N";
  add_range(text, std::to_string(range.lowest),
            range.highest == NumberRange::kMax ? "" : std::to_string(range.highest));
  parsed(text, std::to_string(target), [name = spelling(text), &target, range](const std::string& value) {
    target = parse_number(name, value, range.lowest, range.highest);
  });
}

void OptionTable::seconds(OptionText text, milliseconds& target, milliseconds lowest) {
  text.usage += " SECONDS";
  add_range(text, shown_seconds(lowest), "");
  parsed(text, shown_seconds(target), [name = spelling(text), &target, lowest](const std::string& value) {
    target = parse_seconds(name, value, lowest);
  });
}

void OptionTable::seconds(OptionText text, std::optional<milliseconds>& target, milliseconds lowest) {
  text.usage += " SECONDS";
  add_range(text, shown_seconds(lowest), "");
  parsed(text, target ? shown_seconds(*target) : "",
         [name = spelling(text), &target, lowest](const std::string& value) {
           target = parse_seconds(name, value, lowest);
         });
}

void OptionTable::port(OptionText text, std::optional<std::uint16_t>& target, int lowest) {
  text.usage += " PORT";
  add_range(text, std::to_string(lowest), std::to_string(kMaxPort));
  parsed(text, target ? std::to_string(*target) : "",
         [name = spelling(text), &target, lowest](const std::string& value) {
           target = static_cast<std::uint16_t>(parse_number(name, value, lowest, kMaxPort));
         });
}

void OptionTable::chosen(OptionText text, const std::string& current, std::vector<Choice> choices) {
  text.usage += " " + listed(choices, "|", "|");
  parsed(text, current, chooser(text, std::move(choices)));
}

void OptionTable::list(const OptionText& text, std::vector<std::string>& target) {
  CLI::Option* option = current_app_->add_option(names_of(text), target);
  option->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  with_variable(option, text, joined(target, ",")).may_be_repeated = true;
}

void OptionTable::optional_text(const OptionText& text, std::optional<std::string>& target, const std::string& bare) {
  // CLI11 calls this with an empty text when the value is left out.
  const auto parse = [&target, bare](const std::string& value) { target = value.empty() ? bare : value; };
  CLI::Option* option = current_app_->add_option_function<std::string>(names_of(text), parse)->expected(0, 1);
  with_variable(option, text, target.value_or("")).value_may_be_missing = true;
}

void OptionTable::accepted(const OptionText& text, Parse check) {
  CLI::Option* option = current_app_->add_option_function<std::string>(names_of(text), std::move(check));
  with_variable(option, text, "").has_default = false;
}

std::string pet_variable(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return "PET_" + name;
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

milliseconds parse_seconds(const std::string& option, const std::string& text, milliseconds lowest) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_in_range = value >= 0 && value <= kMaxSeconds;  // false also for what is not a number
  const milliseconds time(is_in_range ? static_cast<std::int64_t>(value * 1000) : -1);
  if (error != std::errc() || end != text.data() + text.size() || time < lowest || !is_in_range) {
    throw UsageError(option + ": expected a number of seconds from " + shown_seconds(lowest) + " to 1000000000, got " +
                     quoted_value(text));
  }
  return time;
}

std::string shown_number(double value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.begin(), text.end(), value, std::chars_format::fixed).ptr};
}

std::string shown_seconds(milliseconds time) {
  return shown_number(static_cast<double>(time.count()) / 1000);
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
