// A stream on which a sharded model moves parameters beside the computation. On the CPU there are no streams, and every
// function returns at once.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>

namespace ddp::fsdp {

class SideStream {
 public:
  explicit SideStream(c10::Device device) : device_(device) {}

  /// While it lives, what the calling thread queues on the device goes to this stream.
  c10::OptionalStreamGuard enter();
  /// What is queued here later begins after all that the current stream has now.
  void wait_for_current();
  /// What is queued on the current stream later begins after all that is here now.
  void make_current_wait();

  /// Marks what is queued here now, such as reads of host memory.
  void mark();
  /// Blocks the host until the last mark is reached.
  void wait_for_mark();

 private:
  bool has_streams() const { return !device_.is_cpu(); }
  const c10::Stream& stream();
  c10::Stream current() const;

  c10::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> mark_;
};

}  // namespace ddp::fsdp
