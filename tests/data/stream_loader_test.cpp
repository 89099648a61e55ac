// The loader over datasets without an index: shares of ranks, buffers, tails, and resumes in mid-epoch.
// DDPRUN_PIPELINES is how many pipelines are drawn at random (200), DDPRUN_PIPELINE_SEED from which seed on.
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>

#include <ddprun/data/dataset_wrappers.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/loader.h>
#include <ddprun/samplers/distributed_sampler.h>
#include <ddprun/samplers/stream_sampler.h>

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::ElementsAre;
using Values = std::vector<int64_t>;

constexpr int64_t kPerPart = 1000;

/// Sample n of part p is 1000 p + n, and in epoch e that plus 1,000,000 e. Knows nothing but next().
struct PlainParts {
  struct Walk {
    int64_t part;
    int64_t size;
    int64_t number = 0;
    std::optional<int64_t> next() {
      if (number >= size) return std::nullopt;
      return kPerPart * part + number++;
    }
  };

  Values sizes{};
  int64_t parts() const { return std::ssize(sizes); }
  Walk open(int64_t part) const { return {.part = part, .size = sizes.at(static_cast<size_t>(part))}; }
  Values make_batch(std::span<int64_t> samples) const { return {samples.begin(), samples.end()}; }
};

/// The same with sizes and skip(), and the number of samples that were read.
struct SizedParts {
  struct Walk : PlainParts::Walk {
    int64_t* reads;
    std::optional<int64_t> next() {
      ++*reads;
      return PlainParts::Walk::next();
    }
    int64_t skip(int64_t count) {
      const int64_t skipped = std::min(count, size - number);
      number += skipped;
      return skipped;
    }
  };

  Values sizes{};
  mutable int64_t reads = 0;
  int64_t parts() const { return std::ssize(sizes); }
  Walk open(int64_t part) const { return {{.part = part, .size = part_size(part)}, &reads}; }
  int64_t part_size(int64_t part) const { return sizes.at(static_cast<size_t>(part)); }
  Values make_batch(std::span<int64_t> samples, int64_t /*epoch*/) const { return {samples.begin(), samples.end()}; }
};

Values every_sample(const Values& sizes) {
  Values all;
  for (int64_t part = 0; part < std::ssize(sizes); ++part) {
    for (int64_t i = 0; i < sizes[static_cast<size_t>(part)]; ++i) all.push_back(kPerPart * part + i);
  }
  return all;
}

Values sorted(Values values) {
  std::ranges::sort(values);
  return values;
}

template <typename Loaded>
Values flat(Loaded& loader) {
  Values values;
  for (auto& batch : loader) values.insert(values.end(), batch.begin(), batch.end());
  return values;
}

StreamSamplerOptions of_rank(StreamSamplerOptions options, int num_replicas, int rank) {
  options.num_replicas = num_replicas;
  options.rank = rank;
  return options;
}

TEST_CASE("Streams: one rank reads the parts in their order, whatever the workers") {
  const PlainParts dataset{.sizes = {3, 0, 4}};
  for (const int workers : {0, 1, 4}) {
    StreamSampler sampler({.shuffle = false, .num_replicas = 1});
    Loader loader(dataset, sampler, {.batch_size = 2, .workers = workers});
    std::vector<Values> batches;
    for (auto& batch : loader) batches.push_back(batch);
    CHECK_THAT(batches,
               ElementsAre(ElementsAre(0, 1), ElementsAre(2, 2000), ElementsAre(2001, 2002), ElementsAre(2003)));
    CHECK(loader.size() == 4);
    CHECK(flat(loader) == every_sample(dataset.sizes));  // without set_epoch(), the same once more
    Loader whole(dataset, sampler, {.batch_size = 2, .drop_last = true, .workers = workers});
    CHECK(flat(whole).size() == 6);
    CHECK(whole.size() == 3);
  }
}

TEST_CASE("Streams: ranks share parts where there are enough, else samples") {
  const PlainParts dataset{.sizes = {2, 2, 2, 2}};
  const auto of = [&](int ranks, int rank, StreamSharding sharding) {
    StreamSampler sampler({.shuffle = false, .sharding = sharding, .num_replicas = ranks, .rank = rank});
    Loader loader(dataset, sampler);
    return flat(loader);
  };
  CHECK_THAT(of(3, 0, StreamSharding::kAuto), ElementsAre(0, 1, 3000, 3001));
  CHECK_THAT(of(3, 2, StreamSharding::kAuto), ElementsAre(2000, 2001));
  CHECK_THAT(of(5, 1, StreamSharding::kAuto), ElementsAre(1, 3000));
  CHECK_THAT(of(3, 1, StreamSharding::kSamples), ElementsAre(1, 2000, 3001));
  CHECK_THAT(of(5, 4, StreamSharding::kParts), Catch::Matchers::IsEmpty());
}

TEST_CASE("Streams: parts and buffer are shuffled anew in each epoch, by the seed") {
  const PlainParts dataset{.sizes = {20, 20, 20, 20}};
  StreamSampler sampler({.buffer = 15, .seed = 3, .num_replicas = 1});
  Loader loader(dataset, sampler, {.batch_size = 8, .workers = 2});
  std::vector<Values> epochs;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    sampler.set_epoch(epoch);
    epochs.push_back(flat(loader));
    CHECK(sorted(epochs.back()) == every_sample(dataset.sizes));
  }
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
  StreamSampler again({.buffer = 15, .seed = 3, .num_replicas = 1});
  again.set_epoch(1);
  Loader other(dataset, again, {.batch_size = 5});
  CHECK(flat(other) == epochs[1]);
  StreamSampler seeded({.buffer = 15, .seed = 4, .num_replicas = 1});
  Loader third(dataset, seeded);
  CHECK(flat(third) != epochs[0]);
  // A sample comes at most as much earlier as the buffer is large.
  StreamSampler small({.shuffle = false, .buffer = 5, .num_replicas = 1});
  Loader fourth(dataset, small);
  const Values values = flat(fourth);
  const Values order = every_sample(dataset.sizes);
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    CHECK(std::ranges::find(order, values[static_cast<size_t>(i)]) - order.begin() <= i + 4);
  }
}

TEST_CASE("Streams: what the dataset throws comes in the batch's place, and the next pass works") {
  struct Broken : PlainParts {
    Values make_batch(std::span<int64_t> samples) const {
      if (std::ranges::find(samples, 5) != samples.end()) throw std::runtime_error("sample 5 is broken");
      return {samples.begin(), samples.end()};
    }
  };
  struct Unreadable : PlainParts {
    struct Walk : PlainParts::Walk {
      std::optional<int64_t> next() {
        if (number == 5) throw std::runtime_error("sample 5 cannot be read");
        return PlainParts::Walk::next();
      }
    };
    Walk open(int64_t part) const { return {PlainParts::open(part)}; }
  };
  const auto check = [](const auto& dataset, const std::string& message, int workers) {
    StreamSampler sampler({.num_replicas = 1});
    Loader loader(dataset, sampler, {.batch_size = 2, .workers = workers});
    for (int pass = 0; pass < 2; ++pass) {
      Values seen;
      CHECK_THROWS_WITH(
          [&] {
            for (auto& batch : loader) seen.insert(seen.end(), batch.begin(), batch.end());
          }(),
          message);
      CHECK_THAT(seen, ElementsAre(0, 1, 2, 3));
    }
  };
  for (const int workers : {0, 1, 4}) {
    check(Broken{{.sizes = {9}}}, "sample 5 is broken", workers);
    check(Unreadable{{.sizes = {9}}}, "sample 5 cannot be read", workers);
  }
}

TEST_CASE("Streams: samples are stacked where the dataset makes no batches itself") {
  struct Pairs {
    struct Walk {
      int64_t left = 3;
      std::optional<std::pair<at::Tensor, int64_t>> next() {
        if (left == 0) return std::nullopt;
        --left;
        return std::pair(at::full({2}, left, at::kFloat), left);
      }
    };
    int64_t parts() const { return 1; }
    Walk open(int64_t /*part*/) const { return {}; }
  };
  const Pairs dataset;
  StreamSampler sampler({.num_replicas = 1});
  DeviceLoader loader(dataset, sampler, at::kCPU, {.batch_size = 2, .workers = 1});
  std::vector<Batch> batches;
  for (auto& batch : loader) batches.push_back(batch);
  REQUIRE(batches.size() == 2);
  CHECK(batches[0].data.equal(at::tensor({2.0F, 2.0F, 1.0F, 1.0F}).view({2, 2})));
  CHECK(batches[1].target.equal(at::zeros({1}, at::kLong)));
}

TEST_CASE("Streams: going on reads only what is in the buffer where sizes are known") {
  const SizedParts dataset{.sizes = {500, 500, 500, 500}};
  StreamSampler sampler({.buffer = 10, .num_replicas = 1});
  Loader loader(dataset, sampler, {.batch_size = 100});
  int64_t batches = 0;
  StreamState state;
  Values rest;
  for (auto& batch : loader) {
    if (++batches <= 15) {
      state = loader.state();
    } else {
      rest.insert(rest.end(), batch.begin(), batch.end());
    }
  }
  dataset.reads = 0;
  sampler.load_state(state);
  CHECK(loader.size() == 5);
  CHECK(flat(loader) == rest);
  CHECK(dataset.reads <= 510);
}

TEST_CASE("Streams: states that do not fit are refused and change nothing") {
  const PlainParts dataset{.sizes = {4, 4}};
  StreamSampler sampler({.buffer = 3, .seed = 5, .num_replicas = 1});
  sampler.set_epoch(2);
  Loader loader(dataset, sampler, {.batch_size = 3});
  for ([[maybe_unused]] auto& batch : loader) break;
  const std::string text = loader.save();
  CHECK(stream_state_from_json(text) == loader.state());
  CHECK(loader.state() == StreamState{.seed = 5, .epoch = 2, .parts = 2, .buffer = 3, .stages = {{1, 3}}});
  StreamSampler other({.buffer = 4, .num_replicas = 1});
  CHECK_THROWS_WITH(other.load(text), ContainsSubstring("buffer of 3, but this sampler has 4"));
  CHECK(other.epoch() == 0);
  StreamSampler more({.buffer = 3, .num_replicas = 1});
  more.load(text);
  const PlainParts larger{.sizes = {4, 4, 4}};
  Loader of_more(larger, more);
  CHECK_THROWS_WITH(of_more.begin(), ContainsSubstring("an epoch of 2 parts, but the dataset has 3"));
  for (
      const char* wrong :
      {"", "{}", "[]", "null", R"({"seed":1,"epoch":0,"consumed":0,"length":9})",
       R"({"seed":0,"epoch":-1,"parts":1,"buffer":0,"shuffle":true,"tail":2,"sharding":0,"ended":false,"stages":[]})",
       R"({"seed":0,"epoch":0,"parts":1,"buffer":0,"shuffle":true,"tail":9,"sharding":0,"ended":false,"stages":[]})",
       R"({"seed":0,"epoch":0,"parts":1,"buffer":0,"shuffle":true,"tail":2,"sharding":0,"ended":false,"stages":[[0,1]]})"}) {
    CHECK_THROWS_AS(sampler.load(wrong), std::invalid_argument);
  }
  CHECK_THROWS_AS(StreamSampler({.buffer = -1, .num_replicas = 1}), std::invalid_argument);
  CHECK_THROWS_AS(StreamSampler({.num_replicas = 2, .rank = 2}), std::invalid_argument);
}

/// A pipeline drawn at random, and all its ranks.
template <typename Dataset>
class Pipeline {
 public:
  Pipeline(Dataset dataset, StreamSamplerOptions options, LoaderOptions loading, std::mt19937& source)
      : dataset_(std::move(dataset)), options_(options), loading_(loading), source_(source) {}

  /// Each rank's batches of what is left of the epoch, from `state` on, at most `most` of each rank; the state then.
  std::vector<std::vector<Values>> run(int ranks, std::string& state, int64_t most, bool any_workers = true) {
    std::vector<std::vector<Values>> of_ranks;
    std::vector<StreamState> states;
    for (int rank = 0; rank < ranks; ++rank) {
      StreamSampler sampler(of_rank(options_, ranks, rank));
      LoaderOptions loading = loading_;
      loading.workers = any_workers ? static_cast<int>(source_() % 5) : 0;
      loading.prefetch = 1 + static_cast<int64_t>(source_() % 6);
      Loader loader(dataset_, sampler, loading);
      if (!state.empty()) loader.load(state);
      sampler.set_epoch(kEpoch);
      std::vector<Values> batches;
      if (most > 0) {
        for (auto& batch : loader) {
          batches.push_back(batch);
          if (std::ssize(batches) == most) break;
        }
      }
      states.push_back(loader.state());
      of_ranks.push_back(std::move(batches));
    }
    state = to_json(states.front());
    return of_ranks;
  }

  static constexpr int64_t kEpoch = 3;

 private:
  Dataset dataset_;
  StreamSamplerOptions options_;
  LoaderOptions loading_;
  std::mt19937& source_;
};

Values flattened(const std::vector<Values>& batches) {
  Values all;
  for (const Values& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

Values of_all(const std::vector<std::vector<Values>>& ranks) {
  Values all;
  for (const auto& batches : ranks) {
    const Values values = flattened(batches);
    all.insert(all.end(), values.begin(), values.end());
  }
  return sorted(all);
}

int64_t fewest_batches(const std::vector<std::vector<Values>>& ranks) {
  int64_t fewest = std::ssize(ranks.front());
  for (const auto& batches : ranks) fewest = std::min<int64_t>(fewest, std::ssize(batches));
  return fewest;
}

void check_whole_epoch(const std::vector<std::vector<Values>>& ranks, const Values& all, Tail tail, bool drop_last) {
  const Values seen = of_all(ranks);
  if (tail == Tail::kUneven && !drop_last) CHECK(seen == all);
  if (tail != Tail::kRepeat) CHECK(std::ranges::adjacent_find(seen) == seen.end());  // nothing twice
  if (tail == Tail::kUneven) return;
  const size_t length = flattened(ranks.front()).size();
  for (const auto& batches : ranks) CHECK(flattened(batches).size() == length);
  if (tail == Tail::kRepeat && !drop_last) {
    Values once = seen;
    once.erase(std::unique(once.begin(), once.end()), once.end());
    CHECK(once == all);
  }
}

template <typename Dataset>
void check_pipeline(const Values& sizes, std::mt19937& source) {
  const auto below = [&](uint32_t most) { return static_cast<int64_t>(source() % most); };
  const int ranks = 1 + static_cast<int>(below(4));
  const StreamSamplerOptions options{.shuffle = below(4) > 0,
                                     .buffer = below(3) == 0 ? 0 : below(25),
                                     .tail = std::array{Tail::kUneven, Tail::kRepeat, Tail::kDrop}[source() % 3],
                                     .sharding = static_cast<StreamSharding>(below(3)),
                                     .seed = source()};
  const LoaderOptions loading{.batch_size = 1 + below(5), .drop_last = below(3) == 0};
  INFO("ranks " << ranks << ", buffer " << options.buffer << ", tail " << static_cast<int>(options.tail)
                << ", sharding " << static_cast<int>(options.sharding) << ", batches of " << loading.batch_size
                << ", drop_last " << loading.drop_last << ", shuffle " << options.shuffle);
  const Values all = every_sample(sizes);
  Pipeline<Dataset> pipeline(Dataset{.sizes = sizes}, options, loading, source);
  std::string state;
  const auto whole = pipeline.run(ranks, state, 1 << 30, /*any_workers=*/false);
  check_whole_epoch(whole, all, options.tail, loading.drop_last);
  CHECK(stream_state_from_json(state).has_ended);
  CHECK(of_all(pipeline.run(ranks, state, 1 << 30)).empty());  // nothing is left

  // Stopped and continued any number of times: the same batches, whatever the workers.
  state.clear();
  std::vector<std::vector<Values>> joined(static_cast<size_t>(ranks));
  const int64_t steps = fewest_batches(whole);
  for (int64_t done = 0;;) {
    const int64_t next =
        done < steps && below(4) > 0 ? 1 + below(static_cast<uint32_t>(steps - done)) : int64_t{1} << 30;
    const auto piece = pipeline.run(ranks, state, next);
    for (size_t rank = 0; rank < joined.size(); ++rank) {
      joined[rank].insert(joined[rank].end(), piece[rank].begin(), piece[rank].end());
    }
    done += next;
    if (next >= int64_t{1} << 30) break;
  }
  CHECK(joined == whole);

  // Continued by other numbers of ranks, as long as all have batches: each sample once.
  if (options.tail == Tail::kUneven && !loading.drop_last) {
    state.clear();
    Values seen;
    for (int other = ranks;; other = 1 + static_cast<int>(below(4))) {
      std::string copy = state;
      const int64_t left = fewest_batches(pipeline.run(other, copy, 1 << 30, /*any_workers=*/false));
      const bool is_last = left == 0 || below(4) == 0;
      const int64_t next = is_last ? int64_t{1} << 30 : 1 + below(static_cast<uint32_t>(left));
      const auto piece = of_all(pipeline.run(other, state, next));
      seen.insert(seen.end(), piece.begin(), piece.end());
      if (is_last) break;
    }
    CHECK(sorted(seen) == all);
  }
}

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

TEST_CASE("Streams: pipelines drawn at random give each sample once, in one order, wherever they are stopped") {
  const int64_t pipelines = from_environment("DDPRUN_PIPELINES", 200);
  const int64_t first = from_environment("DDPRUN_PIPELINE_SEED", 0);
  for (int64_t seed = first; seed < first + pipelines; ++seed) {
    INFO("seed " << seed);
    std::mt19937 source(static_cast<uint32_t>(seed));
    Values sizes(1 + source() % 8);
    for (int64_t& size : sizes) size = static_cast<int64_t>(source() % 4 == 0 ? 0 : source() % 16);
    if (source() % 2 == 0) {
      check_pipeline<PlainParts>(sizes, source);
    } else {
      check_pipeline<SizedParts>(sizes, source);
    }
  }
}

struct Numbered {
  int64_t first = 0;
  int64_t count = 0;
  int64_t size() const { return count; }
  Values get_batch(std::span<const int64_t> indices) const {
    Values values;
    for (const int64_t index : indices) values.push_back(first + index);
    return values;
  }
};

TEST_CASE(
    "Views: pipelines drawn at random give each sample once, whatever ranks and workers, wherever they are stopped") {
  const int64_t pipelines = from_environment("DDPRUN_PIPELINES", 200);
  const int64_t first = from_environment("DDPRUN_PIPELINE_SEED", 0);
  for (int64_t seed = first; seed < first + pipelines; ++seed) {
    INFO("seed " << seed);
    std::mt19937 source(static_cast<uint32_t>(seed));
    const Numbered left{.first = 0, .count = static_cast<int64_t>(source() % 30)};
    const Numbered right{.first = 1000, .count = 1 + static_cast<int64_t>(source() % 30)};
    const ConcatDataset both(left, right);
    const auto cut = static_cast<int64_t>(source() % static_cast<uint32_t>(both.size()));
    const auto parts = random_split(both, {cut, both.size() - cut}, source());
    const ConcatDataset joined(parts);
    const Values all = sorted(joined.get_batch(ascending(joined.size())));
    CHECK(all == sorted(both.get_batch(ascending(both.size()))));
    std::optional<SamplerState> state;
    Values seen;
    for (bool is_last = false; !is_last;) {
      const int ranks = 1 + static_cast<int>(source() % 4);
      const int64_t batch_size = 1 + static_cast<int64_t>(source() % 5);
      is_last = source() % 3 == 0;
      const int64_t left_over = joined.size() - (state ? state->consumed : 0);
      const int64_t full = left_over / (batch_size * ranks);  // batches in which nothing is repeated
      const int64_t stop = is_last ? -1 : static_cast<int64_t>(source() % static_cast<uint32_t>(full + 1));
      SamplerState after = state.value_or(SamplerState{.seed = 7, .epoch = 2, .length = joined.size()});
      for (int rank = 0; rank < ranks; ++rank) {
        DistributedSampler sampler(joined.size(), {.num_replicas = ranks, .rank = rank, .seed = 7});
        if (state) sampler.load_state(*state);
        sampler.set_epoch(2);
        Loader loader(joined, sampler, {.batch_size = batch_size, .workers = static_cast<int>(source() % 5)});
        int64_t batches = 0;
        if (stop == 0) continue;
        for (auto& batch : loader) {
          seen.insert(seen.end(), batch.begin(), batch.end());
          if (++batches == stop) break;
        }
        after = loader.state();
      }
      state = after;
    }
    Values once = sorted(seen);
    CHECK(std::ssize(once) - joined.size() < 4);  // repeated so that ranks have as many
    once.erase(std::unique(once.begin(), once.end()), once.end());
    CHECK(once == all);
  }
}

}  // namespace
}  // namespace ddp
