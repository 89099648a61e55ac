// The part of DistributedDataParallel that does not depend on the model's type.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include <ddprun/comm/ddp_options.h>
#include <ddprun/comm/join.h>
#include <ddprun/comm/logging_data.h>
#include <ddprun/comm/output_tensors.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/detail/comm/wrapped_parameters.h>
#include <ddprun/detail/ddp/delayed_reduction.h>
#include <ddprun/detail/ddp/model_parameters.h>

namespace torch::nn {
class Module;
}

namespace ddp {

namespace detail {
class GradientReducer;
struct ReducedModel;
}  // namespace detail

/// Why a forward's output cannot be looked into.
enum class OutputFault { kUnknown, kConst, kCopies, kNothing };

/// State and steps of one DistributedDataParallel wrapper. Used by the wrapper; not meant for programs.
class DdpCore final : public Joinable, public std::enable_shared_from_this<DdpCore> {
 public:
  DdpCore(std::unique_ptr<const ModelParameters> parameters, GroupHandle group, const DdpOptions& options);
  /// `module` may be null, which throws std::invalid_argument.
  DdpCore(std::shared_ptr<torch::nn::Module> module, const GroupHandle& group, const DdpOptions& options);
  ~DdpCore() override;

  void before_forward();
  /// True when after_forward() needs the tensors of the forward's output.
  bool wants_outputs() const;
  /// True when after_forward() makes use of those that are found.
  bool looks_at_outputs() const;
  /// `outputs` are the tensors in the forward's output of that type, if it looks at them. Returns what is to replace
  /// `outputs.tensors`, undefined where nothing does; empty: nothing at all. Throws as refuse_output().
  std::vector<at::Tensor> after_forward(const OutputTensors& outputs, const std::type_info& type);
  /// Throws std::logic_error: the options need the outputs, and those of type `type` cannot be had.
  [[noreturn]] void refuse_output(const std::type_info& type, OutputFault fault) const;

  bool sync_enabled() const { return sync_enabled_; }
  void set_sync_enabled(bool enabled);
  void register_comm_hook(CommHook hook, const std::string& name);
  DdpLoggingData logging_data() const;
  std::string bucket_layout() const;
  void use_bucket_layout(const std::string& text);

  std::unique_ptr<JoinHook> join_hook(const JoinOptions& options) override;
  c10::Device join_device() const override { return device_; }
  const GroupHandle& join_group() const override { return group_; }

 private:
  friend class DdpJoinHook;

  void broadcast_state(int root, bool with_buffers) const;
  detail::ReducedModel reduced_model() const;
  void make_delayed();

  bool will_reduce() const;
  /// No parameter requires gradients at the moment, as those of a discriminator while its generator is trained.
  bool is_frozen() const;
  bool detects_unused() const { return options_.find_unused_parameters && !options_.static_graph; }
  void sync_buffers();
  int common_rank(bool is_candidate) const;
  bool any_rank_reduces(bool this_rank_reduces) const;

  const GroupHandle group_;
  const DdpOptions options_;
  const std::unique_ptr<const ModelParameters> parameters_;
  const std::string rank_;         // "rank 1 of 2"
  std::vector<int> python_ranks_;  // where an option depends on whether there are any
  c10::Device device_;
  bool sync_enabled_ = true;
  std::uint64_t forward_event_ = 0;  // in the timeline
  std::uint64_t forward_range_ = 0;  // the same on the device
  bool buffers_stale_ = true;        // the last backward was synchronised, or there was none yet
  bool divide_by_initial_world_size_ = true;
  std::unique_ptr<WrappedParameters> mark_;  // where there is no reducer
  std::unique_ptr<DelayedReduction> delayed_;
  std::shared_ptr<detail::GradientReducer> reducer_;  // null in a single process, which has nothing to reduce
};

/// Throws std::logic_error: the module is wrapped and cannot be moved or cast any more.
[[noreturn]] void refuse_to_move();

}  // namespace ddp
