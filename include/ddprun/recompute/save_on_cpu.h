// Keeps the tensors that autograd saves in host memory instead of device memory. Reference:
// torch.autograd.graph.save_on_cpu.
#pragma once

#include <memory>

namespace ddp {

/// Settings of save_on_cpu, all optional.
struct SaveOnCpuOptions {
  /// Whether the copy on the host is page-locked, so that the copies overlap with the device's work.
  bool pin_memory = false;
};

/// While it exists, tensors that autograd saves in the calling thread are copied to the host. The backward, which may
/// run after this object is destroyed, copies them back to their device. Parameters, and tensors that are on the host
/// already, are not copied. Inside a region of checkpoint() it applies to the tensors that the region keeps. Throws
/// std::runtime_error from the constructor in a process that hosts Python, and from the backward when a tensor that was
/// not copied was changed in place. Reference: torch.autograd.graph.save_on_cpu, which copies all tensors.
class save_on_cpu {
 public:
  /// Begins to copy saved tensors.
  explicit save_on_cpu(const SaveOnCpuOptions& options = {});
  ~save_on_cpu();
  save_on_cpu(const save_on_cpu&) = delete;
  save_on_cpu& operator=(const save_on_cpu&) = delete;

 private:
  class Mode;
  class Hooks;
  std::unique_ptr<Mode> mode_;
};

}  // namespace ddp
