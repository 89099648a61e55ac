// Tests that run with every kind of connection and with several world sizes:
//
//     class Exchange : public test::WiresAndSizes {};
//     INSTANTIATE_TEST_SUITE_P(WiresAndSizes, Exchange, test::all_wires_and_sizes(), test::wire_and_size);
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>

#include "tests/support/ranks.h"

namespace ddp::test {

using WireAndSize = std::tuple<Wire, int>;

class WiresAndSizes : public testing::TestWithParam<WireAndSize> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  void run(const std::function<void(const GroupHandle&)>& body) const {
    run_ranks(size(), body, {.wire = std::get<0>(GetParam())});
  }
};

inline auto all_wires_and_sizes() {
  return testing::Combine(testing::Values(Wire::kGloo, Wire::kLate), testing::Range(1, 5));
}

inline std::string wire_and_size(const testing::TestParamInfo<WireAndSize>& parameters) {
  return (std::get<0>(parameters.param) == Wire::kGloo ? "gloo" : "late") +
         std::to_string(std::get<1>(parameters.param));
}

}  // namespace ddp::test
