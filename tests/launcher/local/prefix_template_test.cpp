#include "launcher/local/output/prefix_template.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <random>
#include <regex>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/os/system/launch_error.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

std::string expand(std::string_view text) {
  return PrefixTemplate(text).expand({.rank = 12, .local_rank = 4}, "node7", "stderr", "11:05:19");
}

TEST_CASE("PrefixTemplate: the default is the rank") {
  CHECK(expand(PrefixTemplate::kDefault) == "[12] ");
}

TEST_CASE("PrefixTemplate: every field is filled in") {
  CHECK(expand("{host}:{rank}.{local_rank} {stream} {time}|") == "node7:12.4 stderr 11:05:19|");
  CHECK(PrefixTemplate("{time}").has_time());
  CHECK_FALSE(PrefixTemplate("{rank}").has_time());
}

TEST_CASE("PrefixTemplate: Horovod's form has a name") {
  CHECK(expand("horovod") == "[1,12]<stderr>:");
}

TEST_CASE("PrefixTemplate: other braces are text") {
  CHECK(expand("{") == "{");
  CHECK(expand("}{rank}{") == "}12{");
  CHECK(expand("") == "");
}

TEST_CASE("PrefixTemplate: torchrun's templates are filled in") {
  const auto expanded = [](std::string_view text) {
    return PrefixTemplate::from_torchrun(text, "tr{rank}").expand({.rank = 12, .local_rank = 4}, "node7", "stderr", "");
  };
  CHECK(expanded("[${role_name}${local_rank}]:") == "[tr{rank}4]:");
  CHECK(expanded("$rank,$local_rank;$ranks $$ ${other} ${rank $") == "12,4;$ranks $ ${other} ${rank $");
  CHECK(expanded("{rank} plain") == "{rank} plain");
  CHECK(expanded("") == "");
}

TEST_CASE("PrefixTemplate: unknown fields are refused, with the whole template and what there is") {
  const auto* bad = GENERATE("{rnak}", "{}", "{ rank}", "{RANK}", "{rank:02}", "{{rank}}", "a{rank}{x}b", "{text}");
  CHECK_THROWS_MATCHES(
      PrefixTemplate(bad), LaunchError,
      Catch::Matchers::Message("--prefix '" + std::string(bad) +
                               "': unknown field; the fields are {rank}, {local_rank}, {host}, {stream} and {time}"));
}

TEST_CASE("PrefixTemplate: an empty one is known as such, and values are not looked at again") {
  CHECK(PrefixTemplate("").is_empty());
  CHECK(PrefixTemplate::from_torchrun("", "role").is_empty());
  CHECK_FALSE(PrefixTemplate(" ").is_empty());
  CHECK_FALSE(PrefixTemplate::from_torchrun("${time} {time}", "").has_time());
  CHECK(PrefixTemplate("{host}{stream}{time}").expand({}, "{rank}", "{host}", "{stream}") == "{rank}{host}{stream}");
  CHECK(PrefixTemplate::from_torchrun("$hostname:${hostname}", "").expand({}, "vm", "", "") == "vm:vm");
  CHECK(PrefixTemplate::from_torchrun("${role_name}", "$rank").expand({.rank = 3}, "", "", "") == "$rank");
}

const std::string kPieces[] = {"{",        "}",      "{rank}", "{local_rank}", "{host}",
                               "{stream}", "{time}", "x",      "\xc3\xa4",     " "};

// Field by field with another method: the places of all braces first.
std::string expected_of(std::string text) {
  const std::pair<const char*, const char*> fields[] = {
      {"rank", "12"}, {"local_rank", "4"}, {"host", "node7"}, {"stream", "stderr"}, {"time", "11:05:19"}};
  std::string result;
  std::smatch match;
  while (std::regex_search(text, match, std::regex("\\{([^}]*)\\}"))) {
    const auto* field =
        std::ranges::find(fields, match[1].str(), [](const auto& each) { return std::string(each.first); });
    if (field == std::end(fields)) return "refused";
    result += match.prefix().str() + field->second;
    text = match.suffix().str();
  }
  return result + text;
}

TEST_CASE("PrefixTemplate: templates of random pieces are filled in or refused") {
  std::mt19937 random(9);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (unsigned i = random() % 6; i > 0; --i) text += kPieces[random() % std::size(kPieces)];
    const auto expected = expected_of(text);
    CAPTURE(text);
    if (expected == "refused") {
      ++refused;
      REQUIRE_THROWS_AS(PrefixTemplate(text), LaunchError);
    } else {
      REQUIRE(expand(text) == expected);
    }
  }
  CHECK((refused > 200 && refused < 1800));
}

// Python's string.Template.safe_substitute, whose pattern this is.
std::string safe_substitute(std::string text) {
  const std::regex pattern(R"(\$(?:(\$)|([_a-zA-Z][_a-zA-Z0-9]*)|\{([_a-zA-Z][_a-zA-Z0-9]*)\}))");
  std::string result;
  std::smatch match;
  while (std::regex_search(text, match, pattern)) {
    const auto name = match[2].matched ? match[2].str() : match[3].str();
    result += match.prefix().str();
    result += match[1].matched       ? "$"
              : name == "rank"       ? "12"
              : name == "local_rank" ? "4"
              : name == "role_name"  ? "trainer"
                                     : match.str();
    text = match.suffix().str();
  }
  return result + text;
}

TEST_CASE("PrefixTemplate: torchrun's templates of random pieces are filled in as Python does") {
  const std::string pieces[] = {"$", "{",    "}",       "rank", "local_rank", "role_name", "_",
                                "1", "RANK", "${rank}", "$$",   " ",          "\xc3\xa4",  "-"};
  std::mt19937 random(10);
  int changed = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (unsigned i = random() % 8; i > 0; --i) text += pieces[random() % std::size(pieces)];
    const auto expected = safe_substitute(text);
    CAPTURE(text);
    REQUIRE(PrefixTemplate::from_torchrun(text, "trainer").expand({.rank = 12, .local_rank = 4}, "h", "s", "t") ==
            expected);
    changed += expected != text ? 1 : 0;
  }
  CHECK(changed > 500);
}

TEST_CASE("PrefixTemplate: the time is that of the clock, to the second") {
  const auto text = time_text();
  CHECK_THAT(text, Catch::Matchers::Matches("20[0-9]{2}-[01][0-9]-[0-3][0-9] [0-2][0-9]:[0-5][0-9]:[0-6][0-9]"));
  std::tm parts{};
  REQUIRE(::strptime(text.c_str(), "%Y-%m-%d %H:%M:%S", &parts) != nullptr);
  parts.tm_isdst = -1;
  CHECK(std::abs(std::difftime(std::mktime(&parts), std::time(nullptr))) <= 60);
}

}  // namespace
}  // namespace launcher
