// A stack as text: one line a frame, whatever the addresses are.
#include "base/stack_text.h"

#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

std::string text_of(const Stack& stack, int skipped = 0, bool demangled = true) {
  const auto out = std::make_unique<BoundedText>();
  append_stack(*out, stack, skipped, demangled);
  return std::string(out->view());
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return lines;
}

Stack of_addresses(const std::vector<std::uintptr_t>& addresses) {
  Stack stack;
  for (const std::uintptr_t address : addresses) {
    stack.frames.at(static_cast<std::size_t>(stack.count++)) = reinterpret_cast<void*>(address);
  }
  return stack;
}

Stack of_this_thread() {
  Stack stack;
  stack.count = ::backtrace(stack.frames.data(), static_cast<int>(stack.frames.size()));
  return stack;
}

// A function of the C library that sanitizers do not replace.
std::uintptr_t exported_function() {
  return reinterpret_cast<std::uintptr_t>(::dlsym(RTLD_DEFAULT, "lfind"));
}

TEST_CASE("StackText: has one numbered line for each frame") {
  const Stack stack = of_this_thread();
  REQUIRE(stack.count > 1);
  const auto lines = lines_of(text_of(stack));
  REQUIRE(lines.size() == static_cast<std::size_t>(stack.count));
  for (std::size_t i = 0; i < lines.size(); ++i) CHECK_THAT(lines[i], StartsWith("#" + std::to_string(i) + " "));
}

TEST_CASE("StackText: leaves out the frames that it is told to, and counts from those that are left") {
  const Stack stack = of_this_thread();
  const auto all = lines_of(text_of(stack));
  const auto rest = lines_of(text_of(stack, 1));
  REQUIRE(rest.size() + 1 == all.size());
  for (std::size_t i = 0; i < rest.size(); ++i) {
    CHECK(rest[i].substr(rest[i].find(' ')) == all[i + 1].substr(all[i + 1].find(' ')));
  }
  CHECK(text_of(stack, stack.count) == "");
  CHECK(text_of(stack, stack.count + 5) == "");
}

TEST_CASE("StackText: names function, file and both distances") {
  const std::uintptr_t address = exported_function();
  REQUIRE(address != 0);
  const std::string text = text_of(of_addresses({address + 3}));
  CHECK_THAT(text, StartsWith("#0 lfind"));
  CHECK_THAT(text, ContainsSubstring("+0x3 ("));
  CHECK_THAT(text, ContainsSubstring("libc.so"));
  CHECK(text.substr(text.size() - 2) == ")\n");
}

TEST_CASE("StackText: an address that belongs to nothing is a number") {
  CHECK(text_of(of_addresses({0x10, 0})) == "#0 0x10\n#1 0x0\n");
}

TEST_CASE("StackText: names are readable only where memory may be allocated") {
  // A C++ function of the standard library, which exports it.
  void* address = ::dlsym(RTLD_DEFAULT, "_ZSt9terminatev");
  REQUIRE(address != nullptr);
  const Stack stack = of_addresses({reinterpret_cast<std::uintptr_t>(address)});
  CHECK_THAT(text_of(stack, 0, true), StartsWith("#0 std::terminate()+0x0 ("));
  CHECK_THAT(text_of(stack, 0, false), StartsWith("#0 _ZSt9terminatev+0x0 ("));
}

TEST_CASE("StackText: of no frames is empty") {
  CHECK(text_of(Stack{}) == "");
}

TEST_CASE("StackText: a stack that does not fit is cut off, not written beyond") {
  const auto out = std::make_unique<BoundedText>();
  while (!out->is_full()) append_stack(*out, of_this_thread(), 0, false);
  const std::string before(out->view());
  append_stack(*out, of_this_thread(), 0, true);
  CHECK(out->view() == before);
}

}  // namespace
}  // namespace ddp::detail
