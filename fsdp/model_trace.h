// What the timeline and the progress page of this process show of a fully sharded model.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace ddp::fsdp {

class ModelTrace {
 public:
  explicit ModelTrace(c10::Device device) : device_(device) {}
  ~ModelTrace() { abandon(); }
  ModelTrace(const ModelTrace&) = delete;
  ModelTrace& operator=(const ModelTrace&) = delete;

  /// `records`: a backward may follow; `reduces`: it will reduce gradients, so that its end is the end of a step.
  void begin_forward(bool records, bool reduces);
  void end_forward(bool records);
  void begin_backward();
  /// `in_forward`: the forward, of which it was a part, continues.
  void end_backward(bool in_forward);
  /// A forward or backward has failed.
  void abandon() noexcept;

  /// A unit has this many bytes of gathered parameters from now on, where it had `before`: a curve of the unit and one
  /// of all.
  void set_gathered(const std::string& unit, int64_t bytes, int64_t before);

 private:
  c10::Device device_;
  uint64_t forward_event_ = 0;
  uint64_t forward_range_ = 0;  // on the device
  uint64_t backward_event_ = 0;
  uint64_t backward_range_ = 0;
  int64_t gathered_bytes_ = 0;
};

/// While it lives, the calling thread waits for what another rank has of a unit, and so does the current stream of the
/// device. `what`: "parameters".
class WaitRange {
 public:
  WaitRange(const char* what, const std::string& unit, c10::Device device);
  ~WaitRange();
  WaitRange(const WaitRange&) = delete;
  WaitRange& operator=(const WaitRange&) = delete;

 private:
  uint64_t event_;
  uint64_t range_;
};

}  // namespace ddp::fsdp
