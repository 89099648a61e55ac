// Declares options, each once: names, unit, range and meaning in its text, and the default in the member of Options
// that it fills, from which it is read here. --help and all other texts show what is declared.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
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
  std::string unset = "none";  // what is shown as the default of a member that is empty
  std::string zero{};          // what the value 0 means
  bool is_torchruns = false;   // torchrun has it too, so that its name may be abbreviated
  bool may_be_empty = false;   // an empty value is as if it was left out: torchrun's scripts pass it so
};

// What is said of an option; its default and its range are not repeated in it.
struct OptionText {
  std::string usage;      // "-n,--nproc_per_node N|auto"; the first long name is that of the PET_ variable, and a value
                          // that is called FILE, DIR or FOLDER is completed as such
  std::string meaning;    // for --help: plain but for backquotes around code
  std::string details{};  // more, in Markdown, for the manual page and docs/launcher.md
  OptionTraits traits{};
};

OptionText torchruns(OptionText text);

// Whole numbers from `lowest` to `highest`.
struct NumberRange {
  static constexpr int kMost = 1 << 20;  // as good as no limit; not shown
  int lowest = 0;
  int highest = kMost;
};

class OptionTable {
 public:
  // What turns an option's text into values; throws UsageError when it cannot be right. Later ones of several equal
  // options are the only ones that it sees.
  using Parse = std::function<void(const std::string& text)>;
  using Choice = std::pair<std::string, std::function<void()>>;

  // `app` and all targets must outlive the parsing.
  explicit OptionTable(CLI::App& app);

  // The title above the options that follow, and what docs/launcher.md says below it.
  void group(const std::string& title, const std::string& introduction = "");

  // Each shows the value that its target has now as the default.
  void flag(const OptionText& text, bool& target);
  void text(const OptionText& text, std::string& target);
  void number(OptionText text, int& target, NumberRange range = {});
  // From `lowest` to 1e9 seconds, with fractions.
  void seconds(OptionText text, std::chrono::milliseconds& target, std::chrono::milliseconds lowest = {});
  void seconds(OptionText text, std::optional<std::chrono::milliseconds>& target,
               std::chrono::milliseconds lowest = {});
  void port(OptionText text, std::optional<std::uint16_t>& target, int lowest);
  template <typename Value>
  void choice(OptionText text, Value& target, std::vector<std::pair<const char*, Value>> words);
  // May be given several times.
  void list(const OptionText& text, std::vector<std::string>& target);
  // The value may be left out and is `bare` then; where it is given, it is in the same word.
  void optional_text(const OptionText& text, std::optional<std::string>& target, const std::string& bare);
  // `current` is the text that would give the value that its target has now; empty: it is unset.
  void parsed(const OptionText& text, const std::string& current, Parse parse);
  // Of other launchers, with nothing to do here, or that set what another option sets.
  void accepted(const OptionText& text, Parse check);
  void accepted_flag(const OptionText& text);
  // A flag that no variable sets.
  void command(const OptionText& text, std::function<void()> action);
  // With a value, which no variable gives; without the option nothing happens.
  void command(const OptionText& text, Parse parse);
  // One of a few words, from which no variable chooses; without the option nothing happens.
  void command(OptionText text, std::vector<Choice> choices);
  // For ddprun itself: in no list, and without a variable.
  void hidden(const std::string& name, Parse parse);

  CLI::App& app() const { return app_; }
  const std::vector<ShownGroup>& groups() const { return groups_; }
  // Long names without dashes.
  std::span<const std::string> torchrun_names() const { return torchrun_names_; }
  bool may_be_empty(std::string_view long_name) const;

 private:
  ShownOption& show(CLI::Option* option, const OptionText& text);
  // As torchrun's, the option can come from PET_<NAME>, a flag as PET_<NAME>=1.
  ShownOption& with_variable(CLI::Option* option, const OptionText& text, const std::string& current);
  void chosen(OptionText text, const std::string& current, std::vector<Choice> choices);

  CLI::App& app_;
  // The options that follow: an option group for each title. CLI11 compares each new option with all others of its
  // group, which costs a third of a millisecond when all are in one.
  CLI::App* current_app_ = &app_;
  std::map<std::string, CLI::App*> apps_;
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

// `text` as a number; throws UsageError, which names `option`, when it is not a number in the range. `or_else` says
// what else may stand there, as in ", or auto".
int parse_number(const std::string& option, const std::string& text, int lowest, int highest,
                 const std::string& or_else = "");
std::chrono::milliseconds parse_seconds(const std::string& option, const std::string& text,
                                        std::chrono::milliseconds lowest = {});
// A wrong value as an error shows it, with what was probably forgotten where it is the next word of the command line.
std::string quoted_value(const std::string& text);
// 0.5 -> "0.5", 30'000 ms -> "30": what those two read.
std::string shown_number(double value);
std::string shown_seconds(std::chrono::milliseconds time);

// "a,b" -> "a", "b"; an empty text has one empty part.
std::vector<std::string> split_at_commas(const std::string& text);
using ddp::detail::joined;

}  // namespace launcher
