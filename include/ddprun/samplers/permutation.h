// Orders of samples, bit for bit those of PyTorch's generator on the CPU: plain arithmetic, no LibTorch.
#pragma once

#include <cstdint>
#include <vector>

namespace ddp {

/// 0, 1, … n-1.
std::vector<int64_t> ascending(int64_t n);

/// A random order of 0 … n-1: torch.randperm(n, generator=g) after g.manual_seed(seed).
std::vector<int64_t> permutation(int64_t n, uint64_t seed);

/// `count` numbers from 0 to n-1, each once before any comes twice: torch.utils.data.RandomSampler(range(n),
/// num_samples=count, generator=g) after g.manual_seed(seed).
std::vector<int64_t> random_order(int64_t n, int64_t count, uint64_t seed);

/// `count` independent numbers from 0 to n-1: the same with replacement=True. n must be positive unless count is 0.
std::vector<int64_t> random_draws(int64_t n, int64_t count, uint64_t seed);

}  // namespace ddp
