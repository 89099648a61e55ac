#include <array>
#include <string>

#include "launcher/options/answers/answers.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

constexpr std::array kKnown{
    Explanation{"Files", "Look at the path.", "cannot open …: …\nno file …\n"},
    Explanation{"Ports", "Take another port.", "port … of host … belongs to …; choose another\n"},
    Explanation{"More ports", "Free the port.", "port … is taken; choose another\n"}};

TEST_CASE("Explanation: a message as it was printed leads to its section") {
  CHECK(explain("ddprun: port 29500 of host a belongs to an SSH server; choose another", kKnown) ==
        "Ports\n\nTake another port.\n");
  CHECK(explain("rank 1 of 2: cannot open /data/x: No such file", kKnown) == "Files\n\nLook at the path.\n");
}

TEST_CASE("Explanation: a piece of a message is enough, in any case and with any spaces") {
  CHECK(explain("  Belongs  TO\n", kKnown) == "Ports\n\nTake another port.\n");
}

TEST_CASE("Explanation: all sections whose messages fit as well are shown") {
  CHECK(explain("; choose another", kKnown) == "Ports\n\nTake another port.\n\nMore ports\n\nFree the port.\n");
}

TEST_CASE("Explanation: words of no message, and too few words, lead nowhere") {
  for (const char* text : {"the moon has two sides", "", "no", "…"}) CHECK(explain(text, kKnown).empty());
}

TEST_CASE("Explanation: what the build has collected has sections with messages") {
  CHECK(known_explanations().size() > 40);
  for (const Explanation& explanation : known_explanations()) CHECK_FALSE(explanation.messages.empty());
}

}  // namespace
}  // namespace launcher
