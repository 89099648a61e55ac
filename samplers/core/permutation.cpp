#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "ddprun/samplers/shard.h"

namespace ddp {
namespace {

/// PyTorch's CPU generator: a Mersenne twister that uses the lower half of the seed.
class Generator {
 public:
  explicit Generator(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {}

  uint64_t random32() { return engine_(); }
  uint64_t random64() {
    const uint64_t high = random32();
    return high << 32 | random32();
  }

 private:
  std::mt19937 engine_;
};

/// From this size on, PyTorch draws 64 bits per sample and uses the inside-out shuffle.
constexpr int64_t kLarge = std::numeric_limits<uint32_t>::max() / 20;
/// From this range on, PyTorch's randint draws 64 bits.
constexpr uint64_t kLargeRange = uint64_t{1} << 28;

std::vector<int64_t> permute(int64_t n, Generator& generator) {
  std::vector<int64_t> order = ascending(n);
  if (n < kLarge) {
    for (int64_t i = 0; i + 1 < n; ++i) {
      const auto offset = static_cast<int64_t>(generator.random32() % static_cast<uint64_t>(n - i));
      std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(i + offset)]);
    }
    return order;
  }
  for (int64_t i = 0; i < n; ++i) {
    const auto other = static_cast<size_t>(generator.random64() % static_cast<uint64_t>(i + 1));
    order[static_cast<size_t>(i)] = order[other];
    order[other] = i;
  }
  return order;
}

void check_sizes(int64_t n, int64_t count) {
  if (n < 0 || count < 0 || (n == 0 && count > 0)) {
    throw std::invalid_argument("Cannot draw " + std::to_string(count) + " samples out of " + std::to_string(n));
  }
}

}  // namespace

std::vector<int64_t> ascending(int64_t n) {
  check_sizes(n, 0);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

std::vector<int64_t> permutation(int64_t n, uint64_t seed) {
  Generator generator(seed);
  return permute(n, generator);
}

std::vector<int64_t> random_order(int64_t n, int64_t count, uint64_t seed) {
  check_sizes(n, count);
  Generator generator(seed);
  std::vector<int64_t> order;
  order.reserve(static_cast<size_t>(count));
  for (int64_t left = count; left > 0; left -= n) {
    const std::vector<int64_t> round = permute(n, generator);
    order.insert(order.end(), round.begin(), round.begin() + std::min(left, n));
  }
  return order;
}

std::vector<int64_t> random_draws(int64_t n, int64_t count, uint64_t seed) {
  check_sizes(n, count);
  Generator generator(seed);
  const auto range = static_cast<uint64_t>(n);
  std::vector<int64_t> draws(static_cast<size_t>(count));
  for (int64_t& draw : draws) {
    draw = static_cast<int64_t>((range >= kLargeRange ? generator.random64() : generator.random32()) % range);
  }
  return draws;
}

}  // namespace ddp
