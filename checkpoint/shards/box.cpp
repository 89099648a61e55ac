#include "checkpoint/shards/box.h"

#include <algorithm>

namespace ddp::shards {

Box whole(const std::vector<int64_t>& shape) {
  return {.offsets = DimVector(shape.size()), .sizes = shape};
}

int64_t numel(const Box& box) {
  int64_t count = 1;
  for (const auto size : box.sizes) count *= size;
  return count;
}

bool is_inside(const Box& box, const std::vector<int64_t>& shape) {
  if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto offset = box.offsets[i];
    if (offset < 0 || box.sizes[i] < 0 || offset > shape[i] || box.sizes[i] > shape[i] - offset) return false;
  }
  return true;
}

bool have_common_part(const Box& left, const Box& right) {
  for (size_t i = 0; i < left.sizes.size(); ++i) {
    const auto begin = std::max(left.offsets[i], right.offsets[i]);
    if (begin >= left.offsets[i] + left.sizes[i] || begin >= right.offsets[i] + right.sizes[i]) return false;
  }
  return true;
}

std::optional<Box> common_part(const Box& left, const Box& right) {
  if (!have_common_part(left, right)) return std::nullopt;
  Box part = left;
  for (size_t i = 0; i < left.sizes.size(); ++i) {
    part.offsets[i] = std::max(left.offsets[i], right.offsets[i]);
    part.sizes[i] = std::min(left.offsets[i] + left.sizes[i], right.offsets[i] + right.sizes[i]) - part.offsets[i];
  }
  return part;
}

Runs::Runs(const Box& part, const Box& from, const Box& to) {
  int64_t from_stride = 1;
  int64_t to_stride = 1;
  bool is_one_run = true;  // so far, of the dimensions from the last one on
  for (size_t i = part.sizes.size(); i-- > 0;) {
    const auto size = part.sizes[i];
    from_ += (part.offsets[i] - from.offsets[i]) * from_stride;
    to_ += (part.offsets[i] - to.offsets[i]) * to_stride;
    if (is_one_run) {
      run_ *= size;
    } else if (size != 1) {
      count_ *= size;
      outer_.insert(outer_.begin(), {.size = size, .from_stride = from_stride, .to_stride = to_stride});
    }
    is_one_run = is_one_run && size == from.sizes[i] && size == to.sizes[i];
    from_stride *= from.sizes[i];
    to_stride *= to.sizes[i];
  }
  if (run_ == 0) count_ = 0;
}

Runs::Run Runs::operator[](int64_t index) const {
  Run run{.from = from_, .to = to_, .count = run_};
  for (size_t i = outer_.size(); i-- > 0;) {
    const auto& each = outer_[i];
    const auto place = i == 0 ? index : index % each.size;
    run.from += place * each.from_stride;
    run.to += place * each.to_stride;
    if (i > 0) index /= each.size;
  }
  return run;
}

int64_t Runs::neighbours(int64_t gap) const {
  int64_t count = 1;
  auto extent = run_;  // of so many runs in `from`; the gaps grow from the last dimension to the first
  for (size_t i = outer_.size(); i-- > 0 && outer_[i].from_stride - extent <= gap;) {
    count *= outer_[i].size;
    extent += (outer_[i].size - 1) * outer_[i].from_stride;
  }
  return std::max<int64_t>(count, 1);
}

}  // namespace ddp::shards
