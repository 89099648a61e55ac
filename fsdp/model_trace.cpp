#include "fsdp/model_trace.h"

#include <utility>

#include "base/progress/own_page.h"
#include "base/timeline/own_timeline.h"
#include "comm/collectives/device_events.h"

namespace ddp::fsdp {

using Phase = progress::Phase;

namespace {

void leave(uint64_t& event, uint64_t& range) noexcept {
  detail::end_event(std::exchange(event, 0));
  detail::end_on_device(std::exchange(range, 0));
}

}  // namespace

void ModelTrace::begin_forward(bool records, bool reduces) {
  if (records && reduces) detail::expect_step();
  const Phase phase = records ? Phase::kForward : Phase::kEvaluation;
  detail::own_page().enter_phase(phase);
  leave(forward_event_, forward_range_);  // ends the event of a forward that threw
  forward_event_ = detail::begin_event(detail::event_kind(phase), progress::name_of(phase));
  forward_range_ = detail::begin_on_device(progress::name_of(phase), device_);
}

void ModelTrace::end_forward(bool records) {
  leave(forward_event_, forward_range_);
  if (!records) detail::own_page().enter_phase(Phase::kOther);
}

void ModelTrace::begin_backward() {
  detail::own_page().enter_phase(Phase::kBackward);
  leave(backward_event_, backward_range_);
  backward_event_ = detail::begin_event(detail::EventKind::kBackward, "backward");
  backward_range_ = detail::begin_on_device("backward", device_);
}

void ModelTrace::end_backward(bool in_forward) {
  leave(backward_event_, backward_range_);
  if (!in_forward) detail::finish_expected_step();
  detail::own_page().enter_phase(in_forward ? Phase::kForward : Phase::kOther);
}

void ModelTrace::abandon() noexcept {
  leave(forward_event_, forward_range_);
  leave(backward_event_, backward_range_);
}

void ModelTrace::set_gathered(const std::string& unit, int64_t bytes, int64_t before) {
  gathered_bytes_ += bytes - before;
  detail::Recorder* const recorder = detail::recording();
  if (recorder == nullptr) return;
  recorder->value("gathered bytes of unit " + unit, static_cast<double>(bytes));
  recorder->value("gathered bytes", static_cast<double>(gathered_bytes_));
}

WaitRange::WaitRange(const char* what, const std::string& unit, c10::Device device) : event_(0), range_(0) {
  if (detail::recording() == nullptr) return;
  const std::string name = std::string("wait for ") + what + " of unit " + unit;
  event_ = detail::begin_event(detail::EventKind::kUser, name);
  range_ = detail::begin_on_device(name, device);
}

WaitRange::~WaitRange() {
  detail::end_event(event_);
  detail::end_on_device(range_);
}

}  // namespace ddp::fsdp
