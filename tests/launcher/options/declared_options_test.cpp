// Each option is declared once: its default is a member of Options, and every text that shows it follows that member.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "launcher/options/declare_options.h"
#include "launcher/options/generated_texts.h"
#include "launcher/options/help.h"
#include "launcher/options/option_table.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;

// ddprun's options, with what is in `options` as their defaults.
class Declared {
 public:
  explicit Declared(const Options& defaults) : options_(defaults) { declare_options(table_, options_); }
  const OptionTable& table() const { return table_; }
  std::vector<ShownOption> all() const {
    std::vector<ShownOption> options;
    for (const ShownGroup& group : table_.groups()) {
      options.insert(options.end(), group.options.begin(), group.options.end());
    }
    return options;
  }
  Options parsed(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());
    app_.parse(std::move(words));
    return options_;
  }

 private:
  CLI::App app_{"", "ddprun"};
  Options options_;
  OptionTable table_{app_};
};

// A value that is not the default, by what values are called.
std::string other_value(const ShownOption& option) {
  static const std::map<std::string, std::string> kValues = {
      {"N", "77"},           {"SECONDS", "77"},      {"PORT", "77"},         {"PERCENT", "77.5"},
      {"RANK", "77"},        {"LIST", "7,77"},       {"STREAMS", "0:3,7:1"}, {"[ADDRESS:]PORT", "10.0.0.7:77"},
      {"N|MIN:MAX", "7:77"}, {"FIRST:LAST", "7:77"}, {"TEXT,...", "a,b,,c"}};
  if (option.names.back() == "--signals_to_handle") return "SIGUSR1,SIGTERM";
  for (const std::string& word : option.words()) {
    if (word != option.fallback) return word;
  }
  const auto found = kValues.find(option.value);
  return found == kValues.end() ? "another" : found->second;
}

// The long name of `option`, of several the first one.
std::string name_of(const ShownOption& option) {
  return *std::find_if(option.names.begin(), option.names.end(),
                       [](const std::string& name) { return name.starts_with("--"); });
}

// What sets the same as another option, under torchrun's name.
bool is_alias(const ShownOption& option) {
  return name_of(option) == "--numa_binding";
}

// Every default is another one: {long name: the text of the new one}.
std::map<std::string, std::string> other_values() {
  std::map<std::string, std::string> values;
  for (const ShownOption& option : Declared(Options{}).all()) {
    if (!option.has_default || is_alias(option)) continue;
    values[name_of(option)] = option.value.empty() ? "on" : other_value(option);
  }
  return values;
}

Options other_defaults() {
  std::vector<std::string> words;
  for (const auto& [name, value] : other_values()) words.push_back(value == "on" ? name : name + "=" + value);
  return Declared(Options{}).parsed(words);
}

// Whether `text`, of this kind, shows this default where it shows the option.
bool shows(const std::string& kind, const std::string& text, const ShownOption& option, const std::string& value) {
  const auto has = [&](const std::string& words) { return text.find(words) != std::string::npos; };
  // In the line with `begin`.
  const auto line_has = [&](const std::string& begin, const std::string& words) {
    const std::size_t at = text.find(begin);
    return at != std::string::npos && text.substr(at, text.find('\n', at + 1) - at).find(words) != std::string::npos;
  };
  const std::string& name = option.names.back();
  if (kind == "help") return has("[" + value + "]  " + option.variable + "\n");
  if (kind == "man") return has("\nDefault: " + value + "; variable: \\fB" + option.variable + "\\fR\n");
  if (kind == "options") return line_has("\n| `" + option.names.front(), " | " + value + " | ");
  if (kind == "fish") return line_has(" -l " + name.substr(2) + " ", " [" + value + "]'");
  const std::string form = option.value.empty() ? "[" : "=[";
  return line_has(")" + name + form, " \\[" + std::regex_replace(value, std::regex(":"), "\\:") + "\\]]");
}

TEST_CASE("DeclaredOptions: the shown default of every option is its member of Options") {
  const Declared changed(other_defaults());
  const auto values = other_values();
  CHECK(values.size() > 60);
  for (const ShownOption& option : changed.all()) {
    CAPTURE(name_of(option));
    const auto value = values.find(name_of(option));
    if (value != values.end()) CHECK(option.fallback == value->second);
  }
}

TEST_CASE("DeclaredOptions: no two options have a name in common") {
  const Declared declared(Options{});
  std::vector<std::string> names;
  for (const CLI::Option* option : declared_options(declared.table().app())) {
    names.insert(names.end(), option->get_snames().begin(), option->get_snames().end());
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  CHECK(names.size() > 90);
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
}

TEST_CASE("DeclaredOptions: only what has no effect of its own has no member") {
  std::set<std::string> without;
  for (const ShownOption& option : Declared(Options{}).all()) {
    if (!option.variable.empty() && !option.has_default) without.insert(name_of(option));
  }
  CHECK(without == std::set<std::string>{"--rdzv_conf", "--monitor_interval", "--start_method", "--event_log_handler",
                                         "--logs_specs", "--use_env"});
}

TEST_CASE("DeclaredOptions: every text that is made of them shows another default") {
  const Declared changed(other_defaults());
  const auto values = other_values();
  std::map<std::string, std::string> texts = {{"help", help_text(changed.table())}};
  for (const std::string kind : {"man", "options", "zsh", "fish"}) texts[kind] = generated_text(kind, changed.table());
  for (const ShownOption& option : changed.all()) {
    if (!values.contains(name_of(option)) || option.value_may_be_missing || option.may_be_repeated) continue;
    for (const auto& [kind, text] : texts) {
      CAPTURE(kind, name_of(option));
      CHECK(shows(kind, text, option, values.at(name_of(option))));
    }
  }
}

TEST_CASE("DeclaredOptions: no text repeats a default by hand") {
  for (const ShownOption& option : Declared(Options{}).all()) {
    CAPTURE(name_of(option), option.fallback, option.meaning, option.details);
    if (option.variable.empty()) continue;
    const std::string text = plain_text(option.meaning) + " " + plain_text(option.details);
    CHECK_FALSE(std::regex_search(text, std::regex("(by default|default is|unless given|if unset)[ :]*[0-9]")));
    // Of a small number or a word that is also a choice it is not known what it means.
    if (!std::regex_match(option.fallback, std::regex("[2-9]|[0-9][0-9.]+"))) continue;
    CHECK_FALSE(std::regex_search(text, std::regex("(^|[^0-9.])" + option.fallback + "($|[^0-9.])")));
  }
}

TEST_CASE("DeclaredOptions: a range that is declared is what is taken and what is shown") {
  int number = 5;
  std::chrono::milliseconds time{7'000};
  CLI::App app;
  OptionTable table(app);
  table.group("Group");
  table.number({"--number", "Some"}, number, {2, 9});
  table.seconds({"--time", "Some", "", {.zero = "never"}}, time);
  table.seconds({"--longer", "Some"}, time, std::chrono::seconds(3));
  const auto& options = table.groups().front().options;
  CHECK(options[0].meaning == "Some; from 2 to 9");
  CHECK(options[1].meaning == "Some; 0: never");
  CHECK(options[2].meaning == "Some; at least 3");
  CHECK(options[2].fallback == "7");
  CHECK_THROWS_WITH(app.parse("--number=10"), "--number: expected a number from 2 to 9, got '10'");
  CHECK_THROWS_WITH(app.parse("--longer=2.5"),
                    "--longer: expected a number of seconds from 3 to 1000000000, got '2.5'");
  CHECK(number == 5);
  app.parse("--number=9 --longer=3");
  CHECK(number == 9);
  CHECK(time == std::chrono::seconds(3));
}

}  // namespace
}  // namespace launcher
