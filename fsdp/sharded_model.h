// A fully sharded model: its units, and what its forwards and backwards do with them.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/detail/comm/gradient_hook.h>
#include <ddprun/fsdp/options.h>

#include "fsdp/core/step_watch.h"
#include "fsdp/core/unit_schedule.h"
#include "fsdp/gradient_offload.h"
#include "fsdp/model_trace.h"
#include "fsdp/parameter_storage.h"
#include "fsdp/side_stream.h"
#include "fsdp/unit.h"
#include "fsdp/unit_context.h"
#include "fsdp/unit_selection.h"

namespace ddp::fsdp {

class ShardedModel final : public ParameterOwner {
 public:
  /// The model computes on `device`, where its parameters are, or go to with the option `offload`. `has_python_ranks`:
  /// collectives have to be Python's to the last one.
  ShardedModel(const std::vector<SelectedUnit>& units, const ShardGroups& groups, const FullyShardOptions& options,
               c10::Device device, bool has_python_ranks, InitialValues& values);
  ~ShardedModel() override;

  void before_use(const ParameterUse& use) override;

  void begin_forward();
  void end_forward();
  void fail_forward() noexcept;

  /// Gathers a unit for the next forward; waits for it unless `is_async`.
  void unshard(int number, bool is_async);
  void reshard();
  void reset();
  void drop_unreduced();

  std::vector<std::unique_ptr<Unit>>& units() { return units_; }
  const std::string& rank_text() const { return rank_; }
  const GroupHandle& shard_group() const { return group_; }
  c10::Device device() const { return device_; }

  bool reduces = true;                  ///< set_requires_gradient_sync()
  bool all_reduces = true;              ///< set_requires_all_reduce()
  bool reshards_after_backward = true;  ///< set_reshard_after_backward()
  bool is_last_backward = true;         ///< set_is_last_backward()

  /// What a program may set of a unit.
  struct UnitTraits {
    bool reshards_after_forward = true;
    bool unshards_in_backward = true;
    std::vector<int> forward_prefetch{};    ///< empty: the one that the forward before used next
    std::vector<int> backward_prefetch{};   ///< empty: the one that the forward used before
    bool has_differentiable_input = false;  ///< in a forward since the last backward
  };
  UnitTraits& traits(int number) { return traits_[static_cast<size_t>(number)]; }
  Unit& unit(int number) { return *units_[static_cast<size_t>(number)]; }
  /// The unit of which a module with this name is one; "" is the model. Throws std::invalid_argument for another name.
  int unit_named(const std::string& module) const;
  /// Throws std::invalid_argument unless `factor` is finite and above 0.
  void set_divide_factor(int number, double factor);

 private:
  [[noreturn]] void refuse_use(const ParameterUse& use, const std::string& why) const;
  bool all_are_kept_for_program(const ParameterUse& use) const;
  void use_in_forward(const ParameterUse& use);
  void use_in_backward(int number);
  void apply_steps(const std::vector<UnitSchedule::Step>& steps, bool has_differentiable_input);
  void begin_backward_once();
  void prepare_backward_of(int number, bool needs_values);
  void prefetch_for_forward(const UnitTraits& traits, std::optional<int> by_default);
  void drop_prefetched();
  void gather_for_backward(Unit& one);
  void prefetch_for_backward(const UnitTraits& traits, std::optional<int> by_default);
  void on_gradient(int number, int parameter);
  void reduce_if_possible(int number);
  void finish_unit(int number);
  void start_reduction(Unit& unit);
  void end_backward();
  void hook(Unit& unit, int parameter);
  void wait_for_host_memory();

  GroupHandle group_;
  std::string rank_;
  c10::Device device_;
  BlockCache cache_;
  SideStream gather_stream_;
  ModelTrace trace_;
  std::unique_ptr<GradientOffload> offload_;  // null: shards are on the device
  std::optional<UnitContext> unit_context_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<UnitTraits> traits_;
  std::map<std::string, int> unit_of_module_;
  UnitSchedule schedule_;
  StepWatch steps_;
  bool has_python_ranks_;
  bool in_forward_ = false;
  bool records_ = false;  // the forward may be followed by a backward
  std::thread::id forward_thread_;
  std::optional<int> prefetched_;                                  // gathered in advance, and not used yet
  bool forgets_uses_ = true;                                       // the next forward is the first after a backward
  std::vector<bool> is_prepared_;                                  // of each unit: the backward has begun to use it
  Unit* reducing_ = nullptr;                                       // whose reduction is under way
  std::vector<std::vector<std::unique_ptr<GradientHook>>> hooks_;  // of each unit's parameters
};

}  // namespace ddp::fsdp
