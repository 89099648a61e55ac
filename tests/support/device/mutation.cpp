#include "tests/support/device/mutation.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <sstream>
#include <string_view>

#include "tests/support/device/caller.h"
#include "tests/support/device/device.h"

namespace ddp::test::device::mutation {
namespace {

constexpr int kFrames = 16;
constexpr size_t kTold = 2;  // a helper that waits is as many places as it has callers

std::atomic<bool> is_watching{false};
std::mutex mutex;
std::vector<std::string> met;
std::string left_out;

// Whether it is where LibTorch's dispatcher takes a call of record_stream().
bool takes_record_stream(const Dl_info& info) {
  return info.dli_sname != nullptr &&
         std::string_view(info.dli_sname).find("13record_stream4call") != std::string::npos;
}

// Of the innermost frames of the code under test, if it was asked for by that and not by LibTorch in between.
std::string place(Act act) {
  std::array<void*, kFrames> frames{};
  const int count = backtrace(frames.data(), kFrames);
  std::ostringstream text;
  size_t told = 0;
  bool is_in_dispatcher = act == Act::kRecordStream;
  for (int i = 0; i < count && told < kTold; ++i) {
    void* const frame = frames.at(static_cast<size_t>(i));
    Dl_info info{};
    if (dladdr(frame, &info) == 0 || info.dli_fname == nullptr) break;
    const std::string_view path = info.dli_fname;
    if (is_in_dispatcher) {
      is_in_dispatcher = !takes_record_stream(info);
      continue;
    }
    if (path.substr(path.rfind('/') + 1).starts_with("libddprun_test_device")) continue;
    if (!is_under_test(path)) break;
    text << (told++ > 0          ? " <- "
             : act == Act::kWait ? "wait "
                                 : "record_stream ")
         << "+0x" << std::hex << (static_cast<char*>(frame) - static_cast<char*>(info.dli_fbase));
  }
  return text.str();
}

}  // namespace

bool is_left_out(Act act) {
  if (!is_watching) return false;
  const std::string here = place(act);
  if (here.empty()) return false;
  const std::lock_guard lock(mutex);
  if (std::ranges::find(met, here) == met.end()) met.push_back(here);
  return here == left_out;
}

void watch() {
  const std::lock_guard lock(mutex);
  met.clear();
  left_out.clear();
  is_watching = true;
}

std::vector<std::string> places() {
  const std::lock_guard lock(mutex);
  return met;
}

void leave_out(const std::string& place) {
  const std::lock_guard lock(mutex);
  left_out = place;
}

void stop() {
  is_watching = false;
  leave_out("");
}

}  // namespace ddp::test::device::mutation
