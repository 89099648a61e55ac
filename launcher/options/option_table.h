// Declares options so that each fills its member of Options directly: one line says the names, where the value goes,
// what it may be, its default as --help shows it, and what it means.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace launcher {

class OptionTable {
 public:
  // What turns an option's text into values; throws UsageError when it cannot be right. Later ones of several equal
  // options are the only ones that it sees.
  using Parse = std::function<void(const std::string& text)>;
  using Choice = std::pair<std::string, std::function<void()>>;

  // `app` and all targets must outlive the parsing.
  explicit OptionTable(CLI::App& app);

  // The title above the options that follow.
  void group(std::string title) { group_ = std::move(title); }

  // `names` as in "-n,--nproc_per_node"; the first long one names the PET_ variable.
  void flag(const std::string& names, bool& target, const std::string& meaning);
  void text(const std::string& names, std::string& target, const std::string& type, const std::string& fallback,
            const std::string& meaning);
  // Whole numbers from `lowest` to `highest`.
  void number(const std::string& names, int& target, int lowest, int highest, const std::string& fallback,
              const std::string& meaning);
  // From 0 to 1e9 seconds, with fractions.
  void seconds(const std::string& names, std::chrono::milliseconds& target, const std::string& fallback,
               const std::string& meaning);
  void seconds(const std::string& names, std::optional<std::chrono::milliseconds>& target, const std::string& meaning);
  // One of a few words; the first one is the default.
  void choice(const std::string& names, std::vector<Choice> choices, const std::string& meaning);
  // May be given several times.
  void list(const std::string& names, std::vector<std::string>& target, const std::string& type,
            const std::string& meaning);
  // The value may be left out and is `bare` then; where it is given, it is in the same word.
  void optional_text(const std::string& names, std::optional<std::string>& target, const std::string& bare,
                     const std::string& type, const std::string& fallback, const std::string& meaning);
  void parsed(const std::string& names, Parse parse, const std::string& type, const std::string& fallback,
              const std::string& meaning);
  // For ddprun itself: in no list, and without a variable.
  void hidden(const std::string& names, Parse parse);
  // Of other launchers, with nothing to do here.
  void accepted(const std::string& names, const std::string& meaning);
  void accepted_flag(const std::string& names, const std::string& meaning);
  // A flag that no variable sets.
  void command(const std::string& names, std::function<void()> action, const std::string& meaning);
  // One of a few words, from which no variable chooses; without the option nothing happens.
  void command(const std::string& names, std::vector<Choice> choices, const std::string& meaning);
  // With a value, which no variable gives; without the option nothing happens.
  void command(const std::string& names, Parse parse, const std::string& type, const std::string& meaning);

 private:
  void finish(CLI::Option* option, const std::string& type, const std::string& fallback) const;

  CLI::App& app_;
  std::string group_;
};

// `text` as a number; throws UsageError, which names `option`, when it is none in the range. `or_else` says what else
// may stand there, as in ", or auto".
int parse_number(const std::string& option, const std::string& text, int lowest, int highest,
                 const std::string& or_else = "");
std::chrono::milliseconds parse_seconds(const std::string& option, const std::string& text);

// A wrong value as an error shows it, with what was probably forgotten where it is the next word of the command line.
std::string quoted_value(const std::string& text);

// "a,b" -> "a", "b"; an empty text has one empty part.
std::vector<std::string> split_at_commas(const std::string& text);

}  // namespace launcher
