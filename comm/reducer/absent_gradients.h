// Internal: gradients that do not come in a backward, of which the engine does not ask who has used the parameters. A
// parameter that no rank has used keeps its p.grad() as it was, undefined where it was: an optimizer would move it by
// weight decay or momentum otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "comm/reducer/reduced_model.h"

namespace ddp::detail {

class AbsentGradients {
 public:
  /// `model` has to outlive it.
  explicit AbsentGradients(const ReducedModel& model) : model_(model) {}

  /// Gives a parameter without p.grad() one to be reduced: -0, which no sum of ranks contains where one of them has
  /// used the parameter, unless that gradient is -0 throughout.
  void fill(size_t parameter);
  /// Call when they are reduced: those that no rank has used are undefined again.
  void take_back();
  /// Those of a backward that failed.
  void drop() { filled_.clear(); }

 private:
  const ReducedModel& model_;
  std::vector<size_t> filled_;
};

}  // namespace ddp::detail
