// A fully sharded model: its units, and what its forwards and backwards do with them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/detail/comm/gradient_hook.h>
#include <ddprun/fsdp/options.h>

#include "fsdp/core/unit_schedule.h"
#include "fsdp/parameter_storage.h"
#include "fsdp/unit.h"
#include "fsdp/unit_selection.h"

namespace ddp::fsdp {

class ShardedModel final : public ParameterOwner {
 public:
  /// `has_python_ranks`: collectives have to be Python's to the last one.
  ShardedModel(const std::vector<SelectedUnit>& units, const ShardGroups& groups, const FullyShardOptions& options,
               bool has_python_ranks, InitialValues& values);
  ~ShardedModel() override;

  void before_use(const ParameterUse& use) override;

  void begin_forward();
  void end_forward();
  void fail_forward() noexcept;

  void reshard();
  void reset();
  void drop_unreduced();

  std::vector<std::unique_ptr<Unit>>& units() { return units_; }
  const std::string& rank_text() const { return rank_; }
  const GroupHandle& shard_group() const { return group_; }

  bool reduces = true;                  ///< set_requires_gradient_sync()
  bool all_reduces = true;              ///< set_requires_all_reduce()
  bool reshards_after_backward = true;  ///< set_reshard_after_backward()

 private:
  struct UnitTraits {
    bool reshards_after_forward = true;
    bool has_differentiable_input = false;  // in a forward since the last backward
  };

  Unit& unit(int number) { return *units_[static_cast<size_t>(number)]; }
  UnitTraits& traits(int number) { return traits_[static_cast<size_t>(number)]; }

  [[noreturn]] void refuse_use(const ParameterUse& use, const std::string& why) const;
  void use_in_forward(const ParameterUse& use);
  void use_in_backward(int number);
  void follow(const std::vector<UnitSchedule::Step>& steps, bool has_differentiable_input);
  void begin_backward_once();
  void prepare_backward_of(int number);
  void on_gradient(int number, int parameter);
  void reduce_if_possible(int number);
  void finish_unit(int number);
  void start_reduction(Unit& unit);
  void end_backward();
  void hook(Unit& unit, int parameter);
  void check_trainable_dtypes() const;

  GroupHandle group_;
  std::string rank_;
  BlockCache cache_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<UnitTraits> traits_;
  UnitSchedule schedule_;
  bool has_python_ranks_;
  bool in_forward_ = false;
  bool records_ = false;  // the forward may be followed by a backward
  std::thread::id forward_thread_;
  bool forgets_uses_ = true;                                       // the next forward is the first after a backward
  std::vector<bool> is_prepared_;                                  // of each unit: the backward has begun to use it
  Unit* reducing_ = nullptr;                                       // whose reduction is under way
  std::vector<std::vector<std::unique_ptr<GradientHook>>> hooks_;  // of each unit's parameters
};

}  // namespace ddp::fsdp
