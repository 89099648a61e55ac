// Internal: the backend shm as torch.distributed's Python takes one: what it asks of a backend beyond collectives, and
// safety in a process that was forked from a rank's, as the workers of a DataLoader are.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "comm/backends/forwarding_backend.h"
#include "comm/backends/group_plan.h"

namespace ddp::detail {

class PythonBackend final : public ForwardingBackend {
 public:
  /// `connected` is what serves the ranks of `plan`.
  PythonBackend(BackendPtr connected, const GroupPlan& plan);
  ~PythonBackend() override;

  const std::string getBackendName() const override { return "shm"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  uint64_t getSequenceNumberForGroup() override { return other().getSequenceNumberForGroup(); }
  void setSequenceNumberForGroup() override {}
  void enableCollectivesTiming() override {}

  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& options) override;
  c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                    const c10::intrusive_ptr<Options>& options, const int& rank,
                                    const int& size) override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  void abort() override;
  void shutdown() override;

 protected:
  c10d::Backend& other() override;
  WorkPtr note(WorkPtr work) override;

 private:
  bool is_forked() const;

  const GroupPlan plan_;
  const c10::intrusive_ptr<Options> options_;
  const pid_t process_;
  bool is_coalescing_ = false;
  std::vector<WorkPtr> coalesced_;
};

/// Connects the ranks of `plan`, which all call it, over `store`, where the backend keeps its keys. Rank 0 prints one
/// line where they use gloo. Throws when not all ranks arrive within the plan's timeout.
c10::intrusive_ptr<c10d::Backend> make_python_backend(const GroupPlan& plan,
                                                      const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace ddp::detail
