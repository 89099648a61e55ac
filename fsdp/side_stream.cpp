#include "fsdp/side_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace ddp::fsdp {
namespace {

void wait_stream(const c10::Stream& later, const c10::Stream& earlier) {
  c10::Event reached(earlier.device_type());
  reached.record(earlier);
  reached.block(later);
}

}  // namespace

const c10::Stream& SideStream::stream() {
  if (!stream_) stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
  return *stream_;
}

c10::Stream SideStream::current() const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

c10::OptionalStreamGuard SideStream::enter() {
  return c10::OptionalStreamGuard(has_streams() ? std::optional(stream()) : std::nullopt);
}

void SideStream::wait_for_current() {
  if (has_streams()) wait_stream(stream(), current());
}

void SideStream::make_current_wait() {
  if (has_streams()) wait_stream(current(), stream());
}

void SideStream::mark() {
  if (!has_streams()) return;
  mark_.emplace(device_.type());
  mark_->record(stream());
}

void SideStream::wait_for_mark() {
  if (!mark_) return;
  mark_->synchronize();
  mark_.reset();
}

}  // namespace ddp::fsdp
