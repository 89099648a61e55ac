// Keeps what autograd saves in the host's memory instead of the device's. Reference: torch.autograd.graph.save_on_cpu.
#pragma once

#include <memory>

namespace ddp {

/// Settings of save_on_cpu, all optional.
struct SaveOnCpuOptions {
  /// Whether the host's copy is page-locked, so that the copies run beside the device's work.
  bool pin_memory = false;
};

/// While it lives, tensors that autograd saves in the calling thread are copied to the host; the backward, which may
/// come after its end, copies them back to their device. Parameters, and tensors that lie on the host already, are not
/// copied. Inside a region of checkpoint() it serves what the region keeps. Throws std::runtime_error from the
/// constructor in a process that hosts Python, and from the backward when a tensor that was not copied was changed in
/// place. Reference: torch.autograd.graph.save_on_cpu, which copies all.
class save_on_cpu {
 public:
  /// Begins.
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
