#include "tests/support/device/caller.h"

#include <c10/util/Type.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

namespace ddp::test::device {
namespace {

struct Module {
  std::string path{};
  uintptr_t base = 0;
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

// dladdr() looks at each of LibTorch's symbols: milliseconds.
class Modules {
 public:
  std::shared_ptr<const Module> find(const void* address) {
    const std::lock_guard lock(mutex_);
    if (auto known = among_known(address)) return known;
    known_.clear();
    dl_iterate_phdr(&add, &known_);
    return among_known(address);
  }

 private:
  std::shared_ptr<const Module> among_known(const void* address) const {
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    const auto found = std::ranges::find_if(
        known_, [&](const auto& module) { return wanted >= module->begin && wanted < module->end; });
    return found == known_.end() ? nullptr : *found;
  }
  static int add(dl_phdr_info* info, size_t, void* list) {
    auto module = std::make_shared<Module>();
    module->path = info->dlpi_name;
    if (module->path.empty()) module->path = program_invocation_name;
    module->base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& part = info->dlpi_phdr[i];
      if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
      module->begin = info->dlpi_addr + part.p_vaddr;
      module->end = module->begin + part.p_memsz;
    }
    static_cast<List*>(list)->push_back(std::move(module));
    return 0;
  }

  using List = std::vector<std::shared_ptr<const Module>>;
  std::mutex mutex_;
  List known_;
};

Modules& modules() {
  static auto* const the_modules = new Modules();
  return *the_modules;
}

constexpr int kFrames = 64;  // LibTorch's dispatcher takes many

std::string_view symbol(void* frame) {
  Dl_info info{};
  return dladdr(frame, &info) == 0 || info.dli_sname == nullptr ? "" : info.dli_sname;
}

}  // namespace

bool is_under_test(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return !name.starts_with("libtorch") && !name.starts_with("libc10") && !name.starts_with("libddprun_test_device") &&
         !name.starts_with("libc.") && !name.starts_with("libstdc++");
}

std::string caller() {
  std::array<void*, kFrames> frames{};
  const int count = backtrace(frames.data(), kFrames);
  for (int i = 0; i < count; ++i) {
    void* const frame = frames.at(static_cast<size_t>(i));
    const auto module = modules().find(frame);
    if (!module || !is_under_test(module->path)) continue;
    const std::string_view name = symbol(frame);
    if (!name.empty()) return c10::demangle(std::string(name).c_str());
    std::ostringstream text;
    text << module->path.substr(module->path.rfind('/') + 1) << "+0x" << std::hex
         << reinterpret_cast<uintptr_t>(frame) - module->base;
    return text.str();
  }
  return "LibTorch";
}

bool is_called_by_c10d() {
  std::array<void*, kFrames> frames{};
  const int count = backtrace(frames.data(), kFrames);
  for (int i = 0; i < count; ++i) {
    void* const frame = frames.at(static_cast<size_t>(i));
    const auto module = modules().find(frame);
    if (module && is_under_test(module->path)) return false;
    if (symbol(frame).find("N4c10d") != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace ddp::test::device
