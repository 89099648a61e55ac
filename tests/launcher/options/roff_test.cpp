#include "launcher/options/roff.h"

#include <sstream>
#include <string>

#include "tests/support/catch.h"

namespace launcher {
namespace {

TEST_CASE("Roff: every character that means something to troff is escaped") {
  CHECK(roff_escaped("a\\n -x 'q' `b` ^ ~ \"d\"") == "a\\en \\-x \\(aqq\\(aq \\(gab\\(ga \\(ha \\(ti \\(dqd\\(dq");
}

TEST_CASE("Roff: no line of prose and no term begins a request") {
  CHECK(roff_prose(".py files") == "\\&.py files\n");
  CHECK(roff_prose("One. .so two") == "One.\n\\&.so two\n");
  CHECK(roff_prose("'quoted'") == "\\(aqquoted\\(aq\n");
  CHECK(roff_term(".x") == "\\&.x");
}

TEST_CASE("Roff: between backquotes prose is bold, across blanks and lines") {
  CHECK(roff_prose("run `ddprun -n 2` now") == "run \\fBddprun \\-n 2\\fR now\n");
  CHECK(roff_term("`RANK`, `SIZE`") == "\\fBRANK\\fR, \\fBSIZE\\fR");
}

TEST_CASE("Roff: prose is filled to 80 bytes, a sentence begins a line, and no word is lost") {
  CHECK(roff_prose("") == "");
  CHECK(roff_prose("  One.  Two three. ") == "One.\nTwo three.\n");
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text.append(i == 0 ? "" : " ").append(static_cast<std::size_t>(i % 17 + 1), 'w');
    if (i % 40 == 39) text.append(100, 'x');
  }
  std::istringstream lines(roff_prose(text));
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    CHECK((line.size() <= 80 || line.find(' ') == std::string::npos));
    found.append(found.empty() ? "" : " ").append(line);
  }
  CHECK(found == text);
}

}  // namespace
}  // namespace launcher
