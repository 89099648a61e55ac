// Ranks whose shares of a data set differ, one of them being empty: what every metric has to stand.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "tests/support/every_wire.h"
#include "tests/support/placement.h"

namespace ddp::test {

/// Three ranks, once with each wire.
class SharedSamples : protected EveryWire {
 protected:
  static constexpr int kRanks = 3;

  void on_ranks(const std::function<void(const GroupHandle&)>& body) const { run(kRanks, body); }

  /// The first two thirds of the rows for rank 0, none for rank 1, the others for rank 2.
  static at::Tensor share(const at::Tensor& all, int rank) {
    const int64_t cut = (2 * all.size(0) + 2) / 3;
    return here(rank == 0 ? all.slice(0, 0, cut) : all.slice(0, cut, rank == 1 ? cut : all.size(0)));
  }
};

}  // namespace ddp::test
