// What this folder's tests say of an action that is refused.
#pragma once

#include <stdexcept>

#include "tests/support/catch.h"

namespace ddp::test {

/// `action` throws std::invalid_argument with the rank and `text`.
template <typename Action>
void refused(Action action, const char* text) {
  using Catch::Matchers::ContainsSubstring;
  CHECK_THROWS_MATCHES(action(), std::invalid_argument,
                       Catch::Matchers::MessageMatches(ContainsSubstring("rank 0 of 1") && ContainsSubstring(text)));
}

}  // namespace ddp::test
