#include "launcher/observe/watch/frame_origin.h"

#include <algorithm>
#include <array>

namespace launcher {
namespace {

constexpr std::array<std::string_view, 9> kSystemFiles = {"libc.so",  "libc-",   "libpthread", "libstdc++", "ld-linux",
                                                          "libgcc_s", "libm.so", "libgomp",    "linux-vdso"};
constexpr std::array<std::string_view, 5> kLibTorchFiles = {"libtorch", "libc10", "libcud", "libnccl", "libgloo"};
constexpr std::array<std::string_view, 5> kLibTorchNamespaces = {"at::", "c10::", "c10d::", "torch::", "gloo::"};
constexpr std::array<std::string_view, 2> kStandardNamespaces = {"std::", "__gnu_cxx::"};

template <std::size_t kCount>
bool starts_with_any(std::string_view text, const std::array<std::string_view, kCount>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](auto each) { return text.starts_with(each); });
}

}  // namespace

bool is_in_system_file(const StackFrame& frame) {
  return frame.file.empty() || starts_with_any(frame.file, kSystemFiles);
}

std::string plain_function_name(std::string_view name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  constexpr std::string_view kConst = " const";
  std::string plain;
  int depth = 0;
  while (!name.empty()) {
    if (depth == 0 && name.starts_with(kAnonymous)) {
      plain += "{anonymous}";
      name.remove_prefix(kAnonymous.size());
      continue;
    }
    const char c = name.front();
    name.remove_prefix(1);
    if (c == '<' || c == '(' || c == '[') {
      ++depth;
    } else if (c == '>' || c == ')' || c == ']') {
      depth = std::max(depth - 1, 0);
    } else if (depth == 0) {
      plain += c;
    }
  }
  while (plain.ends_with(' ')) plain.pop_back();
  if (plain.ends_with(kConst)) plain.resize(plain.size() - kConst.size());
  return plain.substr(plain.rfind(' ') + 1);
}

FrameOrigin origin_of(const StackFrame& frame) {
  if (is_in_system_file(frame)) return FrameOrigin::kSystem;
  if (starts_with_any(frame.file, kLibTorchFiles)) return FrameOrigin::kLibTorch;
  const std::string name = plain_function_name(frame.function);
  if (name.starts_with("ddp::")) return FrameOrigin::kDdprun;
  if (starts_with_any(name, kLibTorchNamespaces)) return FrameOrigin::kLibTorch;
  if (starts_with_any(name, kStandardNamespaces)) return FrameOrigin::kSystem;
  return FrameOrigin::kProgram;
}

FrameOrigin origin_of(const std::vector<StackFrame>& frames) {
  FrameOrigin outermost = FrameOrigin::kSystem;
  bool is_outside_system = false;
  for (const StackFrame& frame : frames) {
    is_outside_system = is_outside_system || !is_in_system_file(frame);
    const FrameOrigin origin = origin_of(frame);
    if (origin == FrameOrigin::kProgram) return origin;
    if (origin != FrameOrigin::kSystem) outermost = origin;
  }
  // The compiler may have inlined the program's function into a template of the C++ library.
  return outermost == FrameOrigin::kSystem && is_outside_system ? FrameOrigin::kProgram : outermost;
}

}  // namespace launcher
