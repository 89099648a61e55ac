// Matchers that Catch2 lacks: each element of a range against a value or a matcher of its own.
#pragma once

#include <catch2/catch_tostring.hpp>
#include <catch2/matchers/catch_matchers_templated.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <functional>
#include <iterator>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace ddp::test {
namespace matching {

template <typename Value, typename Expected>
bool agrees(const Value& value, const Expected& expected) {
  if constexpr (std::derived_from<Expected, Catch::Matchers::MatcherUntypedBase>) {
    return expected.match(value);
  } else if constexpr (std::integral<Value> && std::integral<Expected>) {
    return std::common_type_t<Value, Expected>(value) == std::common_type_t<Value, Expected>(expected) &&
           (value < Value{}) == (expected < Expected{});
  } else {
    return value == expected;
  }
}

template <typename Expected>
std::string described(const Expected& expected) {
  if constexpr (std::derived_from<Expected, Catch::Matchers::MatcherUntypedBase>) {
    return expected.toString();
  } else {
    return Catch::Detail::stringify(expected);
  }
}

template <typename... Expected>
std::string list_of(const std::tuple<Expected...>& expected) {
  std::string text;
  std::apply([&](const auto&... each) { ((text += (text.empty() ? "" : ", ") + described(each)), ...); }, expected);
  return "{ " + text + " }";
}

}  // namespace matching

template <typename... Expected>
class ElementsAreMatcher final : public Catch::Matchers::MatcherGenericBase {
 public:
  explicit ElementsAreMatcher(Expected... expected) : expected_(std::move(expected)...) {}

  template <typename Range>
  bool match(const Range& range) const {
    auto position = std::begin(range);
    const auto end = std::end(range);
    const auto next = [&](const auto& expected) { return position != end && matching::agrees(*position++, expected); };
    return std::apply([&](const auto&... each) { return (next(each) && ...); }, expected_) && position == end;
  }
  std::string describe() const override { return "has exactly these elements: " + matching::list_of(expected_); }

 private:
  std::tuple<Expected...> expected_;
};

/// Matches a range that has just these elements in this order; each is given as a value or as a matcher.
template <typename... Expected>
auto ElementsAre(Expected... expected) {
  return ElementsAreMatcher<Expected...>(std::move(expected)...);
}

template <typename... Expected>
class UnorderedElementsAreMatcher final : public Catch::Matchers::MatcherGenericBase {
 public:
  explicit UnorderedElementsAreMatcher(Expected... expected) : expected_(std::move(expected)...) {}

  template <typename Range>
  bool match(const Range& range) const {
    // fits[i][j]: element j is what expectation i asks for.
    std::vector<std::vector<bool>> fits;
    std::apply([&](const auto&... each) { (fits.push_back(which(range, each)), ...); }, expected_);
    const auto count = static_cast<size_t>(std::distance(std::begin(range), std::end(range)));
    return count == fits.size() && assign(fits, std::vector<bool>(count), 0);
  }
  std::string describe() const override {
    return "has exactly these elements, in any order: " + matching::list_of(expected_);
  }

 private:
  template <typename Range, typename One>
  static std::vector<bool> which(const Range& range, const One& expected) {
    std::vector<bool> fits;
    for (const auto& element : range) fits.push_back(matching::agrees(element, expected));
    return fits;
  }
  static bool assign(const std::vector<std::vector<bool>>& fits, std::vector<bool> taken, size_t first) {
    if (first == fits.size()) return true;
    for (size_t element = 0; element < taken.size(); ++element) {
      if (taken[element] || !fits[first][element]) continue;
      taken[element] = true;
      if (assign(fits, taken, first + 1)) return true;
      taken[element] = false;
    }
    return false;
  }

  std::tuple<Expected...> expected_;
};

/// As ElementsAre, in any order.
template <typename... Expected>
auto UnorderedElementsAre(Expected... expected) {
  return UnorderedElementsAreMatcher<Expected...>(std::move(expected)...);
}

class ContainsAllMatcher final : public Catch::Matchers::MatcherGenericBase {
 public:
  explicit ContainsAllMatcher(std::vector<std::string> parts) : parts_(std::move(parts)) {}

  bool match(const std::string& text) const {
    return std::ranges::all_of(parts_, [&](const auto& part) { return text.find(part) != std::string::npos; });
  }
  std::string describe() const override { return "contains all of: " + Catch::Detail::stringify(parts_); }

 private:
  std::vector<std::string> parts_;
};

/// Matches a text that has all of these parts. It may be kept, which Catch2's matchers joined by && may not.
inline ContainsAllMatcher ContainsAll(std::vector<std::string> parts) {
  return ContainsAllMatcher(std::move(parts));
}

}  // namespace ddp::test
