// Internal: most steps without c10d::Reducer. Gradients go into its buckets, divided by the number of ranks on the way,
// and full buckets go to their sums, with its bits and a small part of its instructions. c10d has the buckets, the
// first step, which determines their order, and every step that needs more than that.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "comm/reducer/parameter_gradients.h"
#include "comm/reducer/reducer_engine.h"
#include "comm/reducer/reduction_context.h"

namespace ddp::detail {

/// For models and options of which unsupported_by_cpu_reducer() says nothing. Shared with callbacks of autograd's.
class CpuReducer : public std::enable_shared_from_this<CpuReducer> {
 public:
  CpuReducer(std::shared_ptr<const ReductionContext> context, std::shared_ptr<ReducerEngine> engine,
             std::shared_ptr<ParameterGradients> gradients);

  /// Call after a forward whose backward shall reduce. False: that is for c10d, whose first step has not been, or which
  /// has a communication hook.
  bool begin_step();
  /// c10d handles the next backward.
  void skip_step();
  /// In the backward thread: `parameter` has its gradient, which becomes the one in the bucket unless it `is_held`:
  /// then it is unchanged, and HeldGradients copies the mean into it. Returns false if c10d must handle the gradient:
  /// because no step is running, or because gradients have a graph (create_graph). Throws as c10d does if the parameter
  /// already had a gradient in this step, or the gradient does not match the parameter.
  bool take(size_t parameter, bool is_held);
  /// Whether a step is running, that is, some gradients are not reduced yet.
  bool is_in_step() const;
  /// Call before c10d is asked whether the last step has reached every parameter, which it then knows.
  void report_ready_gradients();
  /// Buckets have other memory, with the same places in it.
  void rebind_buckets();
  /// The engine's buckets are about to change, or have.
  void forget();

 private:
  // The place of one parameter's gradient.
  struct Place {
    size_t bucket = 0;
    size_t index = 0;   // in the bucket
    uint64_t step = 0;  // in which it was taken last
    bool is_held = false;
  };
  struct Bucket {
    at::Tensor memory;
    size_t size = 0;     // gradients
    size_t pending = 0;  // that have not come
    ReductionContext::PendingReduction reduction{};
  };
  enum class Stage { kIdle, kExpecting, kCollecting, kSent };

  void find_places();
  const at::Tensor& place_of(size_t parameter) const;
  void put(const at::Tensor& gradient, size_t parameter, const at::Tensor& place) const;
  void send_full_buckets();
  void finish(uint64_t step);
  void check_gradients() const;
  [[noreturn]] void refuse(size_t parameter, bool is_second) const;

  const std::shared_ptr<const ReductionContext> context_;
  const std::shared_ptr<ReducerEngine> engine_;
  const std::shared_ptr<ParameterGradients> gradients_;
  const std::vector<at::Tensor>& parameters_;
  mutable std::mutex mutex_;  // several threads may run backwards
  std::vector<Place> places_;
  std::vector<Bucket> buckets_;
  Stage stage_ = Stage::kIdle;
  uint64_t step_ = 0;
  size_t next_ = 0;  // bucket to be sent
};

}  // namespace ddp::detail
