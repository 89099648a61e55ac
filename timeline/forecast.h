// Predicts the duration of a step with more ranks and another network. The prediction assumes that buckets become ready
// as recorded on the slowest rank, and are reduced one after another.
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

// A predicted step. Times are in nanoseconds.
struct Prediction {
  Placement placement{};
  double computing = 0;  // of the slowest rank
  double all_reduce = 0;
  double step = 0;
  double efficiency = 0;                   // the duration of a step of a single rank, divided by the predicted duration
  Algorithm algorithm = Algorithm::kRing;  // for the largest bucket
};

struct BucketChoice {
  std::int64_t cap = 0;  // the maximum bytes of a bucket; 0: all gradients are in one bucket
  std::int64_t buckets = 1;
  double step = 0;
};

// The times of the reduction of a bucket.
struct TimedBucket {
  double ready = 0;
  double transfer = 0;
};
// Returns when the last reduction ends, if each one begins as soon as its bucket is ready and the previous reduction
// has ended; 0 without buckets.
double end_of_reductions(const std::vector<TimedBucket>& buckets);

class Forecast {
 public:
  explicit Forecast(const Cycles& cycles);

  double step_of_one() const;  // the duration of a step of a single rank
  Prediction predict(const Scenario& scenario) const;
  // Returns predictions for 1, 2, 4 ... ranks up to `most`, and for the number of ranks in the scenario. The number of
  // ranks per host is that of the scenario.
  std::vector<Prediction> curve(const Scenario& scenario, std::int64_t most) const;
  // Returns predictions for bucket sizes that are powers of two, ascending. Between two recorded buckets, gradients are
  // assumed to become ready at a constant rate.
  std::vector<BucketChoice> bucket_choices(const Scenario& scenario) const;

 private:
  double transfer_of(double bytes, const Scenario& scenario) const;
  std::vector<double> ready_on(std::int64_t ranks) const;

  std::vector<double> bytes_;
  std::vector<std::vector<double>> ready_;  // the ready times of each bucket; ascending, like the following members
  std::vector<double> backward_;
  std::vector<double> computing_;
};

// Returns the choice with the shortest step. If several differ by less than 0.1 %, returns the one with the largest
// buckets.
const BucketChoice& best_of(const std::vector<BucketChoice>& choices);
// Returns whether no choice shortens the step that is predicted for the recorded buckets by more than 0.1 %.
bool recorded_are_best(const Prediction& recorded, const std::vector<BucketChoice>& choices);

}  // namespace ddp::timelines
