// Keeps the tensors that autograd saves in host memory instead of device memory. Reference:
// torch.autograd.graph.save_on_cpu.
#pragma once

#include <memory>

namespace ddp {

/// Settings of save_on_cpu, all optional.
struct SaveOnCpuOptions {
  /// Whether the copy on the host is in page-locked memory, so that copying overlaps with the computation on the
  /// device.
  bool pin_memory = false;
};

/// During its lifetime, tensors that autograd saves in the calling thread are copied to the host. The backward, which
/// may run after this object is destroyed, copies them back to their device. Parameters and tensors that are already on
/// the host are not copied. Inside a region of checkpoint(), it applies to the tensors that the region saves. The
/// constructor throws std::runtime_error in a process that hosts Python. The backward throws it if a tensor that was
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
