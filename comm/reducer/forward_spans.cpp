#include "comm/reducer/forward_spans.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <utility>

namespace ddp::detail {
namespace {

bool has(const ForwardSpans::Span& span, uint64_t thread, uint64_t number) {
  return span.thread == thread && span.begin <= number && number < span.end;
}

// Backwards of older forwards are not told apart from those of no forward. 40 KiB.
constexpr int64_t kMaxForwards = 512;

}  // namespace

void ForwardSpans::begin() {
  thread_ = at::RecordFunction::currentThreadId();
  begin_ = at::sequence_number::peek();
}

void ForwardSpans::end(int64_t forward, bool reduces) {
  const uint64_t thread = std::exchange(thread_, 0);
  const uint64_t end = at::sequence_number::peek();
  if (thread != at::RecordFunction::currentThreadId() || end == begin_) return;
  if (spans_.size() >= size_t{2 * kMaxForwards}) {
    std::erase_if(spans_, [&](const Span& span) { return span.forward <= forward - kMaxForwards; });
  }
  const Span span{.thread = thread, .begin = begin_, .end = end, .forward = forward, .reduces = reduces};
  const auto is_before = [](const Span& left, const Span& right) {
    return std::tie(left.thread, left.begin) < std::tie(right.thread, right.begin);
  };
  spans_.insert(std::upper_bound(spans_.begin(), spans_.end(), span, is_before), span);
}

const ForwardSpans::Span* ForwardSpans::find(const torch::autograd::Node& node) const {
  const uint64_t thread = node.thread_id();
  const uint64_t number = node.sequence_nr();
  if (!spans_.empty() && has(spans_.back(), thread, number)) return &spans_.back();  // mostly
  const auto after = std::upper_bound(spans_.begin(), spans_.end(), std::pair(thread, number),
                                      [](const std::pair<uint64_t, uint64_t>& place, const Span& span) {
                                        return place < std::pair(span.thread, span.begin);
                                      });
  if (after == spans_.begin()) return nullptr;
  const Span& span = *(after - 1);
  return has(span, thread, number) ? &span : nullptr;
}

}  // namespace ddp::detail
