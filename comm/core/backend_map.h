// Which backend serves which device, in torch.distributed's syntax. No LibTorch here.
#pragma once

#include <chrono>
#include <string>

#include "comm/core/backend_traits.h"

namespace ddp {

/// A backend per device; null means that tensors on that device cannot be communicated.
struct BackendMap {
  const BackendTraits* cpu = nullptr;
  const BackendTraits* cuda = nullptr;

  bool operator==(const BackendMap&) const = default;

  /// The text that parse_backend_map() reads: one name where that says all, else "cpu:gloo,cuda:nccl".
  std::string text() const;
  /// A backend that has the trait, CUDA's before the CPU's; null when there is none.
  const BackendTraits* with(bool BackendTraits::*trait) const;
  /// The longest of the backends' default timeouts.
  std::chrono::milliseconds default_timeout() const;
};

/// Reads the name of a known backend ("gloo": all devices that it serves) or a list such as "cpu:gloo,cuda:nccl". Those
/// for one rank stand alone. Throws std::invalid_argument that names the bad part.
BackendMap parse_backend_map(const std::string& text, const BackendList& known);

}  // namespace ddp
