// Prints the order of each case that comes in on standard input, one a line:
//   distributed N WORLD RANK SHUFFLE DROP_LAST SEED EPOCH
//   random N COUNT REPLACEMENT SEED
//   split N SEED COUNT FRACTION-OR-LENGTH…          (the parts one behind the other, -1 after each)
//   weighted COUNT REPLACEMENT SEED N WEIGHT…
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/samplers/random_sampler.h>
#include <ddprun/samplers/shard.h>
#include <ddprun/samplers/weighted_sampler.h>

namespace {

template <typename Value>
Value next(std::istream& words) {
  Value value{};
  if (!(words >> value)) throw std::runtime_error("a case that cannot be read");
  return value;
}

std::vector<int64_t> split_of(std::istream& words) {
  const auto size = next<int64_t>(words);
  const auto seed = next<uint64_t>(words);
  std::vector<double> numbers(next<size_t>(words));
  for (double& number : numbers) number = next<double>(words);
  const bool has_fractions = std::ranges::any_of(numbers, [](double number) { return number != std::floor(number); });
  const auto lengths =
      has_fractions ? ddp::split_lengths(size, numbers) : std::vector<int64_t>(numbers.begin(), numbers.end());
  std::vector<int64_t> all;
  for (const auto& part : ddp::random_split_indices(size, lengths, seed)) {
    all.insert(all.end(), part.begin(), part.end());
    all.push_back(-1);
  }
  return all;
}

std::vector<int64_t> order_of(std::istream& words) {
  const auto kind = next<std::string>(words);
  if (kind == "split") return split_of(words);
  if (kind == "distributed") {
    const auto size = next<int64_t>(words);
    ddp::DistributedSamplerOptions options;
    options.num_replicas = next<int>(words);
    options.rank = next<int>(words);
    options.shuffle = next<bool>(words);
    options.drop_last = next<bool>(words);
    options.seed = next<uint64_t>(words);
    ddp::DistributedSampler sampler(size, options);
    sampler.set_epoch(next<int64_t>(words));
    return sampler.indices();
  }
  if (kind == "random") {
    const auto size = next<int64_t>(words);
    ddp::RandomSamplerOptions options;
    options.num_samples = next<int64_t>(words);
    options.replacement = next<bool>(words);
    options.seed = next<uint64_t>(words);
    return ddp::RandomSampler(size, options).indices();
  }
  ddp::WeightedSamplerOptions options;
  options.num_samples = next<int64_t>(words);
  options.replacement = next<bool>(words);
  options.seed = next<uint64_t>(words);
  std::vector<double> weights(next<size_t>(words));
  for (double& weight : weights) weight = next<double>(words);
  return ddp::WeightedSampler(weights, options).indices();
}

}  // namespace

int main(int /*argc*/, char** /*argv*/) {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string text;
    for (const int64_t index : order_of(words)) text.append(std::to_string(index)).append(" ");
    std::puts(text.c_str());
  }
  return 0;
}
