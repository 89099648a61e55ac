// The main of all test programs: Catch2's, which watches that its assertions, which are for one thread, are used on
// one.
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <dlfcn.h>

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

// Tests on simulated devices (placement.h): these take CUDA's place before anything asks LibTorch for it, and say
// after each test case, which knows nothing of it, what was wrong there.
class OnDevices final : public Catch::EventListenerBase {
 public:
  using EventListenerBase::EventListenerBase;

  static void load() {
    const char* library = std::getenv("DDPRUN_CUDA_PLUGIN");
    if (std::getenv("DDPRUN_TEST_ON_DEVICES") == nullptr || library == nullptr) return;
    void* const handle = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (handle != nullptr) look_back() = reinterpret_cast<LookBack>(dlsym(handle, "ddprun_test_device_look_back"));
    if (look_back() != nullptr) return;
    std::fprintf(stderr, "there are no simulated devices: %s\n", dlerror());
    std::exit(1);
  }
  static int faulty() { return faulty_cases(); }

  void testCasePartialEnded(const Catch::TestCaseStats& stats, uint64_t /*part*/) override {
    if (look_back() == nullptr) return;
    const std::string text = look_back()();
    if (text.empty()) return;
    ++faulty_cases();
    std::fprintf(stderr, "\"%s\" did wrong on simulated devices:\n%s", stats.testInfo->name.c_str(), text.c_str());
  }

 private:
  using LookBack = const char* (*)();
  static LookBack& look_back() {
    static LookBack function = nullptr;
    return function;
  }
  static int& faulty_cases() {
    static int count = 0;
    return count;
  }
};
CATCH_REGISTER_LISTENER(OnDevices)

}  // namespace

int main(int argc, char** argv) {
  OnDevices::load();
  const int status = Catch::Session().run(argc, argv);
  if (OnDevices::faulty() > 0) return status == 0 ? 1 : status;
  const std::string unreported = ddp::test::unreported_rank_checks();
  if (unreported.empty()) return status;
  std::fprintf(stderr, "Threads found this and no test reported it:\n%s", unreported.c_str());
  return status == 0 ? 1 : status;
}
