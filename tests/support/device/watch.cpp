#include "tests/support/device/watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/support/device/device.h"

namespace ddp::test::device {
namespace {

constexpr int kFaultyStatus = 97;
constexpr size_t kMostLines = 20;

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) text += "  " + lines[i] + "\n";
  if (lines.size() > kMostLines) text += "  and " + std::to_string(lines.size() - kMostLines) + " more\n";
  return text;
}

void look_back_at_the_end() {
  const std::string text = look_back();
  if (text.empty()) return;
  std::fprintf(stderr, "What this program did wrong on simulated devices:\n%s", text.c_str());
  std::fflush(stderr);
  _exit(kFaultyStatus);
}

}  // namespace

std::string look_back() {
  drain();
  std::vector<std::string> lines = faults();
  static uint64_t before = 0;
  for (std::string& memory : memory_kept_since(before)) lines.push_back("never let go: " + std::move(memory));
  before = last_allocation();
  return joined(lines);
}

void watch_to_the_end() {
  if (std::getenv("DDPRUN_TEST_DEVICE_STRICT") != nullptr) std::atexit(&look_back_at_the_end);
}

}  // namespace ddp::test::device

// Found by name.
extern "C" __attribute__((visibility("default"))) const char* ddprun_test_device_look_back() {
  static std::string text;
  text = ddp::test::device::look_back();
  return text.c_str();
}
