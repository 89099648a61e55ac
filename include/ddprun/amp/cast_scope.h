// Autocast where a level asks for it.
#pragma once

#include <c10/core/Device.h>

#include <optional>

#include <ddprun/amp/autocast.h>

namespace ddp::amp {

/// While it lives: autocast at level O1, nothing at the others.
class CastScope {
 public:
  CastScope(bool wanted, c10::DeviceType device, c10::ScalarType dtype) {
    if (wanted) autocast_.emplace(device, AutocastOptions{.dtype = dtype});
  }
  CastScope(const CastScope&) = delete;
  CastScope& operator=(const CastScope&) = delete;

 private:
  std::optional<Autocast> autocast_;
};

}  // namespace ddp::amp
