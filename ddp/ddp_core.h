// The part of DistributedDataParallel that does not depend on the model's type.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "comm/reducer.h"
#include "ddp/ddp_options.h"

namespace torch::nn {
class Module;
}

namespace ddp {

/// State and steps of one DistributedDataParallel wrapper. Used by the wrapper; not meant for programs.
class DdpCore {
 public:
  DdpCore(std::shared_ptr<torch::nn::Module> module, GroupHandle group, const DdpOptions& options);
  DdpCore(const DdpCore&) = delete;
  DdpCore& operator=(const DdpCore&) = delete;

  void before_forward();
  void after_forward();

  bool sync_enabled() const { return sync_enabled_; }
  void set_sync_enabled(bool enabled) { sync_enabled_ = enabled; }

 private:
  bool will_reduce() const;
  void check_not_moved() const;

  const GroupHandle group_;
  const DdpOptions options_;
  const std::shared_ptr<torch::nn::Module> module_;
  std::vector<at::Tensor> parameters_;  // those that require gradients, each once
  std::vector<std::string> names_;
  at::TensorOptions first_options_;
  at::TensorOptions last_options_;
  bool sync_enabled_ = true;
  bool buffers_stale_ = true;  // the last backward was synchronised, or there was none yet
  std::unique_ptr<GradientReducer> reducer_;
};

/// Keeps gradients local while it lives; made by DistributedDataParallelImpl::no_sync().
class NoSyncGuard {
 public:
  explicit NoSyncGuard(std::shared_ptr<DdpCore> core);
  ~NoSyncGuard();
  NoSyncGuard(NoSyncGuard&& other) noexcept = default;
  NoSyncGuard& operator=(NoSyncGuard&&) = delete;

 private:
  std::shared_ptr<DdpCore> core_;  // null after a move
  bool previous_;
};

/// Throws std::logic_error: the module is wrapped and cannot be moved or cast any more.
[[noreturn]] void refuse_to_move();

}  // namespace ddp
