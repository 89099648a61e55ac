// Internal: ranges on devices in the timeline, by events that the host never waits for. Device-generic.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <string_view>

namespace ddp::detail {

/// Queues the begin of a range on the current stream of `device`. 0 where none is recorded: without a timeline, on the
/// CPU, in a CUDA graph, and where the device's events have no clock.
uint64_t begin_on_device(std::string_view name, c10::Device device) noexcept;
/// Queues its end on the stream where it began.
void end_on_device(uint64_t range) noexcept;
/// Queues it on the stream that is the current one of that device here: it waits for the range's work.
void end_on_device_here(uint64_t range) noexcept;

/// Waits until the ranges that have ended are in the timeline, but no longer than `patience`.
void finish_device_ranges(std::chrono::milliseconds patience) noexcept;

}  // namespace ddp::detail
