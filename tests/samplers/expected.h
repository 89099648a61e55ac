// What PyTorch 2.11 gives (sampler_expected.json), and how its long orders are compared.
#pragma once

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <vector>

#include "tests/support/catch.h"

namespace ddp::test {

inline nlohmann::json expected_orders() {
  return nlohmann::json::parse(std::ifstream(DDPRUN_SAMPLER_EXPECTED));
}

/// The hash of the file: a = 0; for v: a = (a * 1000003 + v + 1) mod 2^61.
inline int64_t digest(const std::vector<int64_t>& values) {
  constexpr uint64_t kModulus = uint64_t{1} << 61;
  uint64_t a = 0;
  for (const int64_t v : values) a = (a * 1000003 + static_cast<uint64_t>(v) + 1) % kModulus;  // 2^61 divides 2^64
  return static_cast<int64_t>(a);
}

inline void expect_digest(const std::vector<int64_t>& values, const nlohmann::json& want) {
  const std::vector<int64_t> head = want.at("head");
  const std::vector<int64_t> tail = want.at("tail");
  REQUIRE(values.size() >= std::max(head.size(), tail.size()));
  CHECK(std::equal(head.begin(), head.end(), values.begin()));
  CHECK(std::equal(tail.rbegin(), tail.rend(), values.rbegin()));
  CHECK(digest(values) == want.at("hash").get<int64_t>());
}

}  // namespace ddp::test
