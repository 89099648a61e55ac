#include "tests/support/device/watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tests/support/device/device.h"

namespace ddp::test::device {
namespace {

constexpr int kFaultyStatus = 97;
constexpr size_t kMaxLines = 20;
// backward() returns before LibTorch's threads have released its last node, on a busy machine long before. Memory that
// is still held after this time is reported as a leak.
constexpr std::chrono::seconds kGrace{5};
constexpr std::chrono::milliseconds kLook{1};

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kMaxLines); ++i) text += "  " + lines[i] + "\n";
  if (lines.size() > kMaxLines) text += "  and " + std::to_string(lines.size() - kMaxLines) + " more\n";
  return text;
}

std::vector<std::string> memory_kept(uint64_t since) {
  const auto end = std::chrono::steady_clock::now() + kGrace;
  std::vector<std::string> kept = memory_kept_since(since);
  while (!kept.empty() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kLook);
    kept = memory_kept_since(since);
  }
  return kept;
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
  static uint64_t before = 0;
  drain();
  const std::vector<std::string> kept = memory_kept(before);
  drain();  // what was let go late has been on streams
  before = last_allocation();
  std::vector<std::string> lines = faults();
  for (const std::string& memory : kept) lines.push_back("never let go: " + memory);
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
