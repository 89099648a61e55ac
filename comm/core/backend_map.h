// Which backend serves which device, in torch.distributed's syntax. No LibTorch here.
#pragma once

#include <string>

namespace ddp {

/// A backend per device; an empty name means that tensors on that device cannot be communicated.
struct BackendMap {
  std::string cpu{};   ///< "", "gloo" or "local"
  std::string cuda{};  ///< "", "gloo", "nccl" or "local"

  bool operator==(const BackendMap&) const = default;

  /// The text that parse_backend_map() reads: one name when both devices share a backend, else "cpu:gloo,cuda:nccl".
  std::string text() const;
  /// True when some device is served by `backend`.
  bool uses(const std::string& backend) const { return cpu == backend || cuda == backend; }
};

/// Reads "gloo" (both devices), "nccl" (CUDA only), "local" (a single process, no communication) or a list such as
/// "cpu:gloo,cuda:nccl". Throws std::invalid_argument that names the bad part.
BackendMap parse_backend_map(const std::string& text);

}  // namespace ddp
