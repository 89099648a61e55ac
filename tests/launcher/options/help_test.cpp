#include "launcher/options/help.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>

#include "launcher/options/option_table.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;

class HelpTest {
 protected:
  HelpTest() { app_.name("program [OPTIONS]"); }
  void add(const std::string& names, const std::string& meaning, const std::string& group = "Group") {
    table_.group(group);
    table_.command({names, meaning}, [] {});
  }
  std::string text() const { return help_text(table_); }

  std::string value_;
  std::optional<std::string> optional_;
  int number_ = 1;
  bool flag_ = false;
  CLI::App app_{"What it does."};
  OptionTable table_{app_};
};

TEST_CASE_METHOD(HelpTest, "Help: begins with what the program does and how it is called") {
  CHECK_THAT(text(), Catch::Matchers::StartsWith("What it does.\n\nUsage: program [OPTIONS]\n\n"));
}

TEST_CASE_METHOD(HelpTest, "Help: an option has its names, its value, its default and its variable") {
  table_.group("Group");
  table_.number({"-n,--number", "How many"}, number_);
  table_.text({"--text TEXT", "A text"}, value_);
  table_.flag({"-q,--quiet", "Say less"}, flag_);
  CHECK_THAT(text(), ContainsSubstring("  -n, --number N                        [1]  PET_NUMBER\n        How many\n"));
  CHECK_THAT(text(), ContainsSubstring("  --text TEXT                           [none]  PET_TEXT\n"));
  CHECK_THAT(text(), ContainsSubstring("  -q, --quiet                           [off]  PET_QUIET\n"));
}

TEST_CASE_METHOD(HelpTest,
                 "Help: a value that may be left out is in brackets, and without a variable there is no default") {
  table_.group("Group");
  table_.optional_text({"--name NAME", "A name"}, optional_, "bare");
  add("--command", "A command");
  CHECK_THAT(text(), ContainsSubstring("\n  --name[=NAME]                         [none]  PET_NAME\n        A name\n"));
  CHECK_THAT(text(), ContainsSubstring("\n  --command\n        A command\n"));
}

TEST_CASE_METHOD(HelpTest, "Help: groups come in the order of their first option, each with all of its options") {
  add("--one", "1", "First");
  add("--two", "2", "Second");
  add("--three", "3", "First");
  const std::string help = text();
  const auto at = [&](const std::string& word) { return help.find(word); };
  CHECK(at("\nFirst\n") < at("--one"));
  CHECK(at("--one") < at("--three"));
  CHECK(at("--three") < at("\nSecond\n"));
  CHECK(at("\nSecond\n") < at("--two"));
  CHECK(help.find("\nFirst\n", at("\nFirst\n") + 1) == std::string::npos);
}

TEST_CASE_METHOD(HelpTest, "Help: descriptions are broken between words, and no word is lost") {
  std::string words;
  for (int i = 0; i < 200; ++i) words += (i == 0 ? "" : " ") + std::string(static_cast<std::size_t>(i % 13 + 1), 'w');
  add("--long", words);
  std::istringstream lines(text());
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.size() <= 80);
    if (!line.starts_with("        w")) continue;
    CHECK(line.back() == 'w');
    found += (found.empty() ? "" : " ") + line.substr(8);
  }
  CHECK(found == words);
}

TEST_CASE_METHOD(HelpTest, "Help: words longer than a line, blanks alone and nothing at all are shown as they are") {
  const std::string word(300, 'x');
  add("--word", word);
  add("--empty", "");
  add("--blanks", std::string(250, ' '));
  table_.text({"--a_name_that_is_longer_than_the_column_of_the_defaults VALUE", "D"}, value_);
  const std::string help = text();
  CHECK_THAT(help, ContainsSubstring(word));
  CHECK_THAT(help, ContainsSubstring("defaults VALUE\n        [none]  PET_A_NAME_THAT_IS_LONGER"));
}

}  // namespace
}  // namespace launcher
