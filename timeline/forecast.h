// Predicts the time of a step with more ranks and another network. Buckets become ready as recorded on the slowest
// rank, and are reduced one after another.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "timeline/all_reduce_cost.h"
#include "timeline/cycles.h"

namespace ddp::timelines {

struct Scenario {
  Placement placement{};
  Network network{};
  std::optional<Algorithm> algorithm = std::nullopt;  // unset: the faster one for each bucket
};

// Nanoseconds.
struct Prediction {
  Placement placement{};
  double computing = 0;  // of the slowest rank
  double all_reduce = 0;
  double step = 0;
  double efficiency = 0;                   // the time of a step of one rank alone, divided by this time
  Algorithm algorithm = Algorithm::kRing;  // for the largest bucket
};

struct BucketChoice {
  std::int64_t cap = 0;  // bytes of a bucket; 0: all gradients are in one
  std::int64_t buckets = 1;
  double step = 0;
};

// When a bucket is reduced.
struct TimedBucket {
  double ready = 0;
  double transfer = 0;
};
// When the last bucket is reduced if each begins when it is ready and the one before is done; 0 without buckets.
double end_of_reductions(const std::vector<TimedBucket>& buckets);

class Forecast {
 public:
  explicit Forecast(const Cycles& cycles);

  double step_of_one() const;  // without other ranks
  Prediction predict(const Scenario& scenario) const;
  // The predictions for 1, 2, 4 ... ranks up to `most`, and for the scenario's own number. The number of ranks on a
  // host is the scenario's.
  std::vector<Prediction> curve(const Scenario& scenario, std::int64_t most) const;
  // With buckets of powers of two bytes, ascending. Between two recorded buckets gradients become ready evenly.
  std::vector<BucketChoice> bucket_choices(const Scenario& scenario) const;

 private:
  double transfer_of(double bytes, const Scenario& scenario) const;
  std::vector<double> ready_on(std::int64_t ranks) const;

  std::vector<double> bytes_;
  std::vector<std::vector<double>> ready_;  // of each bucket, ascending, as what follows
  std::vector<double> backward_;
  std::vector<double> computing_;
};

// The choice with the shortest step; of several that differ by less than 0.1 % the one with the largest buckets.
const BucketChoice& best_of(const std::vector<BucketChoice>& choices);

}  // namespace ddp::timelines
