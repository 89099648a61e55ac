// The main of all test programs: Catch2's, which watches that its assertions, which are for one thread, are used on
// one.
#include <catch2/catch_session.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/rank_checks.h"

namespace {

class OnTheMainThread final : public Catch::EventListenerBase {
 public:
  using EventListenerBase::EventListenerBase;

  void assertionStarting(const Catch::AssertionInfo& assertion) override {
    if (ddp::test::is_main_thread()) return;
    const std::string macro(assertion.macroName);
    std::fprintf(stderr, "%s:%zu: %s is not for threads: use RANK_%s (tests/support/rank_checks.h)\n",
                 assertion.lineInfo.file, assertion.lineInfo.line, macro.c_str(), macro.c_str());
    std::abort();
  }
};
CATCH_REGISTER_LISTENER(OnTheMainThread)

}  // namespace

int main(int argc, char** argv) {
  const int status = Catch::Session().run(argc, argv);
  const std::string unreported = ddp::test::unreported_rank_checks();
  if (unreported.empty()) return status;
  std::fprintf(stderr, "Threads found this and no test reported it:\n%s", unreported.c_str());
  return status == 0 ? 1 : status;
}
