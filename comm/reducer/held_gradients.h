// Internal: gradients that the program keeps. Gradients lie in the communication buckets, so that a tensor that was
// p.grad() in one step would be overwritten in the next one. With these classes a program sees what it
// would see without buckets: a tensor that it holds keeps its values, and a tensor that is p.grad() stays p.grad().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/reducer/parameter_gradients.h"
#include "comm/reducer/reducer_engine.h"

namespace ddp::detail {

class ScopedGradientRemoval;

/// Finds them by reference counts: who holds a tensor or its memory beside p.grad() and the engine is the program.
class HeldGradients {
 public:
  HeldGradients(std::vector<at::Tensor> parameters, std::shared_ptr<ParameterGradients> gradients,
                std::shared_ptr<ReducerEngine> engine);

  /// Call before the first gradient of a step is written into a bucket. Each bucket in which the program holds memory
  /// that will be overwritten gets new memory, and what the program has moved out of a bucket is forgotten. Returns
  /// whether there was any; references to the old memory are invalid then.
  bool renew_buckets();

  /// Whether the program holds p.grad() of `parameter` or its memory, so that it has to stay the tensor that it is.
  /// `incoming`: the gradient that autograd has accumulated in this call and still holds; may be undefined.
  bool is_held(size_t parameter, const at::Tensor& incoming) const;
  /// Remembers p.grad() of `parameter`, which the engine may replace; restore_gradients() makes it p.grad() again, with
  /// the reduced values.
  void remember(size_t parameter);
  void remember_all_held();
  void remember_all();
  bool is_remembered(size_t parameter) const { return is_remembered_[parameter]; }
  void restore_gradients();
  /// restore_gradients() has made a tensor of the program p.grad() of `parameter` in this reduction.
  bool has_restored(size_t parameter) const { return has_restored_[parameter]; }
  /// Those of a step that failed.
  void drop();

  /// How often a bucket got new memory.
  int64_t renewed_buckets() const { return renewed_buckets_; }
  /// The engine has other buckets now.
  void forget() { buckets_.clear(); }

 private:
  friend class ScopedGradientRemoval;
  struct Bucket {
    std::vector<size_t> parameters;
    size_t known_holders;  // of its memory, when only the engine and p.grad() held it
  };
  struct ReplacedGradient {
    size_t parameter;
    at::Tensor gradient;
  };

  void find_buckets();
  bool forget_moved(size_t number) const;
  bool holds_what_is_overwritten(size_t number, Bucket& bucket) const;
  size_t count_own_holders(size_t number, const Bucket& bucket) const;

  std::vector<at::Tensor> parameters_;
  const std::shared_ptr<ParameterGradients> gradients_;
  const std::shared_ptr<ReducerEngine> engine_;
  std::vector<Bucket> buckets_;
  std::vector<ReplacedGradient> remembered_;
  std::vector<bool> is_remembered_;  // for each parameter
  std::vector<bool> has_restored_;
  int64_t renewed_buckets_ = 0;
};

/// Takes p.grad() from the parameters whose gradients the program holds, and gives it back at its end. Meanwhile c10d
/// makes other buckets, to which it would move every gradient.
class ScopedGradientRemoval {
 public:
  explicit ScopedGradientRemoval(const HeldGradients& held);
  /// Before there are buckets.
  explicit ScopedGradientRemoval(const std::vector<at::Tensor>& parameters);
  ~ScopedGradientRemoval();
  ScopedGradientRemoval(const ScopedGradientRemoval&) = delete;
  ScopedGradientRemoval& operator=(const ScopedGradientRemoval&) = delete;

 private:
  void take(const std::vector<bool>& which);

  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;
};

}  // namespace ddp::detail
