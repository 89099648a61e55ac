#include "launcher/os/terminal/character_width.h"

#include <locale.h>
#include <wchar.h>

#include <clocale>
#include <string>

#include "tests/support/catch.h"

namespace launcher {
namespace {

TEST_CASE("CharacterWidth: letters take one column, ideographs and most pictures two, accents none") {
  const CharacterWidth widths;
  for (const std::string narrow :
       {"a", " ", "~", "\xc3\xa4", "\xd0\x96", "\xe2\x96\x88", "\xe2\x94\x80", "\xe2\x94\x83"}) {
    CAPTURE(narrow);
    CHECK(widths.of(narrow) == 1);
  }
  for (const std::string wide : {"\xe4\xb8\xad", "\xe3\x81\x82", "\xed\x95\x9c", "\xef\xbc\xa1", "\xf0\x9f\x98\x80"}) {
    CAPTURE(wide);
    CHECK(widths.of(wide) == 2);
  }
  for (const std::string joins : {"\xcc\x81", "\xe2\x83\x9d", "\xe2\x80\x8b", "\xef\xb8\x8f"}) {
    CAPTURE(joins);
    CHECK(widths.of(joins) == 0);
  }
}

TEST_CASE("CharacterWidth: what is no character takes one column, as the sign for it does") {
  const CharacterWidth widths;
  CHECK(widths.of("") == 1);
  for (const std::string none : {"\x80", "\xff", "\xc3", "\xe4\xb8", "\xc0\x80", "\xf5\x80\x80\x80", "ab",
                                 "\xed\xa0\x80", "\xe0\x80\xa0", "\xf4\x90\x80\x80", "\xe4\xb8\xad\xe4\xb8\xad"}) {
    CAPTURE(none);
    CHECK(widths.of(none) == 1);
  }
}

TEST_CASE("CharacterWidth: every character there is has a width that a row can hold") {
  const CharacterWidth widths;
  const auto tail = [](std::uint32_t code, unsigned shift) {
    return static_cast<char>(0x80U | (code >> shift & 0x3fU));
  };
  bool all = true;
  for (std::uint32_t code = 0x80; code < 0x110000; ++code) {
    std::string bytes;
    if (code < 0x800) {
      bytes = {static_cast<char>(0xc0U | code >> 6U), tail(code, 0)};
    } else if (code < 0x10000) {
      bytes = {static_cast<char>(0xe0U | code >> 12U), tail(code, 6), tail(code, 0)};
    } else {
      bytes = {static_cast<char>(0xf0U | code >> 18U), tail(code, 12), tail(code, 6), tail(code, 0)};
    }
    const int width = widths.of(bytes);
    all = all && width >= 0 && width <= 2;
  }
  CHECK(all);
}

TEST_CASE("CharacterWidth: neither asks for the program's locale nor changes it") {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  const locale_t thread_locale = ::uselocale(static_cast<locale_t>(nullptr));
  REQUIRE(before == "C");  // of a program that does not call setlocale()
  {
    const CharacterWidth widths;
    const CharacterWidth others;
    CHECK(widths.of("\xe4\xb8\xad") == 2);
    CHECK(others.of("\xe4\xb8\xad") == 2);
    CHECK(::uselocale(static_cast<locale_t>(nullptr)) == thread_locale);
  }
  CHECK(std::setlocale(LC_ALL, nullptr) == before);
  CHECK(::uselocale(static_cast<locale_t>(nullptr)) == thread_locale);
}

}  // namespace
}  // namespace launcher
