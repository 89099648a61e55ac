// Internal: follows each backward of a wrapped model: decides whether its gradients are reduced, hands each of them to
// the engine that reduces it, and sees to it at the end that the reduction is complete. No backward that should be
// reduced ends with gradients that nothing has averaged over the ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "comm/reducer/absent_gradients.h"
#include "comm/reducer/backward_classifier.h"
#include "comm/reducer/cpu_reducer.h"
#include "comm/reducer/held_gradients.h"
#include "comm/reducer/parameter_gradients.h"
#include "comm/reducer/parameter_watch.h"
#include "comm/reducer/reducer_engine.h"
#include "comm/reducer/reduction_context.h"

namespace ddp::detail {

/// In a std::shared_ptr: ParameterGradients refers to it weakly.
class GradientRouter final : public ParameterGradients::Listener {
 public:
  /// `cpu_reducer` is null where c10d's engine reduces every step.
  GradientRouter(std::shared_ptr<ReductionContext> context, std::shared_ptr<ParameterGradients> gradients,
                 std::shared_ptr<ReducerEngine> engine, std::shared_ptr<CpuReducer> cpu_reducer);
  /// A backward of a forward that shall reduce throws from now on.
  ~GradientRouter() override;
  GradientRouter(const GradientRouter&) = delete;
  GradientRouter& operator=(const GradientRouter&) = delete;

  /// Call before a forward with gradients, in its thread.
  void begin_forward();
  /// Call before a forward whose backward shall reduce. Returns whether c10d counts it as an iteration: with
  /// static_graph it takes the first one for that of the first backward, so further forwards before that are not.
  bool begin_reducing_forward();
  /// Call after a forward with gradients whose backward shall reduce. `outputs`: the tensors in its output, all of them
  /// if `are_known`; the search for unused parameters begins there. `counts_active_ranks`: inside join().
  void expect_reduction(const std::vector<at::Tensor>& outputs, bool are_known, bool counts_active_ranks);
  /// Call after a forward with gradients under no_sync().
  void expect_local_backward(const std::vector<at::Tensor>& outputs, bool are_known);
  /// What ran under no_sync() stays local.
  void set_sync_enabled(bool enabled) { sync_enabled_ = enabled; }

  /// Whether the gradients of the backward that runs in this thread are reduced.
  bool reduces_backward() const;
  /// Whether gradients of the present backward are being reduced, and its end has not been reached.
  bool is_in_reduced_backward() const;

  /// The first backward of a static graph has been reduced.
  bool knows_static_graph() const { return !is_static_ || knows_static_graph_; }
  /// The first backward of a static graph has not run on any rank.
  bool awaits_static_backward() const { return is_static_ && !knows_static_graph_ && !skipped_static_; }
  /// That backward has run on other ranks without this one; `used_flags` as in ReducerEngine::set_used_flags().
  void skip_static_backward(at::Tensor used_flags);

  /// Call before a forward. Throws std::runtime_error, as c10d does then, when no backward of the last forward has
  /// brought some parameters' gradients, or one of them has thrown while they were reduced.
  void refuse_after_missing_gradients();

  HeldGradients& held_gradients() { return held_gradients_; }
  /// A message for a program that ends after a backward that left parameters without gradient; "" if all parameters got
  /// one.
  std::string unfinished() const;

 private:
  enum class Mode { kIdle, kReducing, kLocal };

  bool take(size_t parameter, const at::Tensor& incoming) override;
  bool end_backward(bool is_outermost) override;
  void abandon_backward() override;
  bool is_in_bucket(size_t parameter, const at::Tensor& view) const override;

  void begin(size_t parameter);
  void complete_frozen();
  void prepare_again(size_t parameter);
  void renew_buckets();
  bool try_complete_reduction();
  bool is_repeating_static() const { return is_static_ && is_repeating_; }
  void mark_ready_without_gradient(const std::vector<size_t>& parameters);
  std::vector<size_t> find_missing();
  std::string names_of_missing() const;
  void refuse_unfinished();
  bool is_reducing() const;
  void finish();
  void refuse_changed_parameters() const;
  std::string name_of(size_t parameter) const;

  const std::shared_ptr<ReductionContext> context_;
  const std::shared_ptr<ParameterGradients> gradients_;
  const std::shared_ptr<ReducerEngine> engine_;
  const std::shared_ptr<CpuReducer> cpu_reducer_;
  const bool is_static_;
  const bool finds_unused_;
  const bool in_buckets_;
  std::atomic<bool> sync_enabled_{true};
  mutable std::mutex mutex_;  // backwards may run in several threads
  BackwardClassifier classifier_;
  HeldGradients held_gradients_;
  Mode mode_ = Mode::kIdle;
  bool counts_active_ranks_ = false;
  std::atomic<bool> knows_static_graph_{false};
  bool has_static_iteration_ = false;  // c10d counts the first forward already
  bool is_repeating_ = false;          // this is not the first reduction since the last forward
  std::atomic<bool> skipped_static_{false};
  bool has_refused_ = false;  // the last backward, for gradients that did not come
  bool has_thrown_ = false;   // the last backward, while gradients were reduced
  uint64_t reduction_ = 1;
  std::vector<uint64_t> taken_;  // for each parameter the reduction that took its last gradient
  // Parameters without gradient in the first reduction after a forward, which another backward may still bring.
  std::unordered_set<size_t> missing_;
  AbsentGradients absent_;
  std::vector<size_t> frozen_;  // parameters that required no gradient in the last forward
  ParameterWatch watch_;        // during a backward that reduces
};

}  // namespace ddp::detail
