#include "base/stack_text.h"

#include <dlfcn.h>

#include <cstdint>
#include <string_view>

#include "base/symbol_name.h"

namespace ddp::detail {
namespace {

constexpr std::size_t kMaxNameBytes = 300;  // symbols of template instances can be very long

void append_name(BoundedText& out, const char* name, bool demangled) {
  if (demangled) return out.append(symbol_name(name, kMaxNameBytes));
  out.append(std::string_view(name).substr(0, kMaxNameBytes));
}

std::uint64_t distance(const void* from, const void* to) {
  return reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from);
}

}  // namespace

void append_stack(BoundedText& out, const Stack& stack, int skipped, bool demangled) {
  for (int i = skipped; i < stack.count; ++i) {
    void* address = stack.frames[static_cast<std::size_t>(i)];
    out.append("#");
    out.append_decimal(static_cast<std::uint64_t>(i - skipped));
    out.append(" ");
    Dl_info info{};
    if (::dladdr(address, &info) == 0) {
      out.append_hex(reinterpret_cast<std::uintptr_t>(address));
    } else {
      if (info.dli_sname != nullptr) {
        append_name(out, info.dli_sname, demangled);
        out.append("+");
        out.append_hex(distance(info.dli_saddr, address));
        out.append(" ");
      }
      out.append("(");
      out.append(info.dli_fname != nullptr ? info.dli_fname : "?");
      out.append("+");
      out.append_hex(distance(info.dli_fbase, address));
      out.append(")");
    }
    out.append("\n");
  }
}

}  // namespace ddp::detail
