// The device guard that LibTorch asks: current devices and streams, events.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace ddp::test::device {

constexpr int kMaxDevices = 8;

/// Lives as long as the process.
const c10::impl::DeviceGuardImplInterface& guard();

}  // namespace ddp::test::device
