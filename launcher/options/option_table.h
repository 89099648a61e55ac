// Declares each option once: its names, unit, range and meaning as text. Its default is the value of the member of
// Options that it fills. --help and all other texts are made from these declarations.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "launcher/options/shown_options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace launcher {

struct OptionTraits {
  std::string unset = "none";       // shown as the default of an empty member
  std::string zero{};               // the meaning of the value 0
  bool is_torchrun_option = false;  // torchrun has it too, so its name may be abbreviated
  bool may_be_empty = false;  // an empty value counts as if the option was not given, as torchrun's scripts pass it so
};

// The texts about an option. They do not repeat its default and its range.
struct OptionText {
  std::string usage;      // "-n,--nproc_per_node N|auto"; the first long name is that of the PET_ variable, and a value
                          // that is called FILE, DIR or FOLDER is completed as such
  std::string meaning;    // for --help: plain but for backquotes around code
  std::string details{};  // more, in Markdown, for the manual page and docs/launcher.md
  OptionTraits traits{};
};

OptionText torchrun_option(OptionText text);

// Whole numbers from `lowest` to `highest`.
struct NumberRange {
  static constexpr int kMax = 1 << 20;  // large enough to mean no limit, so it is not shown
  int lowest = 0;
  int highest = kMax;
};

class OptionTable {
 public:
  // Parses an option's text; throws UsageError when it is invalid. If an option is given several times, only the last
  // text is parsed.
  using Parse = std::function<void(const std::string& text)>;
  using Choice = std::pair<std::string, std::function<void()>>;

  // `app` and all targets must outlive the parsing.
  explicit OptionTable(CLI::App& app);

  // Begins a group of options. `introduction` is the text below its title in docs/launcher.md.
  void group(const std::string& title, const std::string& introduction = "");

  // The default that these functions show is the present value of the target.
  void flag(const OptionText& text, bool& target);
  void text(const OptionText& text, std::string& target);
  void number(OptionText text, int& target, NumberRange range = {});
  // A number of seconds, with fractions, from `lowest` to 1e9.
  void seconds(OptionText text, std::chrono::milliseconds& target, std::chrono::milliseconds lowest = {});
  void seconds(OptionText text, std::optional<std::chrono::milliseconds>& target,
               std::chrono::milliseconds lowest = {});
  void port(OptionText text, std::optional<std::uint16_t>& target, int lowest);
  template <typename Value>
  void choice(OptionText text, Value& target, std::vector<std::pair<const char*, Value>> words);
  // The option may be given several times.
  void list(const OptionText& text, std::vector<std::string>& target);
  // The value may be omitted; then it is `bare`. If it is given, it must be in the same word (--name=value).
  void optional_text(const OptionText& text, std::optional<std::string>& target, const std::string& bare);
  // `current` is the text for the present value of the target; empty: the target is unset.
  void parsed(const OptionText& text, const std::string& current, Parse parse);
  // Options of other launchers that have no effect, or that set what another option sets.
  void accepted(const OptionText& text, Parse check);
  void accepted_flag(const OptionText& text);
  // A flag without a variable.
  void command(const OptionText& text, std::function<void()> action);
  // With a value, but without a variable. Without the option nothing happens.
  void command(const OptionText& text, Parse parse);
  // With one of a few words as value, but without a variable. Without the option nothing happens.
  void command(OptionText text, std::vector<Choice> choices);
  // An option for ddprun itself: it is not listed, and has no variable.
  void hidden(const std::string& name, Parse parse);

  CLI::App& app() const { return app_; }
  const std::vector<ShownGroup>& groups() const { return groups_; }
  // Long names without dashes.
  std::span<const std::string> torchrun_names() const { return torchrun_names_; }
  bool may_be_empty(std::string_view long_name) const;

 private:
  ShownOption& show(CLI::Option* option, const OptionText& text);
  // Adds the variable PET_<NAME>, as torchrun has it; for a flag PET_<NAME>=1.
  ShownOption& with_variable(CLI::Option* option, const OptionText& text, const std::string& current);
  void chosen(OptionText text, const std::string& current, std::vector<Choice> choices);

  CLI::App& app_;
  // The CLI11 option group of the present title. CLI11 compares each new option with all options of its group, which
  // would take a third of a millisecond if all were in one.
  CLI::App* current_app_ = &app_;
  std::vector<ShownGroup> groups_;
  std::size_t current_group_ = 0;
  std::vector<std::string> torchrun_names_;
  std::vector<std::string> emptiable_names_;
};

// The options of `app` and of its option groups.
std::vector<const CLI::Option*> declared_options(const CLI::App& app);

template <typename Value>
void OptionTable::choice(OptionText text, Value& target, std::vector<std::pair<const char*, Value>> words) {
  std::string current;
  std::vector<Choice> choices;
  for (const auto& [word, value] : words) {
    if (current.empty() && value == target) current = word;
    choices.emplace_back(word, [&target, value = value] { target = value; });
  }
  chosen(std::move(text), current, std::move(choices));
}

// The variable that sets an option: "PET_LOG_DIR" for "log_dir".
std::string pet_variable(std::string name);

// Parses `text` as a number. Throws UsageError, which names `option`, when it is not a number in the range. `or_else`
// is the part of the message about other permitted values, such as ", or auto".
int parse_number(const std::string& option, const std::string& text, int lowest, int highest,
                 const std::string& or_else = "");
std::chrono::milliseconds parse_seconds(const std::string& option, const std::string& text,
                                        std::chrono::milliseconds lowest = {});
// Quotes a wrong value for an error. If it is the next word of the command line, adds what was probably forgotten.
std::string quoted_value(const std::string& text);
// Formats 0.5 as "0.5" and 30'000 ms as "30", which parse_number() and parse_seconds() can read.
std::string shown_number(double value);
std::string shown_seconds(std::chrono::milliseconds time);

// "a,b" -> "a", "b"; an empty text has one empty part.
std::vector<std::string> split_at_commas(const std::string& text);
using ddp::detail::joined;

}  // namespace launcher
