#include "launcher/options/help.h"

#include <CLI/App.hpp>

#include <algorithm>
#include <sstream>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;

class HelpTest {
 protected:
  HelpTest() { app_.name("program [OPTIONS]"); }
  CLI::Option* add(const std::string& names, const std::string& description, const std::string& group = "Group") {
    return app_.add_option(names, value_, description)->group(group);
  }
  std::string text() const { return help_text(app_); }

  std::string value_;
  bool flag_ = false;
  CLI::App app_{"What it does."};
};

TEST_CASE_METHOD(HelpTest, "Help: begins with what the program does and how it is called") {
  app_.set_help_flag();
  CHECK_THAT(text(), Catch::Matchers::StartsWith("What it does.\n\nUsage: program [OPTIONS]\n\n"));
}

TEST_CASE_METHOD(HelpTest, "Help: an option has its names, its value, its default and its variable") {
  add("-n,--number", "How many")->type_name("N")->option_text("1")->envname("PET_NUMBER");
  add("--text", "A text")->type_name("TEXT")->envname("PET_TEXT");
  app_.add_flag("-q,--quiet", flag_, "Say less")->envname("PET_QUIET")->group("Group");
  CHECK_THAT(text(), ContainsSubstring("  -n, --number N                        [1]  PET_NUMBER\n        How many\n"));
  CHECK_THAT(text(), ContainsSubstring("  --text TEXT                           [none]  PET_TEXT\n"));
  CHECK_THAT(text(), ContainsSubstring("  -q, --quiet                           [off]  PET_QUIET\n"));
}

TEST_CASE_METHOD(HelpTest,
                 "Help: a value that may be left out is in brackets, and without a variable there is no default") {
  add("--name", "A name")->type_name("NAME")->expected(0, 1);
  CHECK_THAT(text(), ContainsSubstring("\n  --name[=NAME]\n        A name\n"));
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
  add("--a-name-that-is-longer-than-the-column-of-the-defaults", "D")->type_name("VALUE")->envname("PET_LONG");
  const std::string help = text();
  CHECK_THAT(help, ContainsSubstring(word));
  CHECK_THAT(help, ContainsSubstring("defaults VALUE\n        [none]  PET_LONG\n        D\n"));
}

}  // namespace
}  // namespace launcher
