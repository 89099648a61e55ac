// Internal: c10d::Reducer with the bookkeeping that its public interface leaves out. Everything that depends on the
// Reducer's constructor, which changes between versions, is here.
#pragma once

#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <ddprun/comm/reducer.h>

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

class ReducerEngine final : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  /// Indices of the parameters in each bucket, in the order of reduction.
  std::vector<std::vector<size_t>> assignment() const;
  std::vector<int64_t> bucket_bytes() const;
  std::vector<at::Tensor> bucket_parameters(size_t bucket) const { return buckets_.at(bucket).variables; }
  const std::vector<size_t>& unused_parameters() const { return unused_parameters_; }
  bool has_rebuilt() const { return has_rebuilt_bucket_; }
  /// Times are taken, which reads events on the host, in the first iterations and in every n-th.
  int64_t sample_rate() const { return ddp_runtime_logging_sample_rate_; }

  /// Regroups the buckets by size, keeping the order of the gradients.
  void regroup(int64_t first_bytes, int64_t cap_bytes);
  /// Regroups the buckets so that one ends after each parameter of `ends`, keeping the order of the gradients. Kinds
  /// that cannot share a bucket are kept apart.
  void regroup_after(const std::vector<size_t>& ends);

 private:
  std::vector<size_t> order() const;
};

std::shared_ptr<ReducerEngine> make_engine(const std::vector<at::Tensor>& parameters,
                                           const std::vector<std::string>& names,
                                           c10::intrusive_ptr<c10d::ProcessGroup> group,
                                           const GradientReducerOptions& options);

/// What c10d's logger has collected, in our words. Fields that it does not know are left alone.
void read_logger(c10d::Logger& logger, DdpLoggingData& data);

}  // namespace ddp::detail
